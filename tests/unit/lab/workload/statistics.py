"""Small statistics for tests of chance, with their critical values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

# Asymptotic Kolmogorov-Smirnov quantiles K_alpha: reject when D * sqrt(n) is above. Six seeds are
# tried in a test, so a level of 0.1 % keeps a false alarm of right code under 1 % (and seeds are
# fixed: it would be seen once, here, not on somebody's machine).
KS_CRITICAL_001 = 1.949


def ks_statistic(sample: Sequence[float], cdf: Callable[[float], float]) -> float:
    """``D * sqrt(n)`` of ``sample`` against a continuous distribution."""
    ordered = np.sort(np.asarray(sample))
    expected = np.array([cdf(value) for value in ordered])
    count = len(ordered)
    above = np.arange(1, count + 1) / count - expected
    below = expected - np.arange(count) / count
    return float(max(above.max(), below.max()) * math.sqrt(count))


def ks_two_samples(left: Sequence[float], right: Sequence[float]) -> float:
    """``D * sqrt(n m / (n + m))`` between two samples."""
    first, second = np.sort(np.asarray(left)), np.sort(np.asarray(right))
    values = np.concatenate((first, second))
    share = np.searchsorted(first, values, side="right") / len(first)
    other = np.searchsorted(second, values, side="right") / len(second)
    size = len(first) * len(second) / (len(first) + len(second))
    return float(np.abs(share - other).max() * math.sqrt(size))


def variation(gaps: Sequence[float]) -> float:
    """Standard deviation over mean."""
    values = np.asarray(gaps)
    return float(values.std(ddof=1) / values.mean())
