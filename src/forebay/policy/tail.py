"""The tail watch: P99/P50 and the share of long requests say when a pool is about to topple.

Levels by F1.8: a ratio up to 2 is normal, over 5 severe; in between lies the warning. A level is
left only after its condition has been better for ``calm_s`` (hysteresis), so actions taken on
severe are undone once and not in flapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError
from forebay.policy.quantiles import RecentQuantiles

Level = Literal["normal", "warn", "severe"]
LEVELS: tuple[Level, ...] = ("normal", "warn", "severe")


class TailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where levels begin and how they end."""

    warn_ratio: Annotated[float, Meta(description="P99/P50 that warns.", gt=1.0)] = 2.0
    severe_ratio: Annotated[float, Meta(description="P99/P50 that is severe.", gt=1.0)] = 5.0
    warn_long_share: Annotated[
        float,
        Meta(
            description="Share of requests too large for the safe bands that warns.", gt=0.0, le=1.0
        ),
    ] = 0.2
    severe_long_share: Annotated[
        float,
        Meta(
            description="Share of requests too large for the safe bands that is severe.",
            gt=0.0,
            le=1.0,
        ),
    ] = 0.5
    calm_s: Annotated[
        float, Meta(description="Seconds a better state must hold to count.", ge=0.0)
    ] = 10.0
    window: Annotated[int, Meta(description="Recent requests that are judged.", ge=20)] = 500
    least: Annotated[int, Meta(description="Requests before anything is judged.", ge=10)] = 100

    def __post_init__(self) -> None:
        if self.severe_ratio <= self.warn_ratio or self.severe_long_share <= self.warn_long_share:
            raise ConfigError("tail watch: severe must begin above warn.")


class TailChange(msgspec.Struct, frozen=True):
    """A level was entered; ``reason`` is a sentence a person reads at night."""

    level: Level
    was: Level
    reason: str


class TailWatch:
    """One pool's tail; latencies should be normalised by cost, or of one kind."""

    __slots__ = ("_better_since", "_latencies", "_long", "_settings", "level")

    def __init__(self, settings: TailSettings) -> None:
        self._settings = settings
        self._latencies = RecentQuantiles(least=1e-6, memory=settings.window)
        self._long = 0.0
        self._better_since: float | None = None
        self.level: Level = "normal"

    def observe(self, latency_s: float, *, long: bool) -> None:
        """Note one finished request."""
        self._latencies.add(latency_s)
        self._long += ((1.0 if long else 0.0) - self._long) / min(
            self._latencies.count, self._settings.window
        )

    def judge(self, now: float) -> TailChange | None:
        """Look at the state; the change, if the level changes now."""
        if self._latencies.count < self._settings.least:
            return None
        middle, tail = self._latencies.several((0.5, 0.99))
        assert middle is not None
        assert tail is not None
        ratio = tail / middle
        level, reason = self._found(ratio)
        if LEVELS.index(level) > LEVELS.index(self.level):
            return self._enter(level, reason)
        if level == self.level:
            self._better_since = None
            return None
        if self._better_since is None:
            self._better_since = now
        if now - self._better_since < self._settings.calm_s:
            return None
        return self._enter(level, reason)

    def statistics(self) -> dict[str, float]:
        """The ratio, the share of long requests, the level as 0, 1 or 2."""
        middle, tail = self._latencies.several((0.5, 0.99))
        return {
            "tail_ratio": tail / middle if middle and tail else 0.0,
            "long_share": self._long,
            "level": float(LEVELS.index(self.level)),
        }

    def _found(self, ratio: float) -> tuple[Level, str]:
        settings = self._settings
        by_ratio = _level(ratio, (settings.warn_ratio, settings.severe_ratio))
        by_long = _level(self._long, (settings.warn_long_share, settings.severe_long_share))
        if LEVELS.index(by_long) > LEVELS.index(by_ratio):
            return by_long, f"{self._long:.0%} of the requests are long"
        return by_ratio, f"P99 is {ratio:.1f} times P50"

    def _enter(self, level: Level, reason: str) -> TailChange:
        was, self.level = self.level, level
        self._better_since = None
        return TailChange(level, was, reason)


def _level(value: float, begins: Sequence[float]) -> Level:
    return LEVELS[sum(value > begin for begin in begins)]
