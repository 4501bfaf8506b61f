"""The factor that quotas move by with the pressure of the pools (F1.4).

factor <- max(min_factor, SHRINK x factor) in a second under pressure; after ``QUIET_S`` quiet ones
in a row it rises by ``GROWTH`` a second from 1 up to ``max_factor``; in all others it goes back
towards 1 by ``BACK``. Multiplicative decrease and additive increase: many processes that see
the same engines come to the same factor.

A second is under pressure when the gates refused ``PEAK_SHARE`` of those that came, or when lines
stood all through it before pools that hold half of the work; it is quiet when nobody was refused,
nobody waited and less than ``QUIET_USE`` of the limits was in use.

Only the refill follows it, not the burst: whatever fits a quota goes on fitting it. And it shrinks
only what is above the fair share, which is what was served of late by the number of tenants that
came: a factor for all alike would take from those within their part what the line gives them, and
leave it to those who ask for more (``tests/sim/test_load_factor.py``). The limit of the whole
service is the operator's own number and stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError

WINDOW_S = 1.0
SHRINK, BACK, GROWTH, GRAIN = 0.95, 0.03, 0.01, 0.05
"""Limits follow in grains: each other limit is a bucket to be resized, in every process."""
PEAK_SHARE, LEAST_REFUSED, QUIET_USE, QUIET_S = 0.02, 3, 0.7, 10
NEWEST, SHARE_GRAIN = 0.2, 1.1
"""Weight of the newest second in what is served, and how far a fair share must move to count."""
Load = Literal["peak", "usual", "quiet"]


class Pacing(NamedTuple):
    """How refills are changed: by ``factor``, those at most ``fair_per_s`` never to less."""

    factor: float = 1.0
    fair_per_s: float = math.inf

    def of(self, rate_per_s: float) -> float:
        """The refill in place of ``rate_per_s``."""
        if self.factor >= 1.0:
            return self.factor * rate_per_s
        return min(rate_per_s, max(self.fair_per_s, self.factor * rate_per_s))


STEADY = Pacing()


class Factors(msgspec.Struct, frozen=True):
    """What quotas are multiplied by, part by part.

    ``operator`` and ``window`` change refill and burst, ``load`` the refill of those above
    ``fair_per_s`` alone (None: not known); ``state`` is what moves it.
    """

    operator: float = 1.0
    window: float = 1.0
    load: float = 1.0
    refill: float = 1.0
    fair_per_s: float | None = None
    state: Load = "usual"


class LoadSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far quotas follow the load of the pools."""

    enabled: Annotated[
        bool, Meta(description="Let the refill of every quota follow the pressure of the pools.")
    ] = False
    min_factor: Annotated[
        float,
        Meta(description="What is left of a refill at a peak, whatever comes.", gt=0.0, le=1.0),
    ] = 0.5
    max_factor: Annotated[
        float, Meta(description="What a refill grows to in quiet hours.", ge=1.0, le=100.0)
    ] = 1.25

    def __post_init__(self) -> None:
        if self.min_factor == self.max_factor == 1.0 and self.enabled:
            raise ConfigError(
                "admission.load is enabled, but its factors leave quotas as they are; lower "
                "min_factor or raise max_factor.",
                param="admission.load",
            )


class Pressed(Protocol):
    """A gate as far as its pressure goes."""

    @property
    def loads(self) -> Sequence[object]:
        """Its replicas."""
        ...

    def statistics(self) -> Mapping[str, float]:
        """Who waits, who is in work, the limit of each replica."""
        ...


class LoadFactor:
    """The factor in force; ``told`` hears of each other grain, and the load it came with."""

    def __init__(self, settings: LoadSettings) -> None:
        self.settings = settings
        self.told: Callable[[float, Load], None] | None = None
        self.exact = 1.0
        self.pacing = STEADY
        self.processes = 1
        self.load: Load = "usual"
        self._came: set[str] = set()
        self._asked = self._refused = self._quiet_s = 0
        self._served = 0.0
        self._served_per_s: float | None = None
        self._until: float | None = None
        self._stood: dict[str, bool] = {}
        self._idle = True

    def replace(self, settings: LoadSettings) -> None:
        """Other bounds from now on; the factor moves into them."""
        self.settings = settings
        self._move(self.exact if settings.enabled else 1.0)

    @property
    def factor(self) -> float:
        """The factor in force."""
        return self.pacing.factor

    def came(self, tenant: str) -> None:
        """A request came to a gate."""
        if self.settings.enabled:
            self._asked += 1
            self._came.add(tenant)

    def left(self, cost: float, *, refused: bool) -> None:
        """One is over and paid ``cost``, or a gate refused it."""
        if self.settings.enabled:
            self._served += cost
            self._refused += refused

    def look(self, now: float, gates: Mapping[str, Pressed]) -> None:
        """See the gates as they are; the factor moves once a second."""
        if not self.settings.enabled:
            return
        if self._until is None:
            self._until = now + WINDOW_S
        work = self._see(gates)
        if now >= self._until:
            self._until = now + WINDOW_S
            self._judge(work)
            self._asked = self._refused = 0
            self._came.clear()
            self._stood.clear()
            self._idle = True

    def statistics(self) -> dict[str, float]:
        """The factor in force, and the refill that it leaves to everybody; 0: not known."""
        fair = self.pacing.fair_per_s
        return {
            "load_factor": self.factor,
            "fair_per_s": 0.0 if math.isinf(fair) else fair,
        }

    def _see(self, gates: Mapping[str, Pressed]) -> dict[str, float]:
        work = {}
        for name, gate in gates.items():
            seen = gate.statistics()
            waits, limit = seen.get("queue_waiting", 0.0) > 0, seen.get("limit", 0.0)
            work[name] = seen.get("in_flight", 0.0)
            self._stood[name] = waits and self._stood.get(name, True)
            self._idle &= not waits and work[name] <= QUIET_USE * limit * len(gate.loads)
        return work

    def _share(self) -> float:
        """What each tenant that came may have of what is served, in all processes together."""
        served, self._served = self._served / WINDOW_S, 0.0
        before = self._served_per_s
        self._served_per_s = served if before is None else before + NEWEST * (served - before)
        if not self._came or not self._served_per_s:
            return math.inf
        # Requests are spread over the processes, tenants are the same in all of them.
        return self.processes * self._served_per_s / len(self._came)

    def _judge(self, work: Mapping[str, float]) -> None:
        fair, was = self._share(), self.pacing.fair_per_s
        if math.isinf(was) or not was / SHARE_GRAIN <= fair <= was * SHARE_GRAIN:
            self.pacing = self.pacing._replace(fair_per_s=fair)
        stood = sum(work[name] for name, stands in self._stood.items() if stands)
        many = self._refused >= max(LEAST_REFUSED, PEAK_SHARE * self._asked)
        if many or 0 < sum(work.values()) <= 2 * stood:
            self.load, self._quiet_s = "peak", 0
            self._move(SHRINK * min(1.0, self.exact))
            return
        quiet = self._idle and not self._refused
        self._quiet_s = self._quiet_s + 1 if quiet else 0
        self.load = "quiet" if self._quiet_s >= QUIET_S else "usual"
        aim = self.settings.max_factor if self.load == "quiet" else 1.0
        if self.exact < aim:
            self._move(min(aim, self.exact + (BACK if self.exact < 1.0 else GROWTH)))
        else:
            self._move(max(aim, self.exact - BACK))

    def _move(self, exact: float) -> None:
        bounds = self.settings
        self.exact = min(bounds.max_factor, max(bounds.min_factor, exact))
        # A grain is left only when the next one is reached, so that it does not flap at its edge.
        if abs(self.exact - self.factor) >= GRAIN - 1e-9 or self.exact in (
            1.0, bounds.min_factor, bounds.max_factor
        ):  # fmt: skip
            was, self.pacing = self.factor, self.pacing._replace(factor=round(self.exact, 4))
            if self.factor != was and self.told is not None:
                self.told(self.factor, self.load)
