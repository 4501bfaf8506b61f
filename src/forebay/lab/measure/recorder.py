"""Takes one finished request after the other and says what the run was like.

Recording costs about a microsecond: numbers go into flat arrays and are counted in bulk, some
ten thousand at a time. Memory does not grow with the number of requests.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.batch import ABSENT, COLUMNS, STATUS_IDS, Batch, Finished
from forebay.lab.measure.histogram import Ints
from forebay.lab.measure.result import Generator, Run, RunResult
from forebay.lab.measure.slices import MAX_KINDS, SliceTally
from forebay.lab.measure.tally import MAX_SCOPES, Tally

OTHER = "(other)"
"""Kinds and tenants beyond the bound, together."""
_GAPS = 1 << 20
_MAX_NAMES = 1_000
_TIER = re.compile(r"\s*([^=,\s]+)\s*=\s*([^,\s]+)")


class RecorderOptions(msgspec.Struct, frozen=True):
    """How a run is sliced, and what of it counts."""

    slice_s: float = 1.0
    max_slices: int = 600
    warmup_s: float = 0.0
    """Requests meant to start before this are in the timeline, not in the figures."""
    batch_rows: int = 16_384
    """Requests counted at once: more is cheaper, fewer holds up a live generator less."""


def check_warmup(warmup_s: float, duration_s: float | None) -> None:
    """``ConfigError`` for a warm-up that outlasts the load, when its duration is known."""
    if not 0 <= warmup_s < (math.inf if duration_s is None else duration_s):
        raise ConfigError(
            f"a warm-up of {warmup_s:g} s leaves nothing of the load to count; "
            "give fewer seconds than the load lasts"
        )


class Recorder:
    """``record`` every request once, when it ended; then ask for the ``result``."""

    def __init__(self, options: RecorderOptions | None = None) -> None:
        self._options = options or RecorderOptions()
        self._kinds: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._batch = self._options.batch_rows * COLUMNS
        self._rows = array("d")
        self._gaps = array("d")
        self._tally = Tally()
        self._slices = SliceTally(self._options.slice_s, self._options.max_slices)
        self._codes: Counter[str] = Counter()
        self._cache: Counter[str] = Counter()
        self._rungs: Counter[str] = Counter()
        self._messages: dict[str, str] = {}
        self._last_at = self._last_finished = 0.0

    def record(self, finished: Finished) -> None:
        """Count one request; its order among others does not matter."""
        kind = self._kinds.get(finished.kind)
        if kind is None:
            kind = _numbered(self._kinds, finished.kind, MAX_KINDS)
        tenant = self._tenants.get(finished.tenant)
        if tenant is None:
            tenant = _numbered(self._tenants, finished.tenant, MAX_SCOPES - MAX_KINDS)
        first, last, deadline = finished.first_at_s, finished.last_at_s, finished.deadline_s
        gaps = finished.gaps_s
        if gaps:
            self._gaps.extend(gaps)
        self._rows.extend(
            (
                finished.at_s,
                finished.finished_at_s,
                ABSENT if first is None else first,
                finished.finished_at_s if last is None else last,
                math.inf if deadline is None else deadline,
                kind,
                tenant,
                STATUS_IDS[finished.status],
                finished.input_tokens,
                finished.output_tokens,
                finished.mean_gap_s,
                finished.gap_count,
                len(gaps),
            )
        )
        if finished.code:
            self._codes[str(finished.code)] += 1
        if finished.cache:
            _count(self._cache, finished.cache)
        if finished.rung:
            _count(self._rungs, finished.rung)
        if len(self._rows) >= self._batch or len(self._gaps) >= _GAPS:
            self._flush()

    def note(self, status: str, message: str) -> None:
        """Keep the first message of each status."""
        self._messages.setdefault(status, message)

    def absorb(self, other: Recorder) -> None:
        """Add what another recorder with the same options has; it must not be used afterwards."""
        self._flush()
        other._flush()
        kinds = _translated(other._kinds, self._kinds, MAX_KINDS)
        tenants = _translated(other._tenants, self._tenants, MAX_SCOPES - MAX_KINDS)
        self._tally.absorb(other._tally, np.concatenate([kinds, MAX_KINDS + tenants]))
        self._slices.absorb(other._slices, kinds)
        self._codes += other._codes
        self._cache += other._cache
        self._rungs += other._rungs
        self._messages = other._messages | self._messages
        self._last_at = max(self._last_at, other._last_at)
        self._last_finished = max(self._last_finished, other._last_finished)

    def result(
        self, run: Run, *, duration_s: float | None = None, generator: Generator | None = None
    ) -> RunResult:
        """What came out; rates are over ``duration_s`` of schedule (else to the last start)."""
        self._flush()
        until_s = self._last_at if duration_s is None else duration_s
        span = max(0.0, until_s - self._options.warmup_s)
        total = self._tally.figures(self._kinds.values(), span)
        by_kind = {
            name: self._tally.figures([number], span) for name, number in self._kinds.items()
        }
        by_tenant = {
            name: self._tally.figures([MAX_KINDS + number], span)
            for name, number in self._tenants.items()
        }
        return RunResult(
            run=run,
            duration_s=span,
            warmup_s=self._options.warmup_s,
            elapsed_s=self._last_finished,
            offered_per_s=(total.sent + total.not_sent) / span if span > 0 else 0.0,
            sent_per_s=total.sent / span if span > 0 else 0.0,
            total=total,
            by_kind=by_kind,
            by_tenant=by_tenant if set(by_tenant) != {""} else {},
            codes=dict(self._codes),
            cache=_tiers(self._cache),
            messages=dict(self._messages),
            rungs=dict(self._rungs),
            timeline=self._slices.timeline(list(self._kinds)),
            generator=generator,
        )

    def _flush(self) -> None:
        if not self._rows:
            return
        batch = Batch.of(self._rows, self._gaps)
        self._last_at = max(self._last_at, float(batch.at.max()))
        self._last_finished = max(self._last_finished, float(batch.finished.max()))
        self._slices.add(batch)
        counted = batch.since(self._options.warmup_s)
        self._tally.add(counted, counted.kind, MAX_KINDS + counted.tenant)
        self._rows, self._gaps = array("d"), array("d")


def _numbered(known: dict[str, int], name: str, bound: int) -> int:
    if len(known) >= bound - 1:
        name = OTHER
    return known.setdefault(name, len(known))


def _translated(theirs: dict[str, int], ours: dict[str, int], bound: int) -> Ints:
    """Our number for each of their numbers, of names we may not have met yet."""
    numbers = np.zeros(bound, np.int64)
    for name, number in theirs.items():
        known = ours.get(name)
        numbers[number] = _numbered(ours, name, bound) if known is None else known
    return numbers


def _count(counter: Counter[str], value: str) -> None:
    if value in counter or len(counter) < _MAX_NAMES:
        counter[value] += 1


def _tiers(headers: Counter[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for header, count in headers.items():
        for tier, outcome in _TIER.findall(header):
            results = found.setdefault(tier, {})
            results[outcome] = results.get(outcome, 0) + count
    return found
