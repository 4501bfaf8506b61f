"""Histograms in HdrHistogram's layout, counted in bulk with numpy.

A value is a whole number of microseconds. The layout (G. Tene, hdrhistogram.org) keeps a given
number of significant digits over the whole range: buckets double in width with each power of
two. ``hdr_text`` writes and reads the standard texts of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from forebay.lab.measure.hdr_text import read_counts, write_counts
from forebay.lab.measure.result import Quantiles

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HIGHEST_US = 86_400_000_000
"""A day; longer waits count as a day."""
QUANTILES = (0.5, 0.9, 0.99, 0.999)


class Layout:
    """Buckets for ``digits`` significant digits of 1 us .. ``HIGHEST_US``."""

    def __init__(self, digits: int) -> None:
        self.digits = digits
        # Twice 10**digits steps of one unit before buckets begin to double.
        self._half_bits = (2 * 10**digits - 1).bit_length() - 1
        doublings = HIGHEST_US.bit_length() - self._half_bits - 1
        self.size = (doublings + 2) << self._half_bits
        index = np.arange(self.size, dtype=np.int64)
        half = 1 << self._half_bits
        bucket = np.maximum((index >> self._half_bits) - 1, 0)
        sub = np.where(index < half, index, (index & (half - 1)) + half)
        self.lowest: Ints = sub << bucket
        self.highest: Ints = self.lowest + (np.int64(1) << bucket) - 1

    def index(self, seconds: Floats) -> Ints:
        """The bucket of each duration; negative ones count as zero."""
        micros = np.clip(np.rint(seconds * 1e6), 0, HIGHEST_US).astype(np.int64)
        bits = self._half_bits + 1
        # frexp's exponent is the bit length, exact below 2**53.
        length = np.frexp((micros | ((1 << bits) - 1)).astype(np.float64))[1].astype(np.int64)
        bucket = length - bits
        half = 1 << self._half_bits
        index: Ints = ((bucket + 1) << self._half_bits) + (micros >> bucket) - half
        return index

    def encode(self, index: Ints, counts: Ints) -> str:
        """The standard text (V2, compressed, base64); empty when nothing was counted."""
        if not len(index):
            return ""
        return write_counts(index.tolist(), counts.tolist(), self.digits, HIGHEST_US)


@functools.cache
def layout(digits: int) -> Layout:
    """The layout for that many significant digits (2 or 3 here)."""
    return Layout(digits)


def decode(text: str) -> tuple[Floats, Ints]:
    """Seconds (upper edge of each bucket, ascending) and counts of one histogram text."""
    if not text:
        return np.empty(0), np.empty(0, np.int64)
    digits, index, counts = read_counts(text)
    highest = layout(digits).highest
    return highest[np.array(index, np.int64)] / 1e6, np.array(counts, np.int64)


def merge(texts: Sequence[str]) -> tuple[Floats, Ints]:
    """Sum of several histograms, in ``decode``'s shape."""
    parts = [decode(text) for text in texts if text]
    if not parts:
        return np.empty(0), np.empty(0, np.int64)
    values, where = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, where, np.concatenate([part[1] for part in parts]))
    return values, counts


def quantile(values: Floats, counts: Ints, share: float) -> float:
    """The value that ``share`` of the counted ones do not exceed; 0 when there are none."""
    if not len(values):
        return 0.0
    cumulated = np.cumsum(counts)
    return float(values[np.searchsorted(cumulated, ranks(cumulated[-1], share))])


def ranks(totals: Floats | Ints, share: float) -> Floats:
    """The rank, from 1, of the ``share`` quantile among so many.

    HdrHistogram's rule: rounded up, for the nearest rank would leave too many above it; from just
    below the share, so that 0.9 of 10 is 9 however it is rounded.
    """
    found: Floats = np.maximum(1.0, np.ceil(np.nextafter(share, 0.0) * np.asarray(totals, float)))
    return found


def summarise(index: Ints, counts: Ints, *, total_s: float, max_s: float) -> Quantiles:
    """Quantiles of three-digit buckets; mean and maximum come exact from the caller."""
    if not len(index):
        return Quantiles()
    grid = layout(3)
    values = np.minimum(grid.highest[index] / 1e6, max_s)
    p50, p90, p99, p999 = (quantile(values, counts, share) for share in QUANTILES)
    count = int(counts.sum())
    return Quantiles(
        count=count,
        mean_s=total_s / count,
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        p999_s=p999,
        max_s=max_s,
        tail_ratio=p99 / p50 if p50 > 0 else 0.0,
        histogram=grid.encode(index, counts),
    )


class SparseCounts:
    """Counts by 64-bit key: batches are added cheaply, merged when enough have gathered."""

    def __init__(self, merge_at: int = 1 << 18) -> None:
        self._merge_at = merge_at
        self._keys: Ints = np.empty(0, np.int64)
        self._counts: Ints = np.empty(0, np.int64)
        self._pending: list[tuple[Ints, Ints]] = []
        self._gathered = 0

    def add(self, keys: Ints, weights: Ints | None = None) -> None:
        """Count each key once, or ``weights`` times."""
        if not len(keys):
            return
        if weights is None:
            unique, counts = np.unique(keys, return_counts=True)
            counts = counts.astype(np.int64)
        else:
            unique, counts = _sum_by_key(keys, weights)
        self._pending.append((unique, counts))
        self._gathered += len(unique)
        # In proportion to what is held, so that merging costs a constant share.
        if self._gathered > max(self._merge_at, len(self._keys)):
            self._merge()

    def items(self) -> tuple[Ints, Ints]:
        """Keys, ascending, and their counts."""
        self._merge()
        return self._keys, self._counts

    def within(self, low: int, high: int) -> tuple[Ints, Ints]:
        """Keys in ``low <= key < high``, less ``low``, and their counts."""
        keys, counts = self.items()
        start, stop = np.searchsorted(keys, (low, high))
        return keys[start:stop] - low, counts[start:stop]

    def map_keys(self, change: Callable[[Ints], Ints]) -> None:
        """Rename every key; counts of keys that become equal are added."""
        keys, counts = self.items()
        self._keys, self._counts = _sum_by_key(change(keys), counts)

    def _merge(self) -> None:
        if not self._pending:
            return
        keys = np.concatenate([self._keys, *(part[0] for part in self._pending)])
        counts = np.concatenate([self._counts, *(part[1] for part in self._pending)])
        self._pending.clear()
        self._gathered = 0
        self._keys, self._counts = _sum_by_key(keys, counts)


def _sum_by_key(keys: Ints, counts: Ints) -> tuple[Ints, Ints]:
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.add.reduceat(counts[order], starts)
