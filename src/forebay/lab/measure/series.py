"""A result's timeline as arrays, one row a slice: what the bootstrap draws from."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from forebay.lab.measure.histogram import Floats, decode
from forebay.lab.measure.result import DISCONNECTED, RunResult, SliceFigures

ALL = ""
TIMES = ("ttft", "total")


class Series:
    """One kind's slices: counts, and for each time the counts of each value that occurs."""

    def __init__(self, slices: list[list[SliceFigures]], width_s: float) -> None:
        self.width_s = width_s
        self.good = _sums(slices, lambda one: one.good)
        self.ok = _sums(slices, lambda one: one.ok)
        self.meant = _sums(
            slices,
            lambda one: sum(one.statuses.values()) - one.statuses.get(DISCONNECTED, 0),
        )
        self.values: dict[str, Floats] = {}
        self.counts: dict[str, Floats] = {}
        for name in TIMES:
            self.values[name], self.counts[name] = _cells(
                [[getattr(one, name) for one in parts] for parts in slices]
            )

    def mean_total(self) -> Floats:
        """Mean total of each slice; of empty ones the mean of all."""
        counts = self.counts["total"]
        each = counts.sum(axis=1)
        sums = counts @ self.values["total"]
        everything = float(each.sum())
        overall = float(sums.sum()) / everything if everything else 0.0
        means: Floats = np.where(each > 0, sums / np.maximum(each, 1), overall)
        return means

    def good_share(self) -> Floats:
        """Goodput share of each slice; of empty ones that of all."""
        meant = float(self.meant.sum())
        overall = float(self.good.sum()) / meant if meant else 0.0
        shares: Floats = np.where(self.meant > 0, self.good / np.maximum(self.meant, 1), overall)
        return shares


def read_series(result: RunResult) -> dict[str, Series]:
    """Series of all requests (``ALL``) and of each kind, over the slices that count.

    Slices of the warm-up are left out, and so are those that the load does not fill.
    """
    timeline = result.timeline
    width = timeline.width_s
    first = math.ceil(result.warmup_s / width - 1e-9)
    end_s = result.warmup_s + result.duration_s
    last = math.floor(end_s / width + 1e-9)
    slices = list(timeline.slices[first:last])
    # A slice in which nothing was meant to start exists all the same.
    missing = max(0, last - first - len(slices))
    kinds = sorted({kind for one in slices for kind in one.kinds})
    empty = SliceFigures()
    series = {
        ALL: Series(
            [list(one.kinds.values()) for one in slices] + [[] for _ in range(missing)], width
        )
    }
    if len(kinds) > 1:
        for kind in kinds:
            rows = [[one.kinds.get(kind, empty)] for one in slices]
            series[kind] = Series(rows + [[] for _ in range(missing)], width)
    return series


def _sums(slices: list[list[SliceFigures]], count: Callable[[SliceFigures], int]) -> Floats:
    return np.array([sum(map(count, parts)) for parts in slices], np.float64)


def _cells(texts: list[list[str]]) -> tuple[Floats, Floats]:
    """The values that occur, and how often in each slice."""
    decoded = [(row, *decode(text)) for row, parts in enumerate(texts) for text in parts if text]
    if not decoded:
        return np.zeros(1), np.zeros((len(texts), 1))
    values, places = np.unique(np.concatenate([part[1] for part in decoded]), return_inverse=True)
    rows = np.concatenate([np.full(len(part[1]), part[0]) for part in decoded])
    counts = np.zeros((len(texts), len(values)))
    np.add.at(counts, (rows, places), np.concatenate([part[2] for part in decoded]))
    return values, counts
