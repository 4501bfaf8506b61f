"""The load offered by several processes, where one core does not carry it.

Each child offers its part of the same schedule from a common start, on the machine's monotonic
clock, and hands its books over at the end. Latencies are exact; of the live view's percentiles
the worst child's are shown.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from forebay.kernel.clock import Clock, SystemClock
from forebay.kernel.errors import ConfigError, ForebayError, Unavailable, first_error
from forebay.lab.bench.desk import Books
from forebay.lab.bench.offer import LEAD_S, Part, new_books, offer
from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Observer, Snapshot, Target
from forebay.lab.workload.plan import Workload, WorkloadSpec

_READY_S = 60.0
_EXIT_S = 5.0


class _Task(msgspec.Struct, frozen=True):
    """A run as it goes to a child: nothing but plain values."""

    target: Target
    spec: WorkloadSpec
    folder: str
    seed: int
    bounds: GeneratorBounds
    slice_s: float
    warmup_s: float

    def options(self) -> BenchOptions:
        """The options again."""
        return BenchOptions(
            target=self.target,
            workload=Workload(self.spec, Path(self.folder)),
            seed=self.seed,
            bounds=self.bounds,
            slice_s=self.slice_s,
            warmup_s=self.warmup_s,
        )


async def offer_in_processes(
    options: BenchOptions,
    books: Books,
    clock: Clock,
    *,
    observer: Observer | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the load in ``options.bounds.processes`` children and add up their books.

    Raises what a child raised, and ``Unavailable`` when one dies. Children end with the caller.
    """
    count = options.bounds.processes
    children = [_Child(options, Part(number, count)) for number in range(count)]
    try:
        async with asyncio.timeout(_READY_S):
            await asyncio.gather(*(child.ready for child in children))
        start_at = clock.now() + 2 * LEAD_S
        for child in children:
            child.tell(("go", start_at))
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(_watch(children, observer))]
            if stop is not None:
                helpers.append(group.create_task(_pass_on(stop, children)))
            try:
                ends = await asyncio.gather(*(child.done for child in children))
            finally:
                for helper in helpers:
                    helper.cancel()
    except BaseExceptionGroup as group_of_one:
        raise first_error(group_of_one) from None
    except TimeoutError as error:
        raise Unavailable("the generator's processes did not start; use fewer") from error
    finally:
        for child in children:
            child.close()
    for child_books in ends:
        books.recorder.absorb(child_books[0])
        books.health.absorb(child_books[1])


class _Child:
    """The parent's end of one process."""

    def __init__(self, options: BenchOptions, part: Part) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[Any] = self._loop.create_future()
        self.look: Snapshot | None = None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=_work, args=(theirs, _task(options), part), daemon=True
        )
        self._process.start()
        theirs.close()
        _when_readable(self._loop, self._pipe, self._read)

    def tell(self, message: tuple[str, Any]) -> None:
        """Send a message, unless the child is gone, which ``done`` tells."""
        try:
            self._pipe.send(message)
        except OSError:
            return

    def close(self) -> None:
        """End the process: it has handed in its books, or nobody wants them."""
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        for future in (self.ready, self.done):
            future.cancel()
        self._process.kill()
        self._process.join(_EXIT_S)

    def _read(self) -> None:
        try:
            word, value = self._pipe.recv()
        except (EOFError, OSError):
            self._loop.remove_reader(self._pipe.fileno())
            self._fail(Unavailable("a process of the generator died; see what it printed"))
            return
        if word == "ready" and not self.ready.done():
            self.ready.set_result(None)
        elif word == "look":
            self.look = value
        elif word == "done" and not self.done.done():
            self.done.set_result(value)
        elif word == "failed":
            kind, message = value
            self._fail(ConfigError(message) if kind == "ConfigError" else Unavailable(message))

    def _fail(self, error: ForebayError) -> None:
        for future in (self.ready, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()


def _task(options: BenchOptions) -> _Task:
    bounds = options.bounds
    each = msgspec.structs.replace(
        bounds,
        processes=1,
        max_connections=max(1, bounds.max_connections // bounds.processes),
        max_in_flight=max(1, bounds.max_in_flight // bounds.processes),
    )
    return _Task(
        target=options.target,
        spec=options.workload.spec,
        folder=str(options.workload.folder),
        seed=options.seed,
        bounds=each,
        slice_s=options.slice_s,
        warmup_s=options.warmup_s,
    )


async def _watch(children: list[_Child], observer: Observer | None) -> None:
    while observer is not None:
        await asyncio.sleep(0.5)
        looks = [child.look for child in children if child.look is not None]
        if looks:
            observer(_together(looks))


async def _pass_on(stop: asyncio.Event, children: list[_Child]) -> None:
    await stop.wait()
    for child in children:
        child.tell(("stop", None))


def _together(looks: list[Snapshot]) -> Snapshot:
    """Counts and rates added, of everything else the worst."""
    statuses: Counter[str] = Counter()
    for look in looks:
        statuses.update(look.statuses)
    meant = sum(look.recent_ok_per_s for look in looks)
    good = sum(look.recent_good_share * look.recent_ok_per_s for look in looks)
    added: dict[str, Any] = {
        name: sum(getattr(look, name) for look in looks)
        for name in (
            "sent",
            "finished",
            "ok",
            "good",
            "in_flight",
            "not_sent",
            "recent_sent_per_s",
            "recent_ok_per_s",
            "recent_tokens_per_s",
        )
    }
    worst: dict[str, Any] = {
        name: max(getattr(look, name) for look in looks)
        for name in (
            "elapsed_s",
            "recent_ttft_p50_s",
            "recent_ttft_p99_s",
            "recent_total_p50_s",
            "recent_total_p99_s",
            "lateness_p99_s",
            "cpu_share",
        )
    }
    share = good / meant if meant else min(look.recent_good_share for look in looks)
    return Snapshot(statuses=dict(statuses), recent_good_share=share, **added, **worst)


def _when_readable(
    loop: asyncio.AbstractEventLoop, pipe: Connection, read: Callable[[], None]
) -> None:
    """Call ``read`` whenever a message has begun to arrive."""
    loop.add_reader(pipe.fileno(), read)
    # uvloop makes what it watches non-blocking, but a message is read and written whole.
    os.set_blocking(pipe.fileno(), True)


# --- in the child -----------------------------------------------------------------------------


def _work(pipe: Connection, task: _Task, part: Part) -> None:
    """What a child runs."""
    # Ctrl-C reaches every process of a terminal; what follows from it, the parent says.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        books = uvloop.run(_offer_part(pipe, task, part))
        pipe.send(("done", (books.recorder, books.health)))
    except ForebayError as error:
        pipe.send(("failed", (type(error).__name__, error.message)))
    except (KeyboardInterrupt, BrokenPipeError):
        return


async def _offer_part(pipe: Connection, task: _Task, part: Part) -> Books:
    options, clock = task.options(), SystemClock()
    books = new_books(options, clock)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    start: asyncio.Future[float] = loop.create_future()

    def read() -> None:
        try:
            word, value = pipe.recv()
        except (EOFError, OSError):
            # The parent is gone: nobody wants the result.
            loop.remove_reader(pipe.fileno())
            word, value = "stop", None
            start.cancel()
        if word == "go" and not start.done():
            start.set_result(value)
        elif word == "stop":
            stop.set()

    def show(look: Snapshot) -> None:
        with suppress(OSError):  # ``read`` hears of a parent that is gone
            pipe.send(("look", look))

    async def begin() -> float:
        pipe.send(("ready", None))
        return await start

    _when_readable(loop, pipe, read)
    try:
        await offer(
            options,
            books,
            clock,
            observer=show,
            stop=stop,
            share=(part, begin),
        )
    finally:
        loop.remove_reader(pipe.fileno())
    return books
