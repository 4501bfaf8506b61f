"""The figures of all processes of ``forebay serve --workers``, whoever is asked.

The writer asks its workers over their standard input, they answer over the folder's socket. A
worker that is asked by a scraper lets the writer collect. Who does not answer in time is left out,
except for what it had counted when last heard of.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.errors import ForebayError
from forebay.store.remote import Emit, Handler, WriterClient
from forebay.telemetry.merging import Page, TenantCap, merged, text_of
from forebay.telemetry.metrics import Metrics

log = logging.getLogger("forebay.figures")
TAKE, COLLECT = "figures.take", "figures.collect"
ANSWER_S = 0.5
COLLECT_S = 1.0


class Shown(msgspec.Struct, frozen=True):
    """What one process shows."""

    process: int
    page: Page


class Collected(msgspec.Struct, frozen=True):
    """What all processes show: those that answered, those that did not, those that ended."""

    answered: dict[int, Page] = {}
    silent: dict[int, Page] = {}
    missing: int = 0
    ended: Page = ()


class FiguresOfAll:
    """The writer's half. ``ask`` asks the worker with that process id, which must run."""

    def __init__(self, max_tenants: int) -> None:
        self._own = _nothing
        self._cap = TenantCap(max_tenants)
        self._last: dict[int, Page] = {}
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._running: set[int] = set()
        self._ended: Page = ()
        self.ask: Callable[[int], None] = lambda _process: None

    def over(self, metrics: Metrics) -> Callable[[], Awaitable[bytes]]:
        """The page of all, with ``metrics`` as this process's own."""
        self._own = metrics.page
        return self.page

    def started(self, process: int) -> None:
        """A worker runs."""
        self._running.add(process)

    def ended(self, process: int) -> None:
        """It ended: what it counted stays, as far as it was heard of."""
        self._running.discard(process)
        last = self._last.pop(process, None)
        if last is not None:
            self._ended = merged([], [self._ended, last])
        self._answered(process)

    def take(self, shown: Shown) -> None:
        """A worker answered; what comes from one that has ended was counted already."""
        if shown.process in self._running:
            self._last[shown.process] = self._cap.apply(shown.page)
            self._answered(shown.process)

    async def collect(self) -> Collected:
        """Ask every worker and wait for the answers, half a second at most."""
        loop = asyncio.get_running_loop()
        for process in self._running - set(self._asked):
            # One question at a time: a worker that stands still does not collect them.
            self._asked[process] = loop.create_future()
            self.ask(process)
        if self._asked:
            await asyncio.wait(list(self._asked.values()), timeout=ANSWER_S)
        answered = {os.getpid(): self._cap.apply(self._own())}
        silent: dict[int, Page] = {}
        for process, page in self._last.items():
            (silent if process in self._asked else answered)[process] = page
        return Collected(answered, silent, len(self._asked), self._ended)

    async def page(self) -> bytes:
        """Everybody's figures in the Prometheus text format."""
        return await _text(await self.collect())

    def handlers(self) -> Mapping[str, Handler]:
        """What the writer does for its workers."""

        async def take(payload: Any, _emit: Emit) -> None:
            self.take(msgspec.convert(payload, Shown))

        async def collect(_payload: Any, _emit: Emit) -> Collected:
            return await self.collect()

        return {TAKE: take, COLLECT: collect}

    def _answered(self, process: int) -> None:
        future = self._asked.pop(process, None)
        if future is not None and not future.done():
            future.set_result(None)


class FiguresOfWorker:
    """A worker's half."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._own = _nothing
        self._client = WriterClient(folder)
        self._clock = clock
        self._seen = Collected(missing=1)

    def over(self, metrics: Metrics) -> Callable[[], Awaitable[bytes]]:
        """The page of all, with ``metrics`` as this process's own."""
        self._own = metrics.page
        return self.page

    async def show(self) -> None:
        """Tell the writer what this process shows, as it asked."""
        shown = Shown(os.getpid(), self._own())
        try:
            await self._client.call(TAKE, shown, deadline=Deadline.after(ANSWER_S, self._clock))
        except ForebayError as error:
            log.debug("figures were not shown: %s", error.message)

    async def page(self) -> bytes:
        """Everybody's figures; without the writer its own, and what the others last counted."""
        try:
            deadline = Deadline.after(COLLECT_S, self._clock)
            value = await self._client.call(COLLECT, None, deadline=deadline)
            self._seen = msgspec.convert(value, Collected, str_keys=True)
            return await _text(self._seen)
        except ForebayError as error:
            log.warning("the writer did not collect the figures: %s", error.message)
        seen, own = self._seen, os.getpid()
        others = {**seen.answered, **seen.silent}
        others.pop(own, None)
        missing = max(1, len(seen.answered) + seen.missing - 1)
        return await _text(Collected({own: self._own()}, others, missing, seen.ended))


def _nothing() -> Page:
    """Nothing to show yet."""
    return ()


async def _text(collected: Collected) -> bytes:
    """Added up beside the loop: some milliseconds for a dozen processes."""

    def work() -> bytes:
        ended = [*collected.silent.values(), collected.ended]
        return text_of(merged(list(collected.answered.values()), ended), collected.missing)

    return await asyncio.to_thread(work)
