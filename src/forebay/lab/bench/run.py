"""One bench run from options to result."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from forebay.kernel.clock import Clock, SystemClock, WallClock
from forebay.kernel.errors import ConfigError, first_error
from forebay.lab.bench.address import Address, parse_base_url, resolve
from forebay.lab.bench.describe import describe_options, describe_workload
from forebay.lab.bench.desk import Books, Desk
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.loops import ClosedLoop, Loop, OpenLoop
from forebay.lab.bench.models import first_model
from forebay.lab.bench.options import BenchOptions, Observer
from forebay.lab.bench.payload import PayloadWriter
from forebay.lab.bench.pool import Pool
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.measure.recorder import Recorder, RecorderOptions
from forebay.lab.measure.result import Run, RunResult

_OBSERVE_EVERY_S = 0.5
_LEAD_S = 0.05
"""Between the first request's writing and its time."""
_BATCH_ROWS = 1_024
"""Counted at once while sends are due: about a millisecond of the loop's time."""


async def run_bench(
    options: BenchOptions,
    observer: Observer | None = None,
    *,
    clock: Clock | None = None,
    stop: asyncio.Event | None = None,
) -> RunResult:
    """Offer the load to the target and say what came back.

    ``observer`` is called every half second; ``stop`` ends the sending early, and what is under
    way still ends. Raises ``ConfigError`` for options that cannot work and ``Unavailable`` when
    the target cannot be asked for its models.
    """
    check_options(options)
    clock = clock or SystemClock()
    started_at = datetime.fromtimestamp(WallClock().now(), UTC).isoformat(timespec="seconds")
    target, workload = options.target, options.workload
    address = parse_base_url(target.base_url)
    model = target.model or await first_model(target, address)
    recording = RecorderOptions(
        slice_s=options.slice_s, warmup_s=options.warmup_s, batch_rows=_BATCH_ROWS
    )
    books = Books(Recorder(recording), Health(clock), Live())
    async with _pool(options, address, clock) as pool:
        writer = PayloadWriter(target, address, model)
        desk = Desk(options, pool, writer, books, clock)
        loop = _loop(options, desk)
        async with _watched(desk, books, observer), _stoppable(loop, stop):
            with _no_collection():
                books.health.start()
                desk.origin = clock.now() + _LEAD_S
                await loop.run()
        generator = books.health.verdict(options.bounds, pool.statistics().opened)
    run = Run(
        source="bench",
        target=address.url,
        seed=options.seed,
        workload=describe_workload(workload),
        fingerprint=workload.fingerprint,
        options=describe_options(options, model),
        started_at=started_at,
        machine=describe_machine(),
        commit=await asyncio.to_thread(describe_commit),
        versions=describe_versions("httptools", "uvloop", "numpy", "msgspec"),
    )
    cut_short = stop is not None and stop.is_set()
    return books.recorder.result(
        run, duration_s=None if cut_short else workload.duration_s, generator=generator
    )


def check_options(options: BenchOptions) -> None:
    """``ConfigError`` for what cannot work, before anything is sent."""
    target, bounds = options.target, options.bounds
    for name, value in (
        ("the time-out", target.timeout_s),
        ("the slice", options.slice_s),
        ("the bound of connections", bounds.max_connections),
        ("the bound of requests in flight", bounds.max_in_flight),
        ("the number of processes", bounds.processes),
    ):
        if not 0 < value < float("inf"):
            raise ConfigError(f"{name} is {value}; give a number above 0")
    if not 0 <= target.deadline_grace_s < float("inf"):
        raise ConfigError("the grace after a deadline is negative; give seconds, 0 or more")
    duration_s = options.workload.duration_s
    if options.warmup_s < 0 or (duration_s is not None and options.warmup_s >= duration_s):
        raise ConfigError(
            f"a warm-up of {options.warmup_s:g} s leaves nothing of the load to count; "
            "give fewer seconds than the load lasts"
        )


def _loop(options: BenchOptions, desk: Desk) -> Loop:
    workload = options.workload
    requests = workload.requests(options.seed)
    if workload.closed_loop is None:
        return OpenLoop(desk, requests)
    thinking_s = workload.closed_loop.thinking_s(options.seed, workload.folder)
    return ClosedLoop(desk, requests, workload.closed_loop, thinking_s)


@asynccontextmanager
async def _pool(options: BenchOptions, address: Address, clock: Clock) -> AsyncIterator[Pool]:
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
