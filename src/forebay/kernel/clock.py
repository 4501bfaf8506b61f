"""Time as an argument: a monotonic clock, its virtual twin, and deadlines."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds; the origin has no meaning."""

    def now(self) -> float:
        """Seconds on this clock."""
        ...


class SystemClock:
    """The process's monotonic clock."""

    # A request looks at the clock a dozen times: the system's function itself is the method.
    now = staticmethod(time.monotonic)


class WallClock:
    """Seconds since the Unix epoch, for what people read and what survives a restart."""

    now = staticmethod(time.time)


class VirtualClock:
    """A clock that moves only when told to; callbacks fire in time order, ties in call order."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        """Fire ``callback`` when the clock reaches ``at`` (clamped to now)."""
        heapq.heappush(self._events, (max(at, self._now), next(self._order), callback))

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds``, firing what falls due on the way."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self.run_until(self._now + seconds)

    def run_until(self, at: float) -> None:
        """Fire every event due up to and including ``at``, then stand at ``at``."""
        while self._events and self._events[0][0] <= at:
            due, _, callback = heapq.heappop(self._events)
            self._now = due
            callback()
        self._now = max(self._now, at)


class Deadline:
    """A point on a clock after which nobody waits for the answer any more."""

    __slots__ = ("at", "clock")

    def __init__(self, at: float, clock: Clock) -> None:
        self.at = at
        self.clock = clock

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        """The deadline ``seconds`` from now."""
        return cls(clock.now() + seconds, clock)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self.clock.now())

    def expired(self) -> bool:
        """Whether the point has passed."""
        return self.clock.now() >= self.at

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and ``seconds`` from now."""
        return Deadline(min(self.at, self.clock.now() + seconds), self.clock)
