"""Times of the day at which quotas shrink (peak) or grow (quiet hours)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MINUTES_A_DAY = 24 * 60


class QuotaWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From ``start`` until ``end`` (local time, may cross midnight) limits are multiplied."""

    start: Annotated[str, Meta(description="Begin, as HH:MM.", pattern=r"^\d\d:\d\d$")]
    end: Annotated[str, Meta(description="End, as HH:MM; before start: next day.")]
    factor: Annotated[float, Meta(description="Multiplies rate and burst.", gt=0.0, le=100.0)]
    days: Annotated[
        tuple[str, ...], Meta(description="Days on which it begins (mon … sun); empty: all.")
    ] = ()

    def __post_init__(self) -> None:
        for text in (self.start, self.end):
            _minute(text)
        for day in self.days:
            if day not in DAYS:
                raise ConfigError(f"{day!r} is no day of a quota window; use {', '.join(DAYS)}.")

    def holds(self, at: datetime) -> bool:
        """Whether ``at`` lies inside."""
        minute = at.hour * 60 + at.minute
        start, end = _minute(self.start), _minute(self.end)
        if start < end:
            return start <= minute < end and self._on(at.weekday())
        if minute >= start:
            return self._on(at.weekday())
        return minute < end and self._on((at.weekday() - 1) % 7)

    def _on(self, weekday: int) -> bool:
        return not self.days or DAYS[weekday] in self.days


def factor_at(windows: Sequence[QuotaWindow], at: datetime) -> float:
    """The factor of the first window that holds; 1 when none does."""
    for window in windows:
        if window.holds(at):
            return window.factor
    return 1.0


def _minute(text: str) -> int:
    hours, _, minutes = text.partition(":")
    if text.isascii() and hours.isdigit() and minutes.isdigit():
        minute = int(hours) * 60 + int(minutes)
        if int(minutes) < 60 and minute <= _MINUTES_A_DAY:
            return minute
    raise ConfigError(f"{text!r} is no time of the day; write HH:MM, from 00:00 to 24:00.")
