"""How many connections to keep to a place, from the rates of late (F0.3).

Little's law: N = arrival rate x (wait + execution). Both come from one decaying window: arrivals
A, connection-seconds S (the integral of connections in use), and the seconds W it holds, tau once
it is full and a second at least. The rate is A / W, the time S / A, so N = S / W. Kept is the next
sensible size (4, 6, 8, 12, 16, 24 …) above N + sqrt(N), the spread of independent arrivals:
120/s x 43 ms = 5.2, so 8.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

LEAST_HELD_S = 1.0


class ConnectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of what is kept, and the memory of the rates."""

    least: Annotated[int, Meta(description="Connections kept at least.", ge=1)] = 4
    most: Annotated[int, Meta(description="Connections kept at most.", ge=1)] = 256
    memory_s: Annotated[float, Meta(description="Time constant of the rates, in s.", gt=0)] = 5.0


class ConnectionSizer:
    """Counts one place's connections in use; every call is a fact with its time."""

    __slots__ = ("_arrivals", "_at", "_busy", "_busy_s", "_held_s", "_settings")

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._busy = 0
        self._arrivals = 0.0
        self._busy_s = 0.0
        self._held_s = 0.0
        self._at: float | None = None

    @property
    def busy(self) -> int:
        """Connections in use now."""
        return self._busy

    def began(self, now: float) -> None:
        """One more is in use."""
        self._pass(now)
        self._arrivals += 1
        self._busy += 1

    def ended(self, now: float) -> None:
        """One less is."""
        self._pass(now)
        self._busy -= 1

    def rate_per_s(self, now: float) -> float:
        """Arrivals a second of late."""
        self._pass(now)
        return self._arrivals / max(LEAST_HELD_S, self._held_s)

    def time_s(self, now: float) -> float:
        """Seconds one is in use, waiting included."""
        self._pass(now)
        return self._busy_s / self._arrivals if self._arrivals > 1e-9 else 0.0

    def kept(self, now: float) -> int:
        """How many are worth keeping open."""
        settings = self._settings
        busy = self.rate_per_s(now) * self.time_s(now)
        needed = sensible(math.ceil(busy + math.sqrt(busy) - 1e-9))
        return min(settings.most, max(settings.least, needed))

    def _pass(self, now: float) -> None:
        if self._at is not None and now > self._at:
            memory_s = self._settings.memory_s
            kept = math.exp((self._at - now) / memory_s)
            self._arrivals *= kept
            self._busy_s = self._busy_s * kept + self._busy * memory_s * (1 - kept)
            self._held_s = self._held_s * kept + memory_s * (1 - kept)
        self._at = now


def sensible(count: int) -> int:
    """The next size of 1, 2, 3, 4, 6, 8, 12, 16, 24 …"""
    power = 1 << max(0, count - 1).bit_length()
    lower = power * 3 // 4
    return lower if power >= 4 and count <= lower else power
