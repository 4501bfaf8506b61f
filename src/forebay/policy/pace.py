"""How many retrievals for answers are at work at once: as many as feed the engines (F2.13).

Little's law: N = what generation takes, in requests a second, x the time of a retrieval. What it
takes is what ends there, and what its unfed places take within one refresh: so empty engines are
fed before anything has ended, and full ones only as fast as they answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.policy.batch import concurrency_for

_SMOOTHING = 1 / 16


class PaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How closely retrieval follows generation."""

    least: Annotated[
        int, Meta(description="Retrievals for answers let in at once, whatever is measured.", ge=1)
    ] = 4
    refresh_s: Annotated[
        float,
        Meta(
            description="Seconds between two looks at generation; unfed places are fed within it.",
            gt=0.0,
        ),
    ] = 0.2
    memory_s: Annotated[
        float, Meta(description="Seconds over which the rate of answers is taken.", gt=0.0)
    ] = 5.0


class Takes(msgspec.Struct, frozen=True):
    """What generation takes: answers that have ended so far, and places that are free now."""

    ended: int
    free: int


class Pace:
    """``look`` at each occasion; ``most`` may be at work then."""

    __slots__ = ("_at", "_ended", "_kept", "_seen_s", "_settings", "_takes", "_time_s", "most")

    def __init__(self, settings: PaceSettings, takes: Callable[[], Takes]) -> None:
        self._settings = settings
        self._takes = takes
        self._at = -math.inf
        self._ended = 0
        self._kept = 0.0  # answers that ended, the older the less
        self._seen_s = 0.0  # and the seconds in which they did
        self._time_s: float | None = None
        self.most: float = math.inf
        """Unbounded until a retrieval has shown how long it takes."""

    def took(self, seconds: float) -> None:
        """A retrieval for an answer took so long, from being let in to its end."""
        last = self._time_s
        self._time_s = seconds if last is None else last + _SMOOTHING * (seconds - last)

    def look(self, unfed: int, now: float) -> None:
        """Look again if it is time; ``unfed`` answers hold a place and are not at an engine yet."""
        passed_s = now - self._at
        if passed_s < self._settings.refresh_s:
            return
        takes = self._takes()
        if math.isfinite(passed_s):
            fading = math.exp(-passed_s / self._settings.memory_s)
            self._kept = self._kept * fading + takes.ended - self._ended
            self._seen_s = self._seen_s * fading + passed_s
        self._at, self._ended = now, takes.ended
        if self._time_s is not None:
            wanted = (takes.free + unfed) / self._settings.refresh_s + self.rate()
            self.most = concurrency_for(wanted, self._time_s, least=self._settings.least)

    def rate(self) -> float:
        """Answers a second that end."""
        return self._kept / self._seen_s if self._seen_s else 0.0
