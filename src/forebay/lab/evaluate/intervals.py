"""Intervals of means over questions, by the bootstrap: questions are drawn again with replacement.

Questions do not follow each other as a server's seconds do, so the blocks of ``measure.bootstrap``
have length one here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forebay.lab.measure.bootstrap import resampled_weights

Floats = npt.NDArray[np.float64]
RESAMPLES = 2_000
CONFIDENCE = 0.95
_AT_ONCE = 2_000_000
"""Draws held in memory at a time."""


def resampled_means(values: Floats, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """The mean of each of ``resamples`` draws of as many values."""
    count = len(values)
    rows = max(1, min(resamples, _AT_ONCE // count))
    means: list[Floats] = []
    for start in range(0, resamples, rows):
        weights = resampled_weights(count, 1, min(rows, resamples - start), rng)
        means.append(weights @ values / count)
    return np.concatenate(means)


def mean_interval(
    values: Floats, rng: np.random.Generator, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Percentiles of the resampled means; a point where all values are equal."""
    if len(values) == 0:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    rest = (1 - confidence) / 2
    low, high = np.quantile(resampled_means(values, rng), (rest, 1 - rest))
    return float(low), float(high)
