"""A token bucket that may go into debt: level(t) = min(burst, level(t0) + rate x (t - t0)).

Reserving needs the whole amount to be there; settling what was really used may lower the level
under zero, down to minus one burst, so that a request that ran over its estimate is paid for by
the ones that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

LEAST_RATE = 1e-9
Untaken = Callable[[float], float]
"""Hears later how much of what was taken could not be, as others were in debt before, and says how
much of that is to be taken again."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast a bucket fills and how much it holds, in cost (tokens under default factors)."""

    rate_per_s: Annotated[
        float, Meta(description="Tokens that come back a second.", ge=LEAST_RATE, le=1e12)
    ]
    burst: Annotated[float, Meta(description="Tokens that may be used at once.", gt=0.0, le=1e12)]

    def scaled(self, factor: float) -> Limit:
        """The same limit grown or shrunk; a factor of 1 gives this very value."""
        if factor == 1.0:
            return self
        # Factors of factors must not end in a rate by which no wait can be told.
        return Limit(max(LEAST_RATE, self.rate_per_s * factor), self.burst * factor)

    def paced(self, rate_per_s: float) -> Limit:
        """The same limit with another refill; what it holds stays."""
        if rate_per_s == self.rate_per_s:
            return self
        return Limit(max(LEAST_RATE, rate_per_s), self.burst)


class TokenBucket:
    """One limit's level, full in the beginning."""

    __slots__ = ("_at", "_level", "limit")

    def __init__(self, limit: Limit, now: float) -> None:
        self.limit = limit
        self._level = limit.burst
        self._at = now

    def level(self, now: float) -> float:
        """What may be reserved now; negative in debt. Time that runs backwards changes nothing."""
        passed_s = now - self._at
        if passed_s > 0:
            limit = self.limit
            level = self._level + passed_s * limit.rate_per_s
            self._level = min(limit.burst, level)
            self._at = now
        return self._level

    def payable(self, now: float) -> float:
        """What may be taken until it is at minus one burst."""
        return self.level(now) + self.limit.burst

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` is there; 0 when it is, infinite when it can never be."""
        missing = amount - self.level(now)
        if missing <= 0:
            return 0.0
        return math.inf if amount > self.limit.burst else missing / self.limit.rate_per_s

    def take(self, amount: float, now: float, _untaken: Untaken | None = None) -> None:
        """Lower the level; a negative ``amount`` gives back. Debt ends at minus one burst."""
        burst = self.limit.burst
        level = self.level(now) - amount
        self._level = burst if level > burst else max(level, -burst)

    def resize(self, limit: Limit, now: float) -> None:
        """Go on under another limit: what was used stays used."""
        used = self.limit.burst - self.level(now)
        self.limit = limit
        self._level = max(-limit.burst, min(limit.burst, limit.burst - used))
