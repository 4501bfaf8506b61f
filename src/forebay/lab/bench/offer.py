"""Offers the load, or one process's part of it, to the target and books what comes back."""

from __future__ import annotations

import asyncio
import gc
import itertools
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import first_error
from forebay.lab.bench.address import parse_base_url, resolve
from forebay.lab.bench.descriptors import make_room
from forebay.lab.bench.desk import Books, Desk
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.loops import ClosedLoop, Loop, OpenLoop
from forebay.lab.bench.options import BenchOptions, Observer
from forebay.lab.bench.payload import PayloadWriter
from forebay.lab.bench.pool import Pool
from forebay.lab.measure.recorder import Recorder, RecorderOptions
from forebay.lab.workload.request import PlannedRequest

LEAD_S = 0.05
"""Between the first request's writing and its time."""
_OBSERVE_EVERY_S = 0.5
_BATCH_ROWS = 1_024
"""Counted at once while sends are due: about a millisecond of the loop's time."""

Begin = Callable[[], Awaitable[float]]
"""Waits until the load may begin; answers with its start on the clock."""


class Part(msgspec.Struct, frozen=True):
    """Which share of the load a process offers: every ``of``-th request, sessions whole."""

    number: int = 0
    of: int = 1

    def has(self, planned: PlannedRequest) -> bool:
        """Whether the request is of this part."""
        key = zlib.crc32(planned.session.encode()) if planned.session else planned.index
        return key % self.of == self.number

    def users(self, users: int) -> int:
        """This part's users of a closed loop."""
        return (users + self.of - 1 - self.number) // self.of


def new_books(options: BenchOptions, clock: Clock) -> Books:
    """Empty books for a run of these options."""
    recording = RecorderOptions(
        slice_s=options.slice_s, warmup_s=options.warmup_s, batch_rows=_BATCH_ROWS
    )
    return Books(Recorder(recording), Health(clock), Live())


async def offer(
    options: BenchOptions,
    books: Books,
    clock: Clock,
    *,
    observer: Observer | None = None,
    stop: asyncio.Event | None = None,
    share: tuple[Part, Begin] | None = None,
) -> None:
    """Run the load to its end into ``books``; the target's model must be named.

    ``share`` says which part of the load this is, and waits for the common start.
    """
    part, begin = share or (Part(), _soon(clock))
    make_room(options.bounds.max_connections)
    address = parse_base_url(options.target.base_url)
    async with _pool(options, clock) as pool:
        writer = PayloadWriter(options.target, address, options.target.model)
        desk = Desk(options, pool, writer, books, clock)
        loop = _loop(options, desk, part)
        async with _watched(desk, books, observer), _stoppable(loop, stop):
            with _no_collection():
                books.health.start()
                desk.origin = await begin()
                await loop.run()
        statistics = pool.statistics()
        books.health.finish(statistics.opened, statistics.waited)


def _soon(clock: Clock) -> Begin:
    async def begin() -> float:
        return clock.now() + LEAD_S

    return begin


def _loop(options: BenchOptions, desk: Desk, part: Part) -> Loop:
    workload = options.workload
    requests: Iterator[PlannedRequest] = filter(part.has, workload.requests(options.seed))
    if workload.closed_loop is None:
        return OpenLoop(desk, requests)
    users = msgspec.structs.replace(
        workload.closed_loop, users=part.users(workload.closed_loop.users)
    )
    thinking_s = workload.closed_loop.thinking_s(options.seed, workload.folder)
    own = itertools.islice(thinking_s, part.number, None, part.of)
    return ClosedLoop(desk, requests, users, own)


@asynccontextmanager
async def _pool(options: BenchOptions, clock: Clock) -> AsyncIterator[Pool]:
    address = parse_base_url(options.target.base_url)
    destination = await resolve(address, options.target.verify_tls)
    try:
        async with asyncio.TaskGroup() as group:
            pool = Pool(destination, group, clock, max_connections=options.bounds.max_connections)
            try:
                yield pool
            finally:
                pool.close()
    except BaseExceptionGroup as group_of_one:
        raise first_error(group_of_one) from None


@asynccontextmanager
async def _watched(desk: Desk, books: Books, observer: Observer | None) -> AsyncIterator[None]:
    """Call the observer every half second while the body runs, and once at its end."""
    timer: asyncio.TimerHandle | None = None
    loop = asyncio.get_running_loop()

    def look() -> None:
        assert observer is not None
        observer(
            books.live.snapshot(
                desk.now_s(),
                desk.in_flight,
                lateness_p99_s=books.health.lateness_p99_s(),
                cpu_share=books.health.cpu_share(),
            )
        )

    def tick() -> None:
        nonlocal timer
        timer = loop.call_later(_OBSERVE_EVERY_S, tick)
        look()

    if observer is None:
        yield
        return
    timer = loop.call_later(_OBSERVE_EVERY_S, tick)
    try:
        yield
        look()
    finally:
        timer.cancel()


@asynccontextmanager
async def _stoppable(loop: Loop, stop: asyncio.Event | None) -> AsyncIterator[None]:
    """Stop the load when ``stop`` is set."""
    if stop is None:
        yield
        return

    async def wait() -> None:
        await stop.wait()
        loop.stop()

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wait())
        try:
            yield
        finally:
            waiting.cancel()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep what lives already out of the collector's passes, which would hold up sends."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
