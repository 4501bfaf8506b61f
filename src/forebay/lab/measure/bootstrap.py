"""Moving-block bootstrap over time slices.

Latencies of a loaded server are autocorrelated: a slow second follows a slow second. Drawing
requests, or single slices, as if they were independent would understate the noise. Blocks of
consecutive slices (circular: Politis and Romano, 1992) keep what hangs together; their length
comes from the series itself (Politis and White, 2004, as corrected by Patton, Politis and White,
2009).
"""

from __future__ import annotations

import math

import numpy as np

from forebay.lab.measure.histogram import Floats, Ints, ranks

_LAGS_QUIET = 5
"""So many insignificant autocorrelations in a row end the significant ones."""


def block_length(series: Floats) -> float:
    """The best block length for the mean of ``series``, in slices; 1 for white noise.

    Bounded by a third of the series, and by 3 times its root.
    """
    n = len(series)
    if n < 4:
        return 1.0
    centred = series - series.mean()
    variance = float(centred @ centred) / n
    if variance <= 0:
        return 1.0
    longest = min(n - 1, math.ceil(math.sqrt(n)) + _LAGS_QUIET)
    covariance = np.array([centred[: n - lag] @ centred[lag:] / n for lag in range(longest + 1)])
    significant = 2 * math.sqrt(math.log10(n) / n)
    quiet = np.abs(covariance[1:] / variance) < significant
    last = _last_significant(quiet)
    window = min(2 * last, longest)
    if window == 0:
        return 1.0
    lags = np.arange(1, window + 1)
    # The flat-top window of Politis and Romano (1995).
    weights = np.clip(2 * (1 - lags / window), 0, 1)
    weighted = weights * covariance[1 : window + 1]
    spread = 2 * float((lags * weighted).sum())
    level = float(variance + 2 * weighted.sum())
    best = (2 * spread**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3) if level else 1.0
    return float(min(max(best, 1.0), n / 3, 3 * math.sqrt(n)))


def resampled_weights(slices: int, length: int, resamples: int, rng: np.random.Generator) -> Ints:
    """How often each slice occurs in each resample: ``resamples`` rows that sum to ``slices``."""
    blocks = math.ceil(slices / length)
    starts = rng.integers(0, slices, (resamples, blocks))
    places = (starts[:, :, None] + np.arange(length)) % slices
    places = places.reshape(resamples, -1)[:, :slices]
    flat = places + np.arange(resamples)[:, None] * slices
    counted = np.bincount(flat.ravel(), minlength=resamples * slices)
    weights: Ints = counted.reshape(resamples, slices).astype(np.int64)
    return weights


def weighted_quantiles(values: Floats, counts: Floats, share: float) -> Floats:
    """The ``share`` quantile of each row of ``counts`` over ascending ``values``; nan if empty."""
    cumulated = np.cumsum(counts, axis=1)
    total = cumulated[:, -1]
    places = (cumulated < ranks(total, share)[:, None]).sum(axis=1)
    found: Floats = values[np.minimum(places, len(values) - 1)]
    return np.where(total > 0, found, np.nan)


def _last_significant(quiet: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int:
    """The last lag before the first run of quiet ones; 0 when the first is quiet already."""
    run = 0
    for lag, is_quiet in enumerate(quiet.tolist(), start=1):
        run = run + 1 if is_quiet else 0
        if run == _LAGS_QUIET:
            return lag - _LAGS_QUIET
    return len(quiet)
