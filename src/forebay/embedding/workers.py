"""A sized pool of threads for native work, with an urgent lane.

Queries take the urgent lane: any free thread takes them first, and some threads take nothing
else, so a query does not wait for a passage to end; the system's scheduler lets a thread that
slept run before those that are always busy. Both lanes are bounded; what was cancelled before it
began never runs.

While queries come, passages have an eighth of the machine: of two cores, one thread at a time that
rests thrice as long as it works. A run cannot be interrupted, and two of them side by side took two
cores from all who ask, whatever their priority.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Generic, TypeVar

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.cores import usable_cores
from forebay.kernel.errors import Overloaded, Unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

_SMOOTHING = 0.1
CALM_S = 1.0
"""After so long without a query passages have all threads."""
SHARE = 1 / 8
"""Of the cores that passages may use while queries come."""


class WorkerSettings(msgspec.Struct, frozen=True):
    """Size and bounds of a pool."""

    workers: Annotated[
        int, msgspec.Meta(ge=1, le=64, description="Threads that run the embedding model.")
    ] = 2
    query_workers: Annotated[
        int, msgspec.Meta(ge=0, le=64, description="Further threads that run queries only.")
    ] = 1
    passage_niceness: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=19,
            description="How far threads that embed passages step back for queries and for the "
            "rest of the process (Linux, and only beside query workers).",
        ),
    ] = 5
    max_waiting_queries: Annotated[
        int, msgspec.Meta(ge=1, description="Queries that may wait before new ones are refused.")
    ] = 256
    max_waiting_passages: Annotated[
        int,
        msgspec.Meta(
            ge=1, description="Passage batches that may wait before new ones are refused."
        ),
    ] = 1024


class PoolStatistics(msgspec.Struct, frozen=True):
    """A pool at one moment; ``job_s`` is a moving average of what a job takes."""

    workers: int
    waiting_urgent: int
    waiting: int
    running: int
    done: int
    job_s: float


class PassagePace:
    """When the next passage may begin, on so many cores; a state machine of numbers and time."""

    __slots__ = ("_asked_at", "_most", "_rests", "_rests_until", "_running")

    def __init__(self, cores: int) -> None:
        self._most = max(1, int(SHARE * cores))
        self._rests = max(0.0, 1 / (SHARE * cores) - 1)
        self._asked_at = -math.inf
        self._rests_until = -math.inf
        self._running = 0

    def asked(self, now: float) -> None:
        """A query came."""
        self._asked_at = now

    def began(self) -> None:
        """A passage is run; ``ended`` must follow."""
        self._running += 1

    def ended(self, worked_s: float, now: float) -> None:
        """It is over after so long."""
        self._running -= 1
        self._rests_until = now + self._rests * worked_s

    def rest_s(self, now: float) -> float:
        """Seconds until one may begin, or until it is known better: who ends one looks again."""
        calm_in_s = self._asked_at + CALM_S - now
        if calm_in_s <= 0:
            return 0.0
        return calm_in_s if self._running >= self._most else min(calm_in_s, self._rests_until - now)


class _Job(Generic[Item, Result]):
    __slots__ = ("future", "item", "urgent")

    def __init__(self, item: Item, urgent: bool) -> None:
        self.item = item
        self.urgent = urgent
        self.future: Future[Result] = Future()


class WorkerPool(Generic[Item, Result]):
    """Runs ``work(item)`` in one of its threads; ``close`` when done."""

    def __init__(
        self,
        work: Callable[[Item], Result],
        settings: WorkerSettings,
        clock: Clock,
        *,
        name: str,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._work = work
        self._settings = settings
        self._clock = clock
        self._prepare = prepare
        self._changed = threading.Condition()
        self._urgent: deque[_Job[Item, Result]] = deque()
        self._patient: deque[_Job[Item, Result]] = deque()
        self._closed = False
        self._running = 0
        self._done = 0
        self._job_s = 0.0
        self._urgent_at: dict[int, float] = {}
        self._pace = PassagePace(usable_cores())
        self._threads = [
            threading.Thread(
                target=self._loop,
                args=(number >= settings.workers,),
                name=f"{name}-{number}",
                daemon=True,
            )
            for number in range(settings.workers + settings.query_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, item: Item, *, urgent: bool) -> Future[Result]:
        """Queue ``item``; ``Overloaded`` when its lane is full, ``Unavailable`` once closed."""
        job: _Job[Item, Result] = _Job(item, urgent)
        with self._changed:
            if self._closed:
                raise Unavailable("the embedder is shutting down")
            lane, bound = self._lane(urgent)
            if len(lane) >= bound:
                wait_s = self._job_s * len(lane) / len(self._threads)
                raise Overloaded(
                    "too much is waiting for the embedder", retry_after_s=max(1.0, wait_s)
                )
            lane.append(job)
            if urgent:
                self._pace.asked(self._clock.now())
            self._changed.notify_all()  # one thread alone might be of the wrong kind
        job.future.add_done_callback(lambda future: self._forget(job, future))
        return job.future

    def asked(self) -> None:
        """A query is embedded elsewhere: passages make room for it as for those in here."""
        self._pace.asked(self._clock.now())

    def close(self) -> None:
        """Refuse what waits and wait for what runs (one job a thread)."""
        with self._changed:
            self._closed = True
            waiting = [*self._urgent, *self._patient]
            self._urgent.clear()
            self._patient.clear()
            self._changed.notify_all()
        for job in waiting:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(Unavailable("the embedder is shutting down"))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def statistics(self) -> PoolStatistics:
        """What waits, runs and is done."""
        with self._changed:
            return PoolStatistics(
                len(self._threads),
                len(self._urgent),
                len(self._patient),
                self._running,
                self._done,
                self._job_s,
            )

    def at_work_s(self) -> float:
        """Seconds that the urgent job longest in work has been at it; 0: none is."""
        with self._changed:
            earliest = min(self._urgent_at.values(), default=None)
        return 0.0 if earliest is None else max(0.0, self._clock.now() - earliest)

    def _lane(self, urgent: bool) -> tuple[deque[_Job[Item, Result]], int]:
        if urgent:
            return self._urgent, self._settings.max_waiting_queries
        return self._patient, self._settings.max_waiting_passages

    def _forget(self, job: _Job[Item, Result], future: Future[Result]) -> None:
        """Free a cancelled job's place at once instead of when its turn comes."""
        if not future.cancelled():
            return
        with self._changed:
            lane, _ = self._lane(job.urgent)
            try:
                lane.remove(job)
            except ValueError:
                return  # a thread took it meanwhile and drops it

    def _loop(self, urgent_only: bool) -> None:
        if not urgent_only and self._settings.query_workers:
            step_back(self._settings.passage_niceness)
        if self._prepare is not None:
            self._prepare()
        while (job := self._next(urgent_only)) is not None:
            if not job.future.set_running_or_notify_cancel():
                self._finish(None, job.urgent)
                continue
            began = self._clock.now()
            if job.urgent:
                self._begun(began)
            try:
                result = self._work(job.item)
            except BaseException as error:
                # Whatever went wrong belongs to the caller who waits, not to this thread.
                self._finish(None, job.urgent)
                job.future.set_exception(error)
            else:
                self._finish(self._clock.now() - began, job.urgent)
                job.future.set_result(result)

    def _next(self, urgent_only: bool) -> _Job[Item, Result] | None:
        with self._changed:
            while True:
                rest_s: float | None = None
                if self._urgent:
                    lane = self._urgent
                    break
                if self._patient and not urgent_only:
                    rest_s = self._pace.rest_s(self._clock.now())
                    if rest_s <= 0:
                        lane = self._patient
                        self._pace.began()
                        break
                if self._closed:
                    return None
                self._changed.wait(rest_s)
            self._running += 1
            return lane.popleft()

    def _begun(self, at: float) -> None:
        with self._changed:
            self._urgent_at[threading.get_ident()] = at

    def _finish(self, worked_s: float | None, urgent: bool) -> None:
        with self._changed:
            self._running -= 1
            if not urgent:
                self._pace.ended(worked_s or 0.0, self._clock.now())
                if self._patient:
                    self._changed.notify_all()
            self._urgent_at.pop(threading.get_ident(), None)
            if worked_s is None:
                return
            self._done += 1
            weight = _SMOOTHING if self._job_s else 1.0
            self._job_s += weight * (worked_s - self._job_s)


def step_back(niceness: int) -> None:
    """Lower the calling thread's priority; elsewhere than on Linux it is the whole process's."""
    if niceness and sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it; it is only a preference
            current = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(19, current + niceness))
