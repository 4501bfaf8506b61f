"""What a cosine means for one embedder: percentiles of unrelated pairs.

Cosines of some models are crowded (multilingual-e5-small gives unrelated sentences .71 and more),
so a threshold measured on another model means nothing. A percentile among the corpus's own
unrelated pairs does; it is stored beside the embedder's fingerprint.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.documents import Vectors

PERCENTILES = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0)

_MAX_PAIRS = 20_000
_MIN_VECTORS = 8
_SEED = 20_240_229
SAME = 0.999999
"""From here on two texts are one, which says nothing of unrelated ones."""


class CosineCalibration(msgspec.Struct, frozen=True):
    """Background similarity: ``cosines[i]`` is the ``percentiles[i]``-th percentile.

    ``fingerprint`` is the embedder's; ``pairs`` is how many random pairs it rests on.
    """

    fingerprint: str
    percentiles: tuple[float, ...]
    cosines: tuple[float, ...]
    mean: float
    deviation: float
    pairs: int

    def cosine_at(self, percentile: float) -> float:
        """The background cosine at ``percentile`` (0..100), linear in between."""
        return float(np.interp(percentile, self.percentiles, self.cosines))

    def percentile_of(self, cosine: float) -> float:
        """Share of unrelated pairs (0..100) that are less similar than ``cosine``."""
        at = bisect_left(self.cosines, cosine)
        if at == 0:
            return self.percentiles[0]
        if at == len(self.cosines):
            return self.percentiles[-1]
        (low, high), (below, above) = list(
            zip(pairwise(self.cosines), pairwise(self.percentiles), strict=True)
        )[at - 1]
        return below + (above - below) * (cosine - low) / (high - low)

    def z_score(self, cosine: float) -> float:
        """Standard deviations above the mean of unrelated pairs."""
        return (cosine - self.mean) / self.deviation


def calibrate(vectors: Vectors, *, fingerprint: str = "") -> CosineCalibration | None:
    """Percentiles of the cosine of random pairs; None for fewer than 8 vectors.

    Deterministic: the pairs depend on the number of vectors alone. Pairs of identical vectors
    (repeated passages) are left out. Takes up to 20,000 pairs, a few milliseconds per 1,000.
    """
    count = len(vectors.ids)
    if count < _MIN_VECTORS:
        return None
    rows = np.frombuffer(vectors.data, "<f4").reshape(count, vectors.dimensions)
    return calibrate_pairs(_pair_cosines(rows), fingerprint=fingerprint)


def calibrate_pairs(
    cosines: NDArray[np.float64], *, fingerprint: str = ""
) -> CosineCalibration | None:
    """The calibration of given background cosines (unrelated query-passage pairs, say)."""
    if not len(cosines):
        return None
    values = np.percentile(cosines, PERCENTILES)
    return CosineCalibration(
        fingerprint,
        PERCENTILES,
        tuple(round(float(value), 6) for value in values),
        round(float(cosines.mean()), 6),
        max(1e-6, round(float(cosines.std()), 6)),
        len(cosines),
    )


@lru_cache(maxsize=16)
def pairs_of(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random pairs of ``count`` vectors by place, the same for each count; none for fewer than 8.

    Up to 20,000 pairs.
    """
    if count < _MIN_VECTORS:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng(_SEED)
    wanted = min(_MAX_PAIRS, count * (count - 1) // 2)
    left = random.integers(0, count, wanted)
    return left, (left + random.integers(1, count, wanted)) % count


def _pair_cosines(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    left, right = pairs_of(len(rows))
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", rows[left], rows[right], dtype=np.float64)
    return cosines[cosines < SAME]
