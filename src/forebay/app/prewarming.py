"""Searches made beforehand: after a start what is asked often, later what this user asks next.

It takes what nobody uses. Before readiness it has the process to itself, for ``start_s`` at most;
afterwards one search at a time, ``share`` of the time, while nobody waits, most places are free and
the loop is on time, with the least priority (F0.13).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from forebay.cache.prewarm import STAGE_SHARES, Asked, Learner, PrewarmSettings, Question
from forebay.cache.request_log import RequestLog, line_of
from forebay.kernel.clock import Clock

log = logging.getLogger("forebay.prewarm")
FLUSH_S = 1.0
LOOK_S = 0.25
INDEXING_LOOK_S = 0.05
HOT_EVERY_S = 60.0
FRESH_S = 10.0
"""A prediction of somebody's next question is worth nothing after that."""
LATE_S = 0.02
"""A loop that is later than this is busy."""
MOST_FORETOLD = 256
MOST_LINES_BYTES = 1 << 20
AT_ONCE = 2
LEARN_AT_ONCE = 200


class PrewarmParts(msgspec.Struct, frozen=True):
    """What it works with. ``fill`` makes a search, ``held`` says whether it was made already.

    ``spare``: nobody waits and most places are free. ``room`` turns a share of the tier's memory
    into a number of results. ``wall`` is the wall's clock. ``indexing``: documents still come.
    """

    learner: Learner
    log: RequestLog
    fill: Callable[[Question], Awaitable[bool]]
    held: Callable[[Question], Awaitable[bool]]
    spare: Callable[[], bool]
    room: Callable[[float], int]
    clock: Clock
    wall: Clock
    indexing: Callable[[], bool]


class _Foretold(NamedTuple):
    at: float
    question: Question


class Prewarmer:
    """Learns from requests as they end, and fetches what will be asked."""

    def __init__(self, parts: PrewarmParts, settings: PrewarmSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._foretold: deque[_Foretold] = deque(maxlen=MOST_FORETOLD)
        self._hot: deque[Question] = deque()
        self._looked_at = float("-inf")
        self._began_at = parts.clock.now()
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._read = self._unwritten = False
        self._done = asyncio.Event()
        self._counts = dict.fromkeys(("filled", "failed", "foretold", "put_off", "lost"), 0)
        if not settings.start_s:
            self._done.set()

    def asked(self, asked: Asked) -> None:
        """A question was answered."""
        line = line_of(asked)
        if not line:
            return  # nothing that could be asked again
        if self._lines_bytes + len(line) > MOST_LINES_BYTES:
            self._counts["lost"] += 1
        else:
            self._lines.append(line)
            self._lines_bytes += len(line)
        if not self._read:
            return  # what was before comes first; it is in the log for the next time
        learner = self._parts.learner
        learner.learn(asked)
        for one in learner.next(asked.who, asked.question, asked.at):
            self._counts["foretold"] += 1
            self._foretold.append(_Foretold(self._parts.clock.now(), one.question))

    def waiting(self) -> tuple[str, ...]:
        """What readiness still waits for."""
        return () if self._done.is_set() else ("warming the caches",)

    @property
    def learned(self) -> bool:
        """Whether what was asked before the start is known."""
        return self._read

    async def done(self) -> None:
        """Wait until what is asked often is there, or had its time."""
        await self._done.wait()

    def statistics(self) -> dict[str, float]:
        """What was foretold and fetched, and what is known."""
        known = self._parts.learner.statistics()
        return {**self._counts, "entries": known["questions"], "bytes": self._lines_bytes, **known}

    async def run(self) -> None:
        """Learn what was asked before, fetch it, then go on until cancelled."""
        try:
            await self._learn_all()
            if self._settings.start_s:
                # What is fetched before is answered from a part of the documents: nobody keeps it.
                while self._parts.indexing():  # noqa: ASYNC110 (another process says so)
                    await asyncio.sleep(INDEXING_LOOK_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.start_s):
                        await self._start()
        finally:
            self._done.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writing())
            group.create_task(self._filling())

    async def _learn_all(self) -> None:
        try:
            asked = await asyncio.to_thread(self._parts.log.read)
        except OSError as error:
            log.warning("the log of questions cannot be read: %s", error.strerror)
            asked = []
        for number, one in enumerate(asked):
            self._parts.learner.learn(one)
            if number % LEARN_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._read = True

    async def _start(self) -> None:
        """The hot questions, as many at once as there are processors to spare."""
        await self._look()
        began_at, count = self._parts.clock.now(), len(self._hot)

        async def work() -> None:
            while self._hot:
                await self._fill(self._hot.popleft())

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        if count:
            took_s = self._parts.clock.now() - began_at
            log.info("%d results were fetched beforehand in %.1f s", count, took_s)

    async def step(self, late_s: float) -> float:
        """One search if there is anything to search for and to spare; how long to rest.

        ``late_s``: how late the loop is.
        """
        if late_s > LATE_S or not self._parts.spare():
            self._counts["put_off"] += bool(self._foretold or self._hot)
            return LOOK_S
        question = await self._next()
        if question is None:
            return LOOK_S
        began_at = self._parts.clock.now()
        await self._fill(question)
        took_s, share = self._parts.clock.now() - began_at, self._settings.share
        return max(1 / self._settings.per_s, took_s * (1 - share) / share)

    async def _filling(self) -> None:
        pause_s = LOOK_S
        while True:
            slept_at = self._parts.clock.now()
            await asyncio.sleep(pause_s)
            pause_s = await self.step(self._parts.clock.now() - slept_at - pause_s)

    async def _next(self) -> Question | None:
        """What is most urgent: somebody's next question, then what all ask."""
        now = self._parts.clock.now()
        while self._foretold:
            one = self._foretold.popleft()
            if now - one.at <= FRESH_S and not await self._parts.held(one.question):
                return one.question
        if now - self._looked_at >= HOT_EVERY_S:
            await self._look()
        for _ in range(min(len(self._hot), LEARN_AT_ONCE)):
            question = self._hot.popleft()
            if not await self._parts.held(question):
                return question
        return None

    async def _look(self) -> None:
        """What is asked often now, as far as the stage allows."""
        self._looked_at = self._parts.clock.now()
        stage = int((self._looked_at - self._began_at) / self._settings.stage_s)
        stage = min(stage, len(STAGE_SHARES) - 1)
        room = self._parts.room(STAGE_SHARES[stage])
        hot = partial(self._parts.learner.hot, stage, self._parts.wall.now(), room)
        self._hot = deque(one.question for one in await asyncio.to_thread(hot))

    async def _fill(self, question: Question) -> None:
        try:
            filled = await self._parts.fill(question)
        except Exception:
            # Nobody asked for it: whatever fails here, the service goes on.
            log.exception("a search beforehand failed")
            filled = False
        self._counts["filled" if filled else "failed"] += 1

    async def _writing(self) -> None:
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self._write()
        finally:
            await self._write()

    async def _write(self) -> None:
        lines, self._lines, self._lines_bytes = self._lines, [], 0
        try:
            await asyncio.to_thread(self._parts.log.append, b"".join(lines))
        except OSError as error:
            self._counts["lost"] += len(lines)
            if not self._unwritten:
                log.warning("the log of questions cannot be written: %s", error.strerror)
            self._unwritten = True
        else:
            self._unwritten = False


@asynccontextmanager
async def running(prewarmer: Prewarmer) -> AsyncIterator[None]:
    """It runs while the block does."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(prewarmer.run())
        try:
            yield
        finally:
            task.cancel()


class Gate(NamedTuple):
    """How full something is: who waits for it, how many places it has and how many are free."""

    waiting: int
    places: int
    free: int


def spare(gates: Sequence[Gate], share: float) -> bool:
    """Whether nobody waits anywhere, and of the first no more than ``share`` is in use."""
    if any(gate.waiting for gate in gates):
        return False
    return gates[0].free >= (1 - share) * gates[0].places
