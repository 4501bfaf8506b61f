"""The run over time: slices by intended start, for plots and for the block bootstrap."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from forebay.lab.measure.batch import Batch
from forebay.lab.measure.histogram import Floats, Ints, SparseCounts, layout
from forebay.lab.measure.result import (
    NOT_SENT,
    OK,
    STATUSES,
    Slice,
    SliceFigures,
    Timeline,
)

MAX_KINDS = 64
_METRICS = ("ttft", "itl", "total")
_FACTS = 16
_GOOD = 15
_LONG_AFTER = 4
"""Answers may trail the schedule by this many times its slices before slices widen for them."""


class SliceTally:
    """Per slice and kind: counts by status and two-digit histograms of TTFT, ITL and total.

    Slices double in width whenever there would be more than ``max_slices`` of them, so memory
    stays bounded for a run of any length.
    """

    def __init__(self, width_s: float, max_slices: int) -> None:
        self._width = width_s
        self._max = max_slices
        self._grid = layout(2)
        self._facts = SparseCounts()
        self._cells = SparseCounts()
        self._ended = SparseCounts()
        self._last = -1

    def add(self, batch: Batch) -> None:
        """Count each row in the slice of its intended start."""
        if not len(batch.at):
            return
        latest = max(float(batch.at.max()), float(batch.finished.max()) / _LONG_AFTER)
        while latest / self._width >= self._max:
            self._widen()
        where = self._slice(batch.at)
        self._last = max(self._last, int(where.max()))
        keys = (where * MAX_KINDS + batch.kind) * _FACTS
        good = batch.good()
        self._facts.add(np.concatenate([keys + batch.status, keys[good] + _GOOD]))
        times = ((*batch.ttft(), None), batch.itl(), (*batch.total(), None))
        for metric, (rows, seconds, weights) in enumerate(times):
            cells = (where[rows] * MAX_KINDS + batch.kind[rows]) * len(_METRICS) + metric
            self._cells.add(cells * self._grid.size + self._grid.index(seconds), weights)
        sent = batch.status != STATUSES.index(NOT_SENT)
        ended = self._slice(batch.finished[sent])
        self._last = max(self._last, int(ended.max(initial=-1)))
        self._ended.add(ended * 2)
        self._ended.add(ended * 2 + 1, batch.output_tokens[sent])

    def absorb(self, other: SliceTally, kinds: Ints) -> None:
        """Add another tally, whose kind n is our ``kinds[n]``."""
        while self._width < other._width:
            self._widen()
        while other._width < self._width:
            other._widen()
        self._last = max(self._last, other._last)
        for ours, theirs, block in (
            (self._facts, other._facts, _FACTS),
            (self._cells, other._cells, len(_METRICS) * self._grid.size),
        ):
            keys, counts = theirs.items()
            where, kind = keys // block // MAX_KINDS, keys // block % MAX_KINDS
            ours.add((where * MAX_KINDS + kinds[kind]) * block + keys % block, counts)
        self._ended.add(*other._ended.items())

    def timeline(self, kinds: Sequence[str]) -> Timeline:
        """The slices so far; ``kinds`` names the kinds by number."""
        facts = dict(zip(*(column.tolist() for column in self._facts.items()), strict=True))
        ended = dict(zip(*(column.tolist() for column in self._ended.items()), strict=True))
        return Timeline(
            width_s=self._width,
            slices=tuple(
                Slice(
                    start_s=number * self._width,
                    kinds=self._kinds_of(number, kinds, facts),
                    finished=ended.get(number * 2, 0),
                    output_tokens=ended.get(number * 2 + 1, 0),
                )
                for number in range(self._last + 1)
            ),
        )

    def _kinds_of(
        self, number: int, kinds: Sequence[str], facts: dict[int, int]
    ) -> dict[str, SliceFigures]:
        found = {}
        for kind, name in enumerate(kinds):
            key = (number * MAX_KINDS + kind) * _FACTS
            statuses = {
                status: count
                for which, status in enumerate(STATUSES)
                if (count := facts.get(key + which, 0))
            }
            if statuses:
                found[name] = SliceFigures(
                    sent=sum(statuses.values()) - statuses.get(NOT_SENT, 0),
                    ok=statuses.get(OK, 0),
                    good=facts.get(key + _GOOD, 0),
                    statuses=statuses,
                    ttft=self._histogram(number, kind, 0),
                    itl=self._histogram(number, kind, 1),
                    total=self._histogram(number, kind, 2),
                )
        return found

    def _histogram(self, number: int, kind: int, metric: int) -> str:
        size = self._grid.size
        low = ((number * MAX_KINDS + kind) * len(_METRICS) + metric) * size
        return self._grid.encode(*self._cells.within(low, low + size))

    def _slice(self, seconds: Floats) -> Ints:
        return np.maximum(seconds / self._width, 0).astype(np.int64)

    def _widen(self) -> None:
        self._width *= 2
        self._last //= 2
        for counts, block in (
            (self._facts, MAX_KINDS * _FACTS),
            (self._cells, MAX_KINDS * len(_METRICS) * self._grid.size),
            (self._ended, 2),
        ):
            counts.map_keys(functools.partial(_halve, block=block))


def _halve(keys: Ints, block: int) -> Ints:
    """Keys of slice n become those of slice n // 2; a slice has ``block`` keys."""
    return keys // block // 2 * block + keys % block
