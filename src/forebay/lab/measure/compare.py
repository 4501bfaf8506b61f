"""Says what changed between two runs beyond noise.

Each run's time slices are resampled in blocks (``bootstrap``); a figure's spread over the
resamples is its noise. A change counts when its interval leaves zero out. All intervals together
hold at the given confidence, so that two runs of the same thing seldom seem to differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.bootstrap import block_length, resampled_weights, weighted_quantiles
from forebay.lab.measure.compare_text import (
    differing_setups,
    differing_workloads,
    tell_changes,
    tell_warnings,
)
from forebay.lab.measure.comparison import Change, Comparison, Direction
from forebay.lab.measure.histogram import Floats, Ints
from forebay.lab.measure.result import RunResult
from forebay.lab.measure.series import ALL, TIMES, Series, read_series

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
RATES = ("goodput_per_s", "ok_per_s")
SHARE = "goodput_share"
_NORMAL = NormalDist()
_LEAST_SLICES = 8
_LEAST_BLOCKS = 4
_NOMINAL = 0.4
"""Share of the allowed error that the intervals take nominally: of long memories few blocks show
too little (runs of an autoregressive load, simulated: up to 2.5 times the nominal error)."""
_RESOLUTION = 0.01
"""Slices hold times at two digits: smaller changes are rounding."""
_LEAST_TIMES = {"p50": 10, "p90": 30, "p99": 200}
"""Answers below which a percentile is a handful of requests and its spread says little."""

Samples = dict[str, Floats]


def compare(
    before: RunResult,
    after: RunResult,
    *,
    force: bool = False,
    seed: int = 1,
    resamples: int = 1_000,
    confidence: float = 0.95,
) -> Comparison:
    """What changed from ``before`` to ``after``; ``ConfigError`` for different workloads.

    ``force`` compares them all the same and says what differs.
    """
    differing = differing_workloads(before, after)
    if differing and not force:
        raise ConfigError(
            "the two results are of different workloads: "
            + "; ".join(differing)
            + ". Run both with the same workload, or force the comparison"
        )
    series = read_series(before), read_series(after)
    rng = np.random.default_rng(seed)
    lengths = _length(series[0]), _length(series[1])
    slices = len(series[0][ALL].good), len(series[1][ALL].good)
    blocks = min(count // length for count, length in zip(slices, lengths, strict=True))
    enough = min(slices) >= _LEAST_SLICES and blocks >= _LEAST_BLOCKS
    weights = [
        resampled_weights(count, length, resamples if enough else 1, rng)
        for count, length in zip(slices, lengths, strict=True)
    ]
    compared = [
        one
        for kind in (ALL, *sorted(set(series[0]) & set(series[1]) - {ALL}))
        for one in _compared(kind, (series[0][kind], series[1][kind]), weights)
    ]
    reach = _reach(compared, blocks - 1, confidence) if enough else math.inf
    changes = [_change(one, reach) for one in compared]
    return Comparison(
        changes=tuple(changes),
        sentences=tuple(tell_changes(changes)),
        differences=(*differing, *differing_setups(before, after)),
        warnings=tuple(tell_warnings(before, after, enough)),
        confidence=confidence,
        resamples=resamples,
        block_slices=lengths,
        slices=slices,
    )


def _length(series: dict[str, Series]) -> int:
    """The blocks' length in slices: what the run's own memory asks for."""
    whole = series[ALL]
    n = len(whole.good)
    if n < _LEAST_SLICES:
        return 1
    longest = max(block_length(whole.mean_total()), block_length(whole.good_share()))
    # The root is what theory asks of any series with some memory.
    root = math.ceil(math.cbrt(n))
    return min(max(math.ceil(longest), root), max(1, n // _LEAST_BLOCKS))


def _point(series: Series) -> Samples:
    return _samples(series, np.ones((1, len(series.good)), np.int64))


def _samples(series: Series, weights: Ints) -> Samples:
    """Every figure, for each row of slice weights."""
    drawn = weights.astype(np.float64)
    seconds = max(series.width_s * len(series.good), 1e-9)
    good, meant = drawn @ series.good, drawn @ series.meant
    found: Samples = {
        "goodput_per_s": good / seconds,
        "ok_per_s": drawn @ series.ok / seconds,
        SHARE: np.divide(good, meant, out=np.full(len(good), np.nan), where=meant > 0),
    }
    for time in TIMES:
        counts = drawn @ series.counts[time]
        for name, share in QUANTILES.items():
            found[f"{time}_{name}"] = weighted_quantiles(series.values[time], counts, share)
    return found


class _Compared(msgspec.Struct, frozen=True):
    """One figure before and after, and its change in each pair of resamples.

    Changes of times are logarithms of ratios, of all else differences.
    """

    kind: str
    figure: str
    before: float
    after: float
    noise: Floats
    spread: float
    """Standard deviation of ``noise``; infinite where the runs say too little."""


def _compared(kind: str, pair: tuple[Series, Series], weights: list[Ints]) -> Iterator[_Compared]:
    points = [_point(one) for one in pair]
    drawn = [_samples(one, rows) for one, rows in zip(pair, weights, strict=True)]
    for figure in points[0]:
        time, _, quantile = figure.partition("_")
        if time in TIMES:
            before, after = (np.log(np.maximum(one[figure], 1e-9)) for one in drawn)
            answered = min(float(one.counts[time].sum()) for one in pair)
            enough = answered >= _LEAST_TIMES[quantile]
        else:
            before, after = (one[figure] for one in drawn)
            enough = True
        noise = after - before
        known = noise[np.isfinite(noise)]
        enough = enough and len(known) * 2 >= len(noise)
        yield _Compared(
            kind=kind,
            figure=figure,
            before=float(points[0][figure][0]),
            after=float(points[1][figure][0]),
            noise=noise,
            spread=float(known.std()) if enough else math.inf,
        )


def _reach(compared: list[_Compared], freedom: int, confidence: float) -> float:
    """How many standard deviations wide every interval is, so that all hold together.

    The quantile of the largest deviation of any figure over the resamples (Westfall and Young,
    1993): figures that move together need less than as many independent ones would. Widened as
    Student's quantile is for as few blocks as there are.
    """
    largest = np.zeros(len(compared[0].noise))
    for one in compared:
        if 0 < one.spread < math.inf:
            deviation = np.abs(one.noise - np.nanmean(one.noise)) / one.spread
            largest = np.fmax(largest, deviation)
    error = (1 - confidence) * _NOMINAL
    z = max(float(np.quantile(largest, 1 - error)), _NORMAL.inv_cdf(1 - error / 2))
    # Cornish and Fisher's expansion of Student's quantile from the normal one.
    n = max(freedom, 1)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def _change(one: _Compared, reach: float) -> Change:
    before, after, figure = one.before, one.after, one.figure
    # An infinite reach stays infinite where nothing varied.
    margin = reach * one.spread if one.spread else (0.0 if math.isfinite(reach) else math.inf)
    by = (0.0, -margin, margin)
    if figure in RATES:
        unit = "1/s"
        change, low, high = (
            (after - before + step) / before if before > 0 else math.nan for step in by
        )
    elif figure == SHARE:
        unit = "share"
        change, low, high = (after - before + step for step in by)
    else:
        unit = "s"
        ratio = math.log(after / before) if before > 0 and after > 0 else math.nan
        change, low, high = (_grown(ratio + step) for step in by)
    direction = _direction(change, low, high)
    if figure in RATES and before == 0 and after > margin:
        direction = "higher"
    moved = direction in ("higher", "lower")
    return Change(
        kind=one.kind,
        figure=figure,
        unit=unit,
        before=before,
        after=after,
        change=change,
        low=low,
        high=high,
        direction=direction,
        better=(direction == "higher") == (unit != "s") if moved else None,
    )


def _direction(change: float, low: float, high: float) -> Direction:
    if not all(map(math.isfinite, (change, low, high))):
        return "unknown"
    if low > 0 and change > _RESOLUTION:
        return "higher"
    if high < 0 and change < -_RESOLUTION:
        return "lower"
    return "same"


def _grown(log_ratio: float) -> float:
    return math.expm1(log_ratio) if log_ratio < 700 else math.inf
