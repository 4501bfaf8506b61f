"""When requests arrive: renewal processes run through a rate that may change over time.

A process draws points of mean density one on an operational axis; the rate's integral
``Lambda(t) = int_0^t rate`` maps time to that axis, and its exact inverse maps the points back:
``t_i = Lambda^-1(s_i)``. For exponential gaps this is the inhomogeneous Poisson process itself
(time rescaling), so that no boundary of a step or ramp loses, doubles or shifts an arrival.
Every rate here is piecewise linear, which makes ``Lambda`` piecewise quadratic and invertible in
closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.errors import ConfigError

Floats = NDArray[np.float64]
Process = Literal["constant", "poisson", "gamma"]
# Upper bounds keep infinity and slips of the keyboard out; NaN fails every bound.
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e7)]
PositiveRate = Annotated[float, msgspec.Meta(gt=0, le=1e7)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Variation = Annotated[float, msgspec.Meta(gt=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=1)]
# Small, so that drawing a batch never holds up a bench for a millisecond.
BATCH = 256


class Segment(msgspec.Struct, frozen=True):
    """A stretch of ``duration_s`` seconds over which the rate goes straight from one to another."""

    duration_s: float
    from_rate: float
    to_rate: float


class RateProfile:
    """A piecewise linear rate in requests/s, its integral and the integral's inverse.

    The last segment may last for ever (at one rate). With ``repeat`` the whole begins again.
    """

    def __init__(self, segments: Sequence[Segment], *, repeat: bool = False) -> None:
        self._lengths = np.array([segment.duration_s for segment in segments])
        self._from = np.array([segment.from_rate for segment in segments])
        change = np.array([segment.to_rate - segment.from_rate for segment in segments])
        self._slopes = np.where(np.isinf(self._lengths), 0.0, change / self._lengths)
        # An endless stretch without a rate adds nothing: inf * 0 would be NaN.
        means = self._from + change / 2
        areas = np.multiply(self._lengths, means, out=np.zeros_like(means), where=means > 0)
        self._starts = np.concatenate(([0.0], np.cumsum(self._lengths)))
        self._counts = np.concatenate(([0.0], np.cumsum(areas)))
        self._repeat = repeat

    @property
    def period_s(self) -> float:
        """Length of all segments together."""
        return float(self._starts[-1])

    @property
    def expected(self) -> float:
        """Expected arrivals of one pass over all segments."""
        return float(self._counts[-1])

    def times(self, counts: Floats) -> Floats:
        """The moments at which the integral reaches ``counts``; infinity where it never does."""
        if self._repeat:
            passes = np.floor(counts / self.expected)
            return passes * self.period_s + self._times(counts - passes * self.expected)
        return self._times(counts)

    def _times(self, counts: Floats) -> Floats:
        # Side "right" steps over stretches without arrivals, where the integral is flat.
        index = np.searchsorted(self._counts, counts, side="right") - 1
        beyond = index >= len(self._lengths)
        index = np.minimum(index, len(self._lengths) - 1)
        missing = counts - self._counts[index]
        start, slope = self._from[index], self._slopes[index]
        root = start + np.sqrt(np.maximum(start * start + 2 * slope * missing, 0.0))
        # The stable form of the quadratic's root: no difference of nearly equal numbers.
        inside = np.divide(2 * missing, root, out=np.zeros_like(root), where=root > 0)
        times = self._starts[index] + np.minimum(inside, self._lengths[index])
        return np.where(beyond, np.inf, times)


class Arrivals:
    """Arrival times in seconds, ascending; without end unless profile or duration has one.

    ``cv`` is the gaps' coefficient of variation on the operational axis (gamma shape 1/cv^2);
    it is 1 for Poisson and has no meaning for constant gaps.
    """

    def __init__(
        self,
        profile: RateProfile,
        process: Process = "poisson",
        *,
        cv: float = 1.0,
        duration_s: float = math.inf,
    ) -> None:
        self._profile = profile
        self._process = process
        self._shape = 1.0 if process == "poisson" else cv**-2
        self._duration_s = duration_s

    def batches(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Ascending times, in arrays of at most ``BATCH``."""
        for points in self._points(rng):
            times = self._profile.times(points)
            kept = int(np.searchsorted(times, min(self._duration_s, np.finfo(float).max)))
            if kept:
                yield times[:kept]
            if kept < len(times):
                return

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Ascending times, one by one."""
        for batch in self.batches(rng):
            yield from batch.tolist()

    def _points(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Points of mean density one from zero on."""
        if self._process == "constant":
            first = 0
            while True:
                yield np.arange(first, first + BATCH, dtype=np.float64)
                first += BATCH
        shape = self._shape
        # Time zero is no arrival but a moment in the life of the process: the first gap is what
        # is left of one that covers it (its length-biased length times a uniform share).
        # Otherwise bursty processes would have (cv^2 - 1) / 2 arrivals too many.
        reached = float(rng.random() * rng.gamma(shape + 1, 1 / shape))
        yield np.array([reached])
        while True:
            gaps = rng.gamma(shape, 1 / shape, BATCH)
            points = reached + np.cumsum(gaps)
            reached = float(points[-1])
            yield points


class _Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a schedule ends: by time, by number of requests, or when the caller stops."""

    duration_s: PositiveSeconds | None = None
    count: Count | None = None

    def limit_s(self) -> float:
        return math.inf if self.duration_s is None else self.duration_s


class ConstantArrivals(_Bounds, frozen=True, tag="constant", tag_field="kind", kw_only=True):
    """One request every ``1 / rate`` seconds, the first at once."""

    rate: PositiveRate

    def arrivals(self) -> Arrivals:
        """The schedule."""
        return Arrivals(_flat(self.rate), "constant", duration_s=self.limit_s())


class PoissonArrivals(_Bounds, frozen=True, tag="poisson", tag_field="kind", kw_only=True):
    """Independent users: exponential gaps with mean ``1 / rate`` seconds."""

    rate: PositiveRate

    def arrivals(self) -> Arrivals:
        """The schedule."""
        return Arrivals(_flat(self.rate), "poisson", duration_s=self.limit_s())


class GammaArrivals(_Bounds, frozen=True, tag="gamma", tag_field="kind", kw_only=True):
    """Bursts (cv > 1): gamma gaps with mean ``1 / rate``, and ``cv`` or ``shape`` = 1/cv^2."""

    rate: PositiveRate
    cv: Variation | None = None
    shape: Annotated[float, msgspec.Meta(gt=0, le=1e4)] | None = None

    def arrivals(self) -> Arrivals:
        """The schedule; raises ``ConfigError`` when both ``cv`` and ``shape`` are given."""
        if self.cv is not None and self.shape is not None:
            raise ConfigError("arrivals.cv and arrivals.shape say the same: give one of them.")
        cv = self.shape**-0.5 if self.shape is not None else self.cv or 2.0
        return Arrivals(_flat(self.rate), "gamma", cv=cv, duration_s=self.limit_s())


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``duration_s`` seconds at ``rate``, or on a straight way from ``rate`` to ``to_rate``."""

    rate: Rate
    duration_s: PositiveSeconds
    to_rate: Rate | None = None


class _Shaped(_Bounds, frozen=True, kw_only=True):
    """A rate that changes, and the process that runs through it."""

    process: Process = "poisson"
    cv: Variation | None = None

    def through(self, segments: Sequence[Segment], *, repeat: bool = False) -> Arrivals:
        if not any(segment.from_rate or segment.to_rate for segment in segments):
            raise ConfigError("no arrivals: every rate is 0; give at least one above it.")
        if self.cv is not None and self.process != "gamma":
            raise ConfigError('arrivals.cv needs arrivals.process = "gamma".')
        profile = RateProfile(segments, repeat=repeat)
        return Arrivals(profile, self.process, cv=self.cv or 2.0, duration_s=self.limit_s())


class StepArrivals(_Shaped, frozen=True, tag="steps", tag_field="kind", kw_only=True):
    """Stretches of different rates one after another, once or again and again."""

    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1, max_length=10_000)]
    repeat: bool = False

    def arrivals(self) -> Arrivals:
        """The schedule."""
        segments = [
            Segment(step.duration_s, step.rate, step.rate if step.to_rate is None else step.to_rate)
            for step in self.steps
        ]
        return self.through(segments, repeat=self.repeat)


class RampArrivals(_Shaped, frozen=True, tag="ramp", tag_field="kind", kw_only=True):
    """From one rate to another in ``ramp_s`` seconds, then ``hold_s`` seconds at the second."""

    from_rate: Rate
    to_rate: Rate
    ramp_s: PositiveSeconds
    hold_s: Seconds = 0.0

    def arrivals(self) -> Arrivals:
        """The schedule."""
        segments = [Segment(self.ramp_s, self.from_rate, self.to_rate)]
        if self.hold_s:
            segments.append(Segment(self.hold_s, self.to_rate, self.to_rate))
        return self.through(segments)


class PulseArrivals(_Shaped, frozen=True, tag="pulse", tag_field="kind", kw_only=True):
    """The exam of F1.13: calm, a sudden pulse, calm again; ``rise_s`` rounds both flanks."""

    calm_rate: Rate = 200.0
    peak_rate: PositiveRate = 800.0
    calm_s: Seconds = 30.0
    pulse_s: PositiveSeconds = 30.0
    after_s: Seconds = 30.0
    rise_s: Seconds = 0.0

    def arrivals(self) -> Arrivals:
        """The schedule."""
        calm, peak = self.calm_rate, self.peak_rate
        segments = [
            Segment(self.calm_s, calm, calm),
            Segment(self.rise_s, calm, peak),
            Segment(self.pulse_s, peak, peak),
            Segment(self.rise_s, peak, calm),
            Segment(self.after_s, calm, calm),
        ]
        return self.through([segment for segment in segments if segment.duration_s > 0])


def _flat(rate: float) -> RateProfile:
    return RateProfile([Segment(math.inf, rate, rate)])
