"""How alike the hits of one search are: the first sign of fragile retrieval (F0.2).

The figure is the standard deviation of the pairwise cosines among the first five hits. What it is
normally differs between embedders by more than between good and bad searches, so it is read as a
percentile among the corpus's own neighbourhoods: those of up to 256 chunks chosen by a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from forebay.retrieval.segments import Floats32, Ids
from forebay.retrieval.vector_view import VectorView

FIRST = 5
PERCENTILES = (0.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 100.0)
LEAST_CHUNKS = 64
"""With fewer, a neighbourhood is half the corpus."""

Neighbours = Callable[[Floats32, int], Ids]
"""Ids of the nearest chunks of one vector, best first."""


class SpreadCalibration(msgspec.Struct, frozen=True):
    """Spreads of the corpus's own neighbourhoods: ``spreads[i]`` is the ``percentiles[i]``-th.

    It holds for one embedder's ``fingerprint`` and a corpus of about ``rows`` vectors.
    """

    fingerprint: str
    rows: int
    percentiles: tuple[float, ...]
    spreads: tuple[float, ...]

    def at(self, percentile: float) -> float:
        """The spread at ``percentile`` (0..100), linear in between."""
        return float(np.interp(percentile, self.percentiles, self.spreads))

    def holds(self, view: VectorView) -> bool:
        """Whether ``view`` is of the same embedder and not twice as large or half."""
        same = self.fingerprint == view.fingerprint
        return same and self.rows / 2 <= view.rows <= self.rows * 2


def spread_of(vectors: Floats32) -> float | None:
    """Standard deviation of the pairwise cosines of unit vectors; None for fewer than three."""
    count = len(vectors)
    if count < 3:
        return None
    cosines = vectors @ vectors.T
    return float(cosines[np.triu_indices(count, 1)].std())


def hit_spread(view: VectorView, chunk_ids: Sequence[int]) -> float | None:
    """The spread of the first five of ``chunk_ids``; None unless each of them has a vector.

    The spread of those that happen to have one already would be judged by bounds made for all.
    """
    if not view.rows or not len(chunk_ids):
        return None
    vectors, known = view.stored(np.asarray(chunk_ids[:FIRST], np.int64))
    return spread_of(vectors) if known.all() else None


def calibrate_spread(view: VectorView, neighbours: Neighbours) -> SpreadCalibration | None:
    """Percentiles over the neighbourhoods of chosen chunks; None for a corpus of too few.

    Blocking: as many searches as there are chosen chunks. Deterministic for one view.
    """
    if view.rows < LEAST_CHUNKS or not view.fingerprint:
        return None
    spreads = []
    ids, vectors = view.background_rows
    for chunk_id, vector in zip(ids.tolist(), vectors, strict=True):
        near = [each for each in neighbours(vector[None], FIRST + 1).tolist() if each != chunk_id]
        found = hit_spread(view, near)
        if found is not None:
            spreads.append(found)
    if not spreads:
        return None
    values = np.percentile(spreads, PERCENTILES)
    rounded = tuple(round(float(value), 6) for value in values)
    assert all(low <= high for low, high in pairwise(rounded))
    return SpreadCalibration(view.fingerprint, view.rows, PERCENTILES, rounded)
