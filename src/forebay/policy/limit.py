"""A concurrency limit that finds itself from latency normalised by cost.

The unloaded latency is the ``base``: the least window median seen. The limit doubles each window
from its small beginning until the median exceeds ``tolerance`` x base (F1.8: a tail ratio of 2 is
normal). From then on, with r = median / (tolerance x base), it grows while it is really used by
half of what is missing, limit x (1 / r - 1) / 2, at most by half; where r > 1 it shrinks to
limit / r, at most by half; failures cost a tenth. So it settles where latency is ``tolerance``
times the unloaded one, from pools of one slot upwards (the floor is 1).

No steady state shows the unloaded latency, and the first one may have been measured in a crowd. So
every ``probe_every`` windows, and once when the doubling ends, one window is measured at
limit / (1.5 x tolerance): were the limit too high by any factor, each probe takes a third off it.
What happens to run in so little company meanwhile is ``unloaded``, which forecasts go by; where
some did within the last ``probe_every`` windows there is no probe, which would let a line grow in
the midst of a pulse.

What does not fall with the number in work is no crowding: an engine that others use, a machine that
is busy, a process late to its own answers. Where a third less in work made nobody faster, the limit
goes back to where it was and follows what comes for a while, longer each time that this is found
again, unless latency grows with it by half.

Where deadlines are tighter than the tolerance they set the line: what ends just after them is as
slow as what never ends.

Latency is not all: ``scale`` is for whoever sees memory and throughput (``policy.batch``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError

MOST_RISE = 1.25
"""How much one probe may raise the unloaded latency."""
COLD = 4
"""Times the initial limit that small requests may take before anything was slow."""
IN_TIME = 0.9
"""Of the latency with which an answer would end at its deadline, this is accepted."""
FEWER = 0.3
"""So much of the work must be gone before it is judged whether that helped."""
HELPED = 0.25
"""Fewer in work helped if latency fell by this share of what the work did."""
WORSE = 1.5
"""Latency over the one at which shrinking was in vain that is a reason to try it again."""
MORE = 1.25
"""Growth in a window of a limit that is all used while shrinking is known to be in vain."""
VAIN, MOST_VAIN = 32, 512
"""Windows in which what was in vain is not tried again, at first and at most."""
FEW = 4
"""Latencies in little company whose median is believed."""


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds and temper of a limit."""

    initial: Annotated[int, Meta(description="Where it begins.", ge=1)] = 8
    least: Annotated[int, Meta(description="It never falls under this.", ge=1)] = 1
    most: Annotated[int, Meta(description="It never rises over this.", ge=1)] = 1024
    tolerance: Annotated[
        float, Meta(description="Latency accepted, as a multiple of the unloaded one.", gt=1.0)
    ] = 2.0
    window: Annotated[int, Meta(description="Requests between two decisions.", ge=4)] = 16
    probe_every: Annotated[
        int, Meta(description="Windows between two looks at the unloaded latency.", ge=2)
    ] = 100

    def __post_init__(self) -> None:
        if not self.least <= self.initial <= self.most:
            raise ConfigError("a limit needs least <= initial <= most.")


class _Shrink(NamedTuple):
    """Where a limit was when it began to shrink."""

    exact: float
    peak: int
    latency: float
    window: int


class _Shrinking:
    """Whether it helps to take less at once; ``vain`` is asked at each window that is too slow."""

    __slots__ = ("_for", "_from", "_latency", "_until")

    def __init__(self) -> None:
        self._from: _Shrink | None = None
        self._until = 0
        self._for = VAIN
        self._latency = 0.0

    def vain(self, now: _Shrink) -> float | None:
        """The limit to go back to, or None: it may shrink on."""
        if now.window < self._until and now.latency <= WORSE * self._latency:
            return now.exact * (MORE if now.peak >= int(now.exact) else 1.0)
        began = self._from
        if began is None or now.window - began.window > VAIN or now.peak > began.peak:
            self._from = now
            return None
        fewer = 1 - now.peak / began.peak
        if fewer < FEWER:
            return None
        self._from = None
        if 1 - now.latency / began.latency >= HELPED * fewer:
            self._for = VAIN
            return None
        self._latency = max(now.latency, began.latency)
        self._until, self._for = now.window + self._for, min(MOST_VAIN, 2 * self._for)
        return max(now.exact, began.exact)


class AdaptiveLimit:
    """How many may be in work at once in each of ``places``; ``observe`` teaches it."""

    __slots__ = (
        "_base",
        "_bounds",
        "_calm",
        "_calm_latency",
        "_calm_window",
        "_cut",
        "_doubling",
        "_exact",
        "_failed",
        "_fresh",
        "_grows",
        "_peak",
        "_places",
        "_processes",
        "_restore",
        "_samples",
        "_settings",
        "_shrinking",
        "_skip",
        "_windows",
    )

    def __init__(self, settings: LimitSettings, places: int = 1) -> None:
        self._settings = settings
        self._places = places
        self._processes = 1
        self._exact = float(settings.initial)
        self._base: float | None = None
        self._samples: list[float] = []
        self._bounds: list[float] = []
        self._calm: list[float] = []
        self._calm_latency = math.inf
        self._calm_window = -math.inf
        self._failed = 0
        self._cut = 0
        self._peak = 0
        self._windows = 0
        self._doubling = self._fresh = True
        self._grows = False
        self._restore: float | None = None
        self._skip = 0
        self._shrinking = _Shrinking()

    @property
    def limit(self) -> int:
        """Requests that may be in work in one place now."""
        return int(self._exact)

    @property
    def processes(self) -> int:
        """Processes that let requests into the same places, this one included."""
        return self._processes

    @property
    def cold(self) -> int:
        """What small requests may take at first."""
        return max(1, min(COLD * self._settings.initial, self._settings.most) // self._processes)

    def share(self, processes: int) -> None:
        """Be one of so many: each begins with its part, goes up to it, and keeps the sum.

        Latency, which all of them see, does the rest.
        """
        if processes == self._processes:
            return
        was, self._processes = self._processes, processes
        if self._restore is not None:
            self._restore = max(1.0, self._restore * was / processes)
        self._set(self._exact * was / processes)

    @property
    def searching(self) -> bool:
        """Whether it doubles without a calm of late, or is low for a look at what one shows."""
        return (self._doubling and not self.calm_known) or self._restore is not None

    @property
    def calm_known(self) -> bool:
        """Whether the unloaded latency was seen of late, so that nobody need wait for a look."""
        return self._windows - self._calm_window < self._settings.probe_every

    @property
    def fresh(self) -> bool:
        """Whether no window has ever been too slow: more may be tried that seems harmless."""
        return self._fresh

    @property
    def base(self) -> float:
        """The unloaded latency over cost; 0 until it is known."""
        return self._base or 0.0

    @property
    def unloaded(self) -> float:
        """The least it takes in little company, over cost: of late, if that is less than the base.

        0 until the base is known.
        """
        return min(self.base, self._calm_latency)

    @property
    def accepted(self) -> float:
        """The latency over cost at which it settles; 0 until the unloaded one is known."""
        return self._settings.tolerance * self.base

    def observe(
        self,
        latency: float,
        in_flight: int,
        *,
        ok: bool = True,
        cut: bool = False,
        bound: float = math.inf,
    ) -> None:
        """Note one end: latency over cost, how many were in work there, whether it worked.

        ``cut``: its deadline ended it; its latency is a bound, and perhaps of one token's waiting.
        ``bound``: the latency with which it would have ended just at its deadline.
        """
        if ok and not cut:
            self._note_calm(latency, in_flight)
        if self._skip:
            # It began before the limit fell.
            self._skip -= 1
            return
        self._peak = max(self._peak, in_flight)
        if ok:
            self._samples.append(latency)
            self._bounds.append(bound)
            self._cut += cut
        else:
            self._failed += 1
        enough = max(self._settings.window, min(self.limit, self._peak) * self._places)
        if len(self._samples) + self._failed >= enough:
            self._decide()

    def scale(self, factor: float) -> None:
        """Take less at once, or more; more only if it was all used and latency allowed it."""
        if factor < 1:
            self._doubling = self._fresh = False
        elif not self._grows:
            return
        if self._restore is None:
            self._set(self._exact * factor)
        else:
            self._restore *= factor

    def statistics(self) -> dict[str, float]:
        """The limit and the unloaded latency it goes by."""
        return {"limit": self.limit, "base": self.base}

    def _note_calm(self, latency: float, in_flight: int) -> None:
        """What runs in as little company as a probe shows how fast it can be.

        Who is refused by a base learned in a crowd leaves the pool so empty that no window fills.
        """
        if in_flight > max(1.0, self._exact / (1.5 * self._settings.tolerance)):
            self._calm.clear()
            return
        self._calm.append(latency)
        if len(self._calm) == FEW:
            self._calm_latency = median(self._calm)
            self._calm_window = self._windows
            self._calm.clear()

    def _reached(self, peak: int) -> float:
        """What was really tried of a limit that is looked for."""
        return min(self._exact, max(peak, self._settings.initial / self._processes))

    def _line(self, bounds: Sequence[float]) -> float:
        """The latency that is accepted."""
        assert self._base is not None
        in_time = IN_TIME * median(bounds)
        return max(self._base, min(self._settings.tolerance * self._base, in_time))

    def _decide(self) -> None:
        samples, bounds, failed, peak = self._samples, self._bounds, self._failed, self._peak
        crowded = 2 * self._cut > len(samples)
        self._samples, self._bounds, self._failed, self._cut, self._peak = [], [], 0, 0, 0
        self._windows += 1
        self._grows = False
        if failed > len(samples) // 4:
            self._doubling, self._fresh, self._restore = False, False, None
            self._set(self._exact * 0.9)
            return
        if crowded:
            # No unloaded latency is learned from those who ran out of time.
            # What seemed unloaded was a crowd: it is looked for where a probe would.
            misled = self._doubling and self._base is not None
            self._doubling = self._fresh = False
            self._restore = None
            fewer = 1.5 * self._settings.tolerance if misled else 1.0
            self._set(self._reached(peak) / 2 / fewer)
            self._skip = peak * self._places
            return
        if self._fresh:
            # What was tried beyond it is what the window measured.
            self._set(max(self._exact, peak))
        middle = median(samples)
        if self._restore is not None:
            assert self._base is not None
            # A crowd that had not quite gone must not pass for the unloaded state.
            self._base = min(middle, MOST_RISE * self._base)
            exact, self._restore = self._restore, None
            self._set(exact)
            return
        if self._exact <= self._settings.least:
            # At the floor nothing is less crowded: what is measured there is the base, and the
            # search begins anew.
            self._base, self._doubling = middle, True
        elif self._base is None or middle < self._base:
            self._base = middle
        ratio = middle / self._line(bounds)
        ended = self._doubling and ratio > 1
        self._fresh = self._fresh and ratio <= 1
        self._doubling = self._doubling and not ended
        back = None
        if ratio > 1 and not ended and middle <= IN_TIME * median(bounds):
            back = self._shrinking.vain(_Shrink(self._exact, peak, middle, self._windows))
        if back is not None:
            self._set(back)
        elif ratio > 1:
            self._set((self._reached(peak) if ended else self._exact) * max(0.5, 1 / ratio))
            # Those in work began in the crowd: counted again they would shrink it twice.
            self._skip = peak * self._places
        elif peak >= self.limit:
            self._grows = True
            share = 1.0 if self._doubling else min(0.5, (1 / ratio - 1) / 2)
            self._set(self._exact + max(share * self._exact, 0.5 / ratio))
            # At its bound there is nothing left to look for, and who still seems to be looking is
            # excused for the line before it.
            ended = self._doubling and self._exact >= self._highest
            self._doubling = self._doubling and not ended
        if ended or self._windows % self._settings.probe_every == 0:
            self._look_at_unloaded(peak)

    def _look_at_unloaded(self, peak: int) -> None:
        """Go by what was seen in little company of late, or make little company."""
        assert self._base is not None
        if self.calm_known:
            self._base = min(max(self._base, self._calm_latency), MOST_RISE * self._base)
        elif self.limit > max(1, self._settings.least // self._processes):
            self._restore = self._exact
            self._set(self._exact / (1.5 * self._settings.tolerance))
            # Those in work now, and those that begin beside them.
            self._skip = (peak + self.limit) * self._places

    @property
    def _highest(self) -> float:
        # One in each process is the least that they can do, be they more than the bound.
        return max(1.0, self._settings.most / self._processes)

    def _set(self, exact: float) -> None:
        self._exact = min(self._highest, max(self._settings.least / self._processes, 1.0, exact))
