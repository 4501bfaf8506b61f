"""A concurrency limit that finds itself from latency normalised by cost.

The unloaded latency is the ``base``: the least window median seen, measured again by a short probe
at limit / (1.5 x tolerance) after 2, 4, 8 … windows and every ``probe_every`` then, since no steady
state shows it: were the limit too high by any factor, each probe takes a third of that off. While
the median of a window stays within ``tolerance`` x base (F1.8: a tail ratio of 2 is normal) and the
limit is really used, the limit grows by the square root of itself; above, it shrinks to
limit x tolerance x base / median, at most by half; failures cost a tenth. So it settles where
latency is ``tolerance`` times the unloaded one, from pools of one slot upwards (the floor is 1).
"""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError


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
    ] = 50

    def __post_init__(self) -> None:
        if not self.least <= self.initial <= self.most:
            raise ConfigError("a limit needs least <= initial <= most.")


class AdaptiveLimit:
    """How many may be in work at once in each of ``places``; ``observe`` teaches it."""

    __slots__ = (
        "_base",
        "_exact",
        "_failed",
        "_peak",
        "_places",
        "_restore",
        "_samples",
        "_settings",
        "_skip",
        "_windows",
    )

    def __init__(self, settings: LimitSettings, places: int = 1) -> None:
        self._settings = settings
        self._places = places
        self._exact = float(settings.initial)
        self._base: float | None = None
        self._samples: list[float] = []
        self._failed = 0
        self._peak = 0
        self._windows = 0
        self._restore: float | None = None
        self._skip = 0

    @property
    def limit(self) -> int:
        """Requests that may be in work in one place now."""
        return int(self._exact)

    def observe(self, latency: float, in_flight: int, *, ok: bool = True) -> None:
        """Note one end: latency over cost, how many were in work there, whether it worked."""
        if self._skip:
            # It began before the probe did.
            self._skip -= 1
            return
        self._peak = max(self._peak, in_flight)
        if ok:
            self._samples.append(latency)
        else:
            self._failed += 1
        if len(self._samples) + self._failed >= max(
            self._settings.window, self.limit * self._places
        ):
            self._decide()

    def statistics(self) -> dict[str, float]:
        """The limit and the unloaded latency it goes by."""
        return {"limit": self.limit, "base": self._base or 0.0}

    def _decide(self) -> None:
        samples, failed, peak = self._samples, self._failed, self._peak
        self._samples, self._failed, self._peak = [], 0, 0
        self._windows += 1
        if failed > len(samples) // 4:
            self._restore = None
            self._set(self._exact * 0.9)
            return
        middle = median(samples)
        if self._restore is not None:
            self._base, exact, self._restore = middle, self._restore, None
            self._set(exact)
            return
        if self._base is None or middle < self._base:
            self._base = middle
        if self._probes() and self.limit > self._settings.least:
            self._restore, self._skip = self._exact, peak * self._places
            self._set(self._exact / (1.5 * self._settings.tolerance))
            return
        allowed = self._settings.tolerance * self._base
        if middle > allowed:
            self._set(self._exact * max(0.5, allowed / middle))
        elif peak >= self.limit:
            self._set(self._exact + max(1.0, math.sqrt(self._exact) / 2))

    def _probes(self) -> bool:
        early = self._windows > 1 and self._windows & (self._windows - 1) == 0
        return self._windows % self._settings.probe_every == 0 or (
            early and self._windows < self._settings.probe_every
        )

    def _set(self, exact: float) -> None:
        self._exact = min(float(self._settings.most), max(float(self._settings.least), exact))
