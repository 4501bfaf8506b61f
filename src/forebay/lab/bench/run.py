"""One bench run from options to result."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec

from forebay.kernel.clock import Clock, SystemClock, WallClock
from forebay.kernel.errors import ConfigError
from forebay.lab.bench.address import parse_base_url
from forebay.lab.bench.describe import describe_options, describe_workload
from forebay.lab.bench.models import first_model
from forebay.lab.bench.offer import new_books, offer
from forebay.lab.bench.options import BenchOptions, Observer
from forebay.lab.bench.processes import offer_in_processes
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.measure.recorder import check_warmup
from forebay.lab.measure.result import Run, RunResult

_MAX_PROCESSES = 256


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
    address = parse_base_url(options.target.base_url)
    model = options.target.model or await first_model(options.target, address)
    options = msgspec.structs.replace(
        options, target=msgspec.structs.replace(options.target, model=model)
    )
    books = new_books(options, clock)
    if options.bounds.processes == 1:
        await offer(options, books, clock, observer=observer, stop=stop)
    else:
        await offer_in_processes(options, books, clock, observer=observer, stop=stop)
    workload = options.workload
    run = Run(
        source="bench",
        target=address.url,
        seed=options.seed,
        workload=describe_workload(workload),
        fingerprint=workload.fingerprint,
        options=describe_options(options),
        started_at=started_at,
        machine=describe_machine(),
        commit=await asyncio.to_thread(describe_commit),
        versions=describe_versions("httptools", "uvloop", "numpy", "msgspec"),
    )
    cut_short = stop is not None and stop.is_set()
    return books.recorder.result(
        run,
        duration_s=None if cut_short else workload.duration_s,
        generator=books.health.verdict(options.bounds),
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
    if bounds.processes > _MAX_PROCESSES:
        raise ConfigError(f"{bounds.processes} processes are too many; {_MAX_PROCESSES} at most")
    closed_loop = options.workload.closed_loop
    if closed_loop is not None and closed_loop.users < bounds.processes:
        raise ConfigError("a closed loop needs at least as many users as processes")
    if not 0 <= target.deadline_grace_s < float("inf"):
        raise ConfigError("the grace after a deadline is negative; give seconds, 0 or more")
    check_warmup(options.warmup_s, options.workload.duration_s)
