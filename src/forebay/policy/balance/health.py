"""Whether a replica is fit: passive signs from requests, active ones from probes, ejection.

A replica is ejected after ``failures`` in a row, or as soon as a request on it has shown no sign of
life for ``stalled_s`` (a hung engine fails nothing, it only keeps everybody waiting), or for ten
times what nine of ten first tokens take. It stays out
for ``rest_s``, twice as long after each relapse, up to ``max_rest_s``; then one request may try it,
and only its success lets the others back. One that is seen alive again rests no longer
than ``rest_s`` from when it was last seen dead: where all were dead, everybody waits for it.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

State = Literal["fit", "ejected", "trial"]


DEAD_S = 3.0
"""How long a look that found it dead holds."""
LEAST_STALL_S, STALL_FACTOR = 2.0, 10.0


class EjectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a replica is left alone, and for how long."""

    failures: Annotated[int, Meta(description="Failures in a row that eject.", ge=1)] = 3
    stalled_s: Annotated[
        float,
        Meta(
            description="Seconds without a sign of life from a request that eject; less once first "
            "tokens are known to come quickly.",
            gt=0.0,
        ),
    ] = 20.0
    rest_s: Annotated[float, Meta(description="First rest, in seconds.", gt=0.0)] = 1.0
    max_rest_s: Annotated[float, Meta(description="Longest rest, in seconds.", gt=0.0)] = 30.0


class ReplicaHealth:
    """One replica's state; every change is a call with the time."""

    __slots__ = (
        "_alive_at",
        "_asked",
        "_dead_at",
        "_failures",
        "_looked_at",
        "_rest_s",
        "_settings",
        "_until",
        "_waiting",
        "ejections",
        "stalled_s",
        "state",
    )

    def __init__(self, settings: EjectionSettings) -> None:
        self._settings = settings
        self._dead_at: float | None = None
        self._failures = 0
        self._rest_s = settings.rest_s
        self._until = 0.0
        # Requests that wait for a sign of life, by when they began to, oldest first.
        self._waiting: dict[object, float] = {}
        # Those without any sign so far, whether it was ejected for it or not.
        self._asked: dict[object, float] = {}
        self._alive_at = 0.0
        self._looked_at = -math.inf
        self.state: State = "fit"
        self.ejections = 0
        self.stalled_s = settings.stalled_s

    def admits(self, now: float) -> bool:
        """Whether a request may go there now."""
        self.look(now)
        if self.state == "fit":
            return True
        return self.state == "ejected" and self.rests_s(now) == 0

    def rests_s(self, now: float) -> float:
        """Seconds until a request may go there; of a trial, until it is over at the latest.

        While looks at it find it dead, no client's request is spent on trying it.
        """
        if self.state == "fit":
            return 0.0
        if self.state == "trial":
            return self.stalled_s
        until = self._until
        if self._dead_at is not None:
            until = max(until, self._dead_at + DEAD_S)
        return max(0.0, until - now)

    def expect(self, first_token_s: float) -> None:
        """Nine of ten first tokens come within this: silence is judged by it."""
        usual = max(LEAST_STALL_S, STALL_FACTOR * first_token_s)
        self.stalled_s = min(self._settings.stalled_s, usual)

    def silent(self, since: float, now: float) -> bool:
        """Whether a wait for a first token since then speaks against it: a long one, and nothing
        has come from it meanwhile.
        """
        return now - since >= LEAST_STALL_S and self._alive_at < since

    def began(self, request: object, now: float, *, asked: bool = True) -> None:
        """A request has a place there; the first after a rest is the trial.

        ``asked``: it waits for a sign of life from now on; else from ``asked``.
        """
        if self.state == "ejected" and self.rests_s(now) == 0:
            self.state = "trial"
        if asked:
            self.asked(request, now)

    def asked(self, request: object, now: float) -> None:
        """The request went to the engine."""
        self._waiting[request] = self._asked[request] = now

    def hung(self, now: float) -> tuple[object, ...]:
        """Those who wait for their first token, if nothing at all has come from it for too long.

        One of them alone may just have a long prompt.
        """
        if not self._asked:
            return ()
        silent_since = max(self._alive_at, next(iter(self._asked.values())))
        return tuple(self._asked) if now - silent_since > self.stalled_s else ()

    def overdue(self) -> int:
        """Requests without a first token that had been asked by the look before this one."""
        count = sum(1 for _ in itertools.takewhile(self._looked_at.__ge__, self._asked.values()))
        self._looked_at = next(reversed(self._asked.values()), self._looked_at)
        return count

    def alive(self, request: object, now: float) -> None:
        """A token came: the request waits for its next one from now."""
        self._alive_at = now
        if self._asked:
            self._asked.pop(request, None)
        if request in self._waiting:
            del self._waiting[request]
            self._waiting[request] = now
        if self.state == "trial":
            self._recover()
        self._failures = 0

    def ended(self, request: object, now: float, *, ok: bool | None) -> None:
        """The request is over: it worked, it failed, or (None) its client left."""
        self._waiting.pop(request, None)
        self._asked.pop(request, None)
        if ok:
            if self.state != "fit":
                self._recover()
            self._failures = 0
        elif ok is False:
            self._failures += 1
            if self.state == "trial" or self._failures >= self._settings.failures:
                self._eject(now)
        elif self.state == "trial":
            # It proved nothing; the next one tries.
            self.state = "ejected"

    def probed(self, now: float, *, ok: bool) -> None:
        """An active health check answered, or did not."""
        if not ok:
            self._dead_at = now
            if self.state == "fit":
                self._eject(now)
        elif self.state == "ejected":
            if self._dead_at is not None:
                self._until = min(self._until, self._dead_at + self._settings.rest_s)
            if now >= self._until:
                self._recover()

    def look(self, now: float) -> None:
        """Eject it if a request on it has shown no sign of life for too long."""
        if self.state == "ejected" or not self._waiting:
            return
        oldest = next(iter(self._waiting.values()))
        if now - oldest > self.stalled_s:
            self._eject(now)

    def _eject(self, now: float) -> None:
        if self.state == "ejected" and now < self._until:
            return
        self.state = "ejected"
        self.ejections += 1
        self._until = now + self._rest_s
        self._rest_s = min(self._settings.max_rest_s, self._rest_s * 2)
        self._failures = 0
        # Those who hang there have been counted: only new ones judge it from here.
        self._waiting.clear()

    def _recover(self) -> None:
        self.state = "fit"
        self._dead_at = None
        self._rest_s = self._settings.rest_s
        self._failures = 0
