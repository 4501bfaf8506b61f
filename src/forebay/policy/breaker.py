"""Whether a part is fit to be used: a circuit breaker of numbers and time, with its own probes.

Closed: everybody may use the part, and what comes of it is counted over the last ``window_s``.
It opens

- at once when a use ran into its time-out and the part has shown no sign of life for half of that
  time: a part that hangs costs one time-out, whatever the load;
- when at least ``least_uses`` were counted and the share of failures reaches ``error_rate``;
- when the ``latency_quantile`` of its latencies exceeds ``latency_ms``;
- when, of the uses that could be judged, fewer than ``hit_rate`` found what they should have;
- for load, when a use did not get its turn and nobody else did in that time.

Latencies and time-outs are the part's own: what an overloaded process adds is no sign of its state.

Open: nobody uses it but single probes, one at a time, ``rest_s`` after it opened and then after
twice the rest before, up to ``max_rest_s``. A probe that succeeds in good time closes it. One that
opens again soon rests longer from the start, so that a part that only probes like costs at most
one time-out a rest.

``max_per_s`` and ``max_in_flight`` bound the uses themselves: what is over them is turned away, one
by one, and the breaker stays closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.policy.quantiles import RecentQuantiles

State = Literal["closed", "open", "probing"]
Why = Literal["silent", "errors", "slow", "misses", "load"]
"""Why a part is not used: it hangs, it fails, it is slow, it finds the wrong things; or too many
use it at the moment."""

_SLICES = 10
_LOOK_EVERY = 16
"""Latencies between two looks at their quantile: sorting costs more than counting."""
_JUDGED = 200
_SILENT = 0.5
"""Share of a time-out without a sign of life that shows that a part hangs: what began before it
hung may still have come during the rest."""
_SOON = 10.0
"""Opening again within so many rests is a relapse."""
_SPREAD = 0.2
"""Probes of several processes are spread over this share of a rest."""


class BreakerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a part is left, and how it is tried again."""

    window_s: Annotated[
        float, Meta(description="Seconds over which uses and failures are counted.", gt=0.0)
    ] = 10.0
    least_uses: Annotated[
        int, Meta(description="Uses in that time before their share of failures counts.", ge=1)
    ] = 10
    error_rate: Annotated[
        float, Meta(description="Share of failures at which it is left.", gt=0.0, le=1.0)
    ] = 0.5
    latency_ms: Annotated[
        float,
        Meta(description="Latency at which it is left, at the quantile below; 0: none.", ge=0.0),
    ] = 0.0
    latency_quantile: Annotated[
        float, Meta(description="The quantile of recent latencies that is meant.", gt=0.0, lt=1.0)
    ] = 0.99
    least_latencies: Annotated[
        int, Meta(description="Latencies known before their quantile counts.", ge=1)
    ] = 100
    hit_rate: Annotated[
        float,
        Meta(
            description="Share of judged uses that found what they should, under which it is "
            "left; 0: none.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.0
    least_hits: Annotated[
        int, Meta(description="Judged uses before that share counts.", ge=1, le=_JUDGED)
    ] = 50
    max_per_s: Annotated[
        float, Meta(description="Uses a second; what is over it is turned away. 0: any.", ge=0.0)
    ] = 0.0
    max_in_flight: Annotated[
        int, Meta(description="Uses at once; what is over it is turned away.", ge=1)
    ] = 256
    rest_s: Annotated[float, Meta(description="Seconds to the first probe.", gt=0.0)] = 0.25
    max_rest_s: Annotated[
        float, Meta(description="Longest time between probes that fail.", gt=0.0)
    ] = 5.0
    max_relapse_s: Annotated[
        float,
        Meta(
            description="Longest time to the first probe of a part that opens again after each.",
            gt=0.0,
        ),
    ] = 60.0


class Use:
    """One use of a part, ended exactly once: as a success, a failure, or ignored."""

    __slots__ = ("_breaker", "ended", "era", "probe")

    def __init__(self, breaker: Breaker, *, probe: bool) -> None:
        self._breaker = breaker
        self.era = breaker.era
        self.ended = False
        self.probe = probe

    def succeeded(self, now: float, took_s: float, *, found: bool | None = None) -> None:
        """It worked; ``took_s`` is the part's own time, ``found`` whether it found what it
        should have (None: nobody can tell).
        """
        if self._end():
            self._breaker.success(self, now, took_s, found)

    def failed(self, now: float) -> None:
        """It failed."""
        if self._end():
            self._breaker.failure(self, now)

    def timed_out(self, now: float, waited_s: float) -> None:
        """It had its full time, ``waited_s``, and was not done."""
        if self._end():
            self._breaker.failure(self, now, late_s=waited_s)

    def starved(self, now: float, waited_s: float) -> None:
        """It did not get its turn in ``waited_s``: the process has too much to do."""
        if self._end():
            self._breaker.starve(self, now, waited_s)

    def ignored(self, now: float) -> None:
        """It says nothing about the part: its client left, or the part was not asked."""
        if self._end():
            self._breaker.ignore(self, now)

    def _end(self) -> bool:
        first, self.ended = not self.ended, True
        return first


class Breaker:
    """One part's state; every change is a call with the time. ``chance`` answers 0..1."""

    def __init__(
        self, settings: BreakerSettings, chance: Callable[[], float] = lambda: 0.5
    ) -> None:
        self.settings = settings
        self.state: State = "closed"
        self.why: Why | None = None
        self.era = 0
        self.openings = 0
        self.turned_away = 0
        self.probes = 0
        self.in_flight = 0
        self._chance = chance
        self._rest_s = settings.rest_s
        self._until = 0.0
        self._closed_at = float("-inf")
        self._second = (0.0, 0)
        self._forget(float("-inf"))

    def enter(self, now: float) -> Use | Why:
        """A use, if the part may be used now; else why not."""
        if self.state != "closed":
            assert self.why is not None
            return self.why
        settings = self.settings
        if self.in_flight >= settings.max_in_flight or (
            settings.max_per_s and not self._within_rate(now)
        ):
            self.turned_away += 1
            return "load"
        self.in_flight += 1
        return Use(self, probe=False)

    def probe(self, now: float) -> Use | None:
        """The one probe that is due; None: none is, or one is under way."""
        if self.state != "open" or now < self._until:
            return None
        self.state = "probing"
        self.probes += 1
        return Use(self, probe=True)

    def rests_s(self, now: float) -> float:
        """Seconds until a probe is due; 0 while it is closed or a probe is under way."""
        return max(0.0, self._until - now) if self.state == "open" else 0.0

    def statistics(self) -> dict[str, float]:
        """Whether it is left (0, 1), openings, probes, uses, what is known of late."""
        hits = len(self._judged)
        return {
            "left": float(self.state != "closed"),
            "openings": self.openings,
            "probes": self.probes,
            "turned_away": self.turned_away,
            "in_flight": self.in_flight,
            "latency_s": self._latencies.at(self.settings.latency_quantile) or 0.0,
            "hit_rate": self._found / hits if hits else 1.0,
        }

    # What uses report.

    def success(self, use: Use, now: float, took_s: float, found: bool | None) -> None:
        """See ``Use.succeeded``."""
        if use.probe:
            self._close(now)
            return
        self.in_flight -= 1
        if use.era != self.era:
            return
        self._alive_at = now
        self._count(now, failed=False)
        settings = self.settings
        if settings.latency_ms:
            self._latencies.add(took_s)
            if self._latencies.count % _LOOK_EVERY == 0 and self._slow():
                self._open(now, "slow")
        if found is not None and settings.hit_rate:
            self._judge(now, found)

    def failure(self, use: Use, now: float, late_s: float = 0.0) -> None:
        """See ``Use.failed`` and ``Use.timed_out``."""
        if use.probe:
            self._again(now)
            return
        self.in_flight -= 1
        if use.era != self.era:
            return
        if late_s and self._alive_at <= now - _SILENT * late_s:
            self._open(now, "silent")
            return
        if late_s and self.settings.latency_ms:
            self._latencies.add(late_s)
        uses, failures = self._count(now, failed=True)
        if uses >= self.settings.least_uses and failures >= self.settings.error_rate * uses:
            self._open(now, "errors")

    def starve(self, use: Use, now: float, waited_s: float) -> None:
        """See ``Use.starved``."""
        self.ignore(use, now)
        same = not use.probe and use.era == self.era
        if same and self._alive_at <= now - waited_s:
            self._open(now, "load")

    def ignore(self, use: Use, now: float) -> None:
        """See ``Use.ignored``."""
        if use.probe:
            # It proved nothing; another is due after the same rest.
            self.state = "open"
            self._rest(now)
        else:
            self.in_flight -= 1

    # States.

    def _open(self, now: float, why: Why) -> None:
        settings = self.settings
        if now - self._closed_at > _SOON * self._rest_s:
            self._rest_s = settings.rest_s
        else:
            self._rest_s = min(settings.max_relapse_s, 2 * self._rest_s)
        self.state, self.why = "open", why
        self.openings += 1
        self.era += 1
        self._rest(now)

    def _again(self, now: float) -> None:
        self.state = "open"
        self._rest_s = max(self._rest_s, min(self.settings.max_rest_s, 2 * self._rest_s))
        self._rest(now)

    def _close(self, now: float) -> None:
        self.state, self.why = "closed", None
        self.era += 1
        self._closed_at = now
        self._forget(now)

    def _rest(self, now: float) -> None:
        self._until = now + self._rest_s * (1 + _SPREAD * (self._chance() - 0.5))

    # Figures.

    def _forget(self, now: float) -> None:
        """Nothing is known of the part but that it lives."""
        self._alive_at = now
        self._slices: deque[list[int]] = deque(maxlen=_SLICES)
        self._latencies = RecentQuantiles(least=0.0005, memory=500)
        self._judged: deque[bool] = deque(maxlen=_JUDGED)
        self._found = 0

    def _count(self, now: float, *, failed: bool) -> tuple[int, int]:
        """Count a use; uses and failures in the window."""
        number = int(now * _SLICES / self.settings.window_s)
        slices = self._slices
        if not slices or slices[-1][0] != number:
            slices.append([number, 0, 0])
        last = slices[-1]
        last[1] += 1
        if not failed:
            return 0, 0
        last[2] += 1
        recent = [one for one in slices if one[0] > number - _SLICES]
        return sum(one[1] for one in recent), sum(one[2] for one in recent)

    def _slow(self) -> bool:
        if self._latencies.count < self.settings.least_latencies:
            return False
        at = self._latencies.at(self.settings.latency_quantile)
        return at is not None and at * 1000 > self.settings.latency_ms

    def _judge(self, now: float, found: bool) -> None:
        if len(self._judged) == _JUDGED:
            self._found -= self._judged[0]
        self._judged.append(found)
        self._found += found
        enough = len(self._judged) >= self.settings.least_hits
        if enough and self._found < self.settings.hit_rate * len(self._judged):
            self._open(now, "misses")

    def _within_rate(self, now: float) -> bool:
        """Whether this use is within the bound on uses a second, which it then takes part in."""
        began_at, uses = self._second
        if now - began_at >= 1.0:
            began_at, uses = now, 0
        if uses >= self.settings.max_per_s:
            return False
        self._second = (began_at, uses + 1)
        return True
