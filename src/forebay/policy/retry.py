"""Retries within a budget, so that they cannot multiply an overload.

Every request pays ``share`` of a retry into the budget (10 %: at most one retry in ten requests
over time), a retry takes one out. A few retries are always there for quiet services.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many retries a pool may make."""

    share: Annotated[
        float, Meta(description="Retries for each request, over time.", ge=0.0, le=1.0)
    ] = 0.1
    burst: Annotated[float, Meta(description="Retries that may be saved up.", ge=0.0)] = 10.0
    max_attempts: Annotated[
        int, Meta(description="Attempts of one request, the first included.", ge=1, le=10)
    ] = 2


class RetryBudget:
    """Retries left; begins full."""

    __slots__ = ("_left", "settings", "taken", "withheld")

    def __init__(self, settings: RetrySettings) -> None:
        self.settings = settings
        self._left = settings.burst
        self.taken = 0
        self.withheld = 0

    def request(self) -> None:
        """A request came."""
        self._left = min(self.settings.burst, self._left + self.settings.share)

    def affords(self, count: int) -> bool:
        """Whether that many retries are left."""
        return self._left >= count - 1e-9

    def take(self, attempts: int, *, remaining_s: float, needs_s: float) -> bool:
        """Whether one that made ``attempts`` may try again within the time it has left."""
        allowed = attempts < self.settings.max_attempts and remaining_s > needs_s
        # Sums of tenths fall a little short of one.
        if not allowed or self._left < 1.0 - 1e-9:
            self.withheld += 1
            return False
        self._left -= 1.0
        self.taken += 1
        return True

    def statistics(self) -> dict[str, float]:
        """Retries left, made and withheld."""
        return {"left": self._left, "taken": self.taken, "withheld": self.withheld}
