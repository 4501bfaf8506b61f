"""Replay of recorded requests: a window of a trace, slower or faster, thinner or denser, looped.

Rows flow one by one; memory is bounded by the window in which they are sorted and by the copies
that wait for their time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.arrivals import Count, PositiveSeconds, Seconds
from forebay.lab.workload.trace_formats import TraceFormat, TraceRow, detect_format, read_rows

Scale = Annotated[float, msgspec.Meta(gt=0, le=1e4)]
# Ids of traces are far below; every copy and every pass of a loop has a range of its own.
_COPY_BITS = 40
_PASS_BITS = 56
_RANDOM_BATCH = 1024


class TraceArrivals(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="trace", tag_field="kind",
    kw_only=True,
):  # fmt: skip
    """Requests as they were recorded.

    ``start_s`` and ``window_s`` cut a window out of the trace, in its own seconds.
    ``time_scale`` is how many seconds of the run one second of the trace takes (0.5: twice as
    fast, every gap halved). ``rate_scale`` changes how many requests there are and leaves the
    course of time alone: below 1 each row is kept with that probability; above 1 independent
    copies are laid over it, each up to ``spread_s`` seconds of the trace later and with prefixes
    of its own, so that copies neither arrive in step nor find each other in a cache. ``use``
    takes the whole request from the trace or only its time. ``loop`` begins again at the end, with
    prefixes of its own in every pass, or caches would hold all of it.
    Rows may be out of order within ``sort_rows`` rows. Rows of failed requests (no output) are
    left out unless ``keep_failed``.
    """

    file: Annotated[str, msgspec.Meta(min_length=1)]
    format: TraceFormat | Literal["auto"] = "auto"
    start_s: Seconds = 0.0
    window_s: PositiveSeconds | None = None
    time_scale: Scale = 1.0
    rate_scale: Scale = 1.0
    spread_s: PositiveSeconds = 1.0
    use: Literal["all", "times"] = "all"
    loop: bool = False
    sort_rows: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4096
    keep_failed: bool = False
    duration_s: PositiveSeconds | None = None
    count: Count | None = None


def check_trace(spec: TraceArrivals, folder: Path) -> None:
    """Raise ``ConfigError`` for a trace that cannot even begin, before a run has begun."""
    path = folder / spec.file
    form = detect_format(path) if spec.format == "auto" else spec.format
    if next(read_rows(path, form), None) is None:
        raise ConfigError(f"{path.name} holds no request.")


def replay(spec: TraceArrivals, folder: Path, rng: np.random.Generator) -> Iterator[TraceRow]:
    """Rows with their times in seconds from the run's start, ascending, without end if looped."""
    path = folder / spec.file
    form = detect_format(path) if spec.format == "auto" else spec.format
    rows = _passes(spec, path, form)
    if spec.rate_scale != 1:
        rows = _scaled(rows, spec.rate_scale, spec.spread_s, rng)
    limit_s = math.inf if spec.duration_s is None else spec.duration_s
    for row in rows:
        at_s = row.at_s * spec.time_scale
        if at_s >= limit_s:
            return
        yield row if at_s == row.at_s else _at(row, at_s)


def _passes(spec: TraceArrivals, path: Path, form: TraceFormat) -> Iterator[TraceRow]:
    """The window once, or again and again, each pass after the one before."""
    offset_s = 0.0
    for world in itertools.count(step=1 << _PASS_BITS):
        rows = in_order(read_rows(path, form), spec.sort_rows, path)
        if not spec.keep_failed:
            rows = (row for row in rows if row.output_tokens > 0)
        last_s, passed = 0.0, 0
        for row in _window(rows, spec):
            last_s, passed = row.at_s, passed + 1
            yield _at(row, row.at_s + offset_s, world)
        if not passed:
            raise ConfigError(
                f"{path.name} has no request in the wanted window; check start_s and window_s."
            )
        if not spec.loop:
            return
        # Without a window, the pause between two passes is an average gap.
        offset_s += spec.window_s or (last_s * passed / max(1, passed - 1) or 1.0)


def _window(rows: Iterable[TraceRow], spec: TraceArrivals) -> Iterator[TraceRow]:
    first_s: float | None = None
    end_s = math.inf if spec.window_s is None else spec.start_s + spec.window_s
    for row in rows:
        first_s = row.at_s if first_s is None else first_s
        at_s = row.at_s - first_s
        if at_s >= end_s:
            return
        if at_s >= spec.start_s:
            yield _at(row, at_s - spec.start_s)


def in_order(rows: Iterable[TraceRow], sort_rows: int, path: Path) -> Iterator[TraceRow]:
    """Rows by time, sorted within ``sort_rows``; a row later than that is a ``ConfigError``."""
    waiting: list[tuple[float, int, TraceRow]] = []
    given_s = -math.inf
    for number, row in enumerate(rows, start=1):
        if row.at_s < given_s:
            raise ConfigError(
                f"{path.name}: request {number:,} is {given_s - row.at_s:g} s older than one more "
                f"than {sort_rows:,} rows before it; sort the file by time or raise sort_rows."
            )
        if len(waiting) < sort_rows:
            heapq.heappush(waiting, (row.at_s, number, row))
            continue
        given_s, _, first = heapq.heappushpop(waiting, (row.at_s, number, row))
        yield first
    while waiting:
        yield heapq.heappop(waiting)[2]


def _scaled(
    rows: Iterable[TraceRow], scale: float, spread_s: float, rng: np.random.Generator
) -> Iterator[TraceRow]:
    """Thin or lay copies over; copies wait in a heap until their time has come."""
    chance = _uniforms(rng)
    whole, part = int(scale), scale % 1
    waiting: list[tuple[float, int, TraceRow]] = []
    made = 0
    for row in rows:
        while waiting and waiting[0][0] <= row.at_s:
            yield heapq.heappop(waiting)[2]
        copies = whole + (next(chance) < part)
        for copy in range(1, copies):
            later = _at(row, row.at_s + next(chance) * spread_s, copy << _COPY_BITS)
            made += 1
            heapq.heappush(waiting, (later.at_s, made, later))
        if copies:
            yield row
    while waiting:
        yield heapq.heappop(waiting)[2]


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(_RANDOM_BATCH).tolist()


def _at(row: TraceRow, at_s: float, world: int = 0) -> TraceRow:
    """The row at another time; in another ``world`` its prefixes meet only those of that world."""
    prefix = tuple(number + world for number in row.prefix) if world else row.prefix
    return TraceRow(
        at_s, row.input_tokens, row.output_tokens, row.kind, row.tenant, row.priority,
        row.deadline_s, prefix, row.block_tokens,
    )  # fmt: skip
