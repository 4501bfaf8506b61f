"""How much goes into an engine, from the slope of its throughput and its memory (F1.7, F2.13).

slope < -0.15 and memory > 0.82: x 0.75; slope > 0.12 and memory < 0.65: x 1.2. Slope is the
relative difference of throughput between two periods of 5 s; memory the share of the engine's KV
cache in use. Engines seldom change their batch while they run, so the factor goes to what is let
into them: to the number of requests (``AdaptiveLimit.scale``) and to their cost (``TokenBound``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.policy.balance import ReplicaLoad
from forebay.policy.limit import AdaptiveLimit


class BatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds and factors; defaults are F2.13."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether what is let into engines follows their memory, where they show it."
        ),
    ] = True
    shrink_slope: Annotated[
        float, Meta(description="Throughput falling faster than this …")
    ] = -0.15
    shrink_memory: Annotated[
        float, Meta(description="… with more KV memory in use: less is let in.")
    ] = 0.82
    shrink_factor: Annotated[float, Meta(description="Factor of shrinking.", gt=0, lt=1)] = 0.75
    grow_slope: Annotated[float, Meta(description="Throughput rising faster than this …")] = 0.12
    grow_memory: Annotated[
        float, Meta(description="… with less KV memory in use: more is let in.")
    ] = 0.65
    grow_factor: Annotated[float, Meta(description="Factor of growing.", gt=1)] = 1.2
    period_s: Annotated[float, Meta(description="Seconds between two looks.", gt=0)] = 5.0


class BatchRule:
    """The factor at each look."""

    __slots__ = ("_at", "_rate", "_settings", "_worked")

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._at = -math.inf
        self._worked = 0.0
        self._rate: float | None = None

    def look(self, worked: float, memory: float, now: float) -> float | None:
        """Take all that was worked off so far (any unit) and the memory in use (0..1).

        None between two looks, and until there are two periods to compare.
        """
        settings, passed_s = self._settings, now - self._at
        if passed_s < settings.period_s:
            return None
        # After a gap no rate is known that could be compared.
        steady = passed_s < 2 * settings.period_s
        last, self._rate = self._rate, (worked - self._worked) / passed_s if steady else None
        self._at, self._worked = now, worked
        if not last or self._rate is None:
            return None
        slope = (self._rate - last) / last
        if slope < settings.shrink_slope and memory > settings.shrink_memory:
            return settings.shrink_factor
        if slope > settings.grow_slope and memory < settings.grow_memory:
            return settings.grow_factor
        return 1.0


class TokenBound:
    """Cost let into one replica at once: what is configured, and less while memory is short.

    Where nothing is configured there is no bound until memory has been short once.
    """

    __slots__ = ("_lifts_at", "_most", "bound")

    def __init__(self, most: float) -> None:
        self._most = most or math.inf
        self._lifts_at = self._most
        self.bound = self._most

    def shrink(self, factor: float, held: float) -> None:
        """Memory is short with ``held`` in the fullest replica."""
        if math.isinf(self.bound):
            self._lifts_at = held
        self.bound = factor * min(self.bound, held)

    def grow(self, factor: float) -> None:
        """There is memory again; where it was short before, the bound ends."""
        self.bound *= factor
        if self.bound >= self._lifts_at:
            self.bound = self._lifts_at = self._most


class Batch:
    """What one pool's engines are given at once, by the fullest one's memory."""

    __slots__ = ("_held", "_rule", "_settings", "tokens", "written")

    def __init__(self, settings: BatchSettings, max_tokens: float) -> None:
        self._settings = settings
        self._rule = BatchRule(settings)
        self._held = 0.0
        self.tokens = TokenBound(max_tokens)
        self.written = 0
        """Output tokens so far: prompts come in leaps, which would pass for a slope."""

    def follow(self, limit: AdaptiveLimit, loads: Sequence[ReplicaLoad], now: float) -> None:
        """Let less in or more, if it is time; nothing where no engine shows its memory."""
        uses = [load.kv_use for load in loads if load.kv_use is not None]
        if not uses or not self._settings.enabled:
            return
        # The most of a period: what is held just now may be anything.
        self._held = max(self._held, *(load.cost for load in loads))
        factor = self._rule.look(self.written, max(uses), now)
        if factor is None:
            return
        held, self._held = self._held, 0.0
        limit.scale(factor)
        if factor < 1:
            self.tokens.shrink(factor, held)
        elif max(uses) < self._settings.grow_memory:
            # Tokens are bounded for memory's sake alone, and a bounded pool writes no faster.
            self.tokens.grow(self._settings.grow_factor)


def concurrency_for(rate_per_s: float, time_s: float, least: int = 1, most: int = 1024) -> int:
    """Little's law: how many are in work at once (F0.3: 120/s x 43 ms = 5.2, so 6)."""
    return min(most, max(least, math.ceil(rate_per_s * time_s - 1e-9)))
