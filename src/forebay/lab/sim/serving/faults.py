"""Faults that a replica shows on command, and which of them a request meets.

On the command line a fault is ``kind`` or ``kind:name=value,name=value``, over HTTP a JSON object
with the same names. One fault of each kind can be in force; a new one replaces the old.
"""

from __future__ import annotations

import difflib
import math
import random
from typing import Any, Literal

import msgspec

from forebay.kernel.errors import ConfigError


class Fault(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """What all faults have: ``for_s`` seconds after which it goes by itself; None: never."""

    for_s: float | None = None


class RequestFault(Fault, frozen=True, kw_only=True):
    """A fault that meets ``share`` of the requests, by chance."""

    share: float = 1.0


class Latency(RequestFault, frozen=True, kw_only=True):
    """Time that passes before the engine gets the request."""

    mean_ms: float = 200.0
    distribution: Literal["fixed", "exponential", "lognormal"] = "fixed"
    sigma: float = 1.0
    """Spread of the log-normal one, whose mean is ``mean_ms`` all the same."""

    def draw_s(self, rng: random.Random) -> float:
        """One request's delay in seconds."""
        mean_s = self.mean_ms / 1e3
        if self.distribution == "exponential":
            return mean_s * rng.expovariate(1.0)
        if self.distribution == "lognormal":
            return mean_s * rng.lognormvariate(-(self.sigma**2) / 2, self.sigma)
        return mean_s


class Stall(RequestFault, frozen=True, kw_only=True):
    """Requests are accepted and hang until the fault goes; ``/health`` goes on answering 200."""

    after_tokens: int = 0
    """Tokens that a stream still gets; 0: not even the status line."""


class Error(RequestFault, frozen=True, kw_only=True):
    """The answer is an error."""

    status: int = 500
    retry_after_s: int | None = None


class Death(RequestFault, frozen=True, kw_only=True):
    """The connection is cut in the middle of the answer, as when the process dies."""

    after_tokens: int = 1
    """Tokens that a stream still gets; an answer in one piece never comes."""


class Refuse(Fault, frozen=True, kw_only=True):
    """No new connection: the port is closed, or connections are reset as they come."""

    how: Literal["close", "reset"] = "close"


class SlowStart(Fault, frozen=True, kw_only=True, tag="slow_start"):
    """The engine runs ``factor`` times slower and ``/health`` answers 503."""

    for_s: float | None = 30.0
    factor: float = 4.0


AnyFault = Latency | Stall | Error | Death | Refuse | SlowStart
KINDS: dict[str, type[AnyFault]] = {
    "latency": Latency,
    "stall": Stall,
    "error": Error,
    "death": Death,
    "refuse": Refuse,
    "slow_start": SlowStart,
}


class Command(msgspec.Struct, frozen=True):
    """A fault and the replica it is for; None: the one that was asked, or all at the start."""

    fault: AnyFault
    replica: int | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What one request meets."""

    delay_s: float = 0.0
    stall: Stall | None = None
    error: Error | None = None
    death: Death | None = None


def parse_fault(text: str) -> Command:
    """A fault in the form of the command line; ``ConfigError`` says what is wrong with it."""
    kind, _, rest = text.strip().partition(":")
    values: dict[str, Any] = {"kind": kind.strip()}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(
                f"fault {text}: {item} is not name=value; write for example "
                "error:status=503,share=0.2."
            )
        values[name.strip()] = _number(value.strip())
    return read_fault(values)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_fault(values: dict[str, Any]) -> Command:
    """A fault from its names and values; raises ``ConfigError``."""
    values = dict(values)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(
            f"there is no fault {kind or 'without a kind'}{_nearest(str(kind), KINDS)}; "
            f"there are {', '.join(KINDS)}.",
            param="kind",
        )
    wanted = KINDS[kind]
    names = (*wanted.__struct_fields__, "replica")
    for name in values:
        if name not in names:
            raise ConfigError(
                f"fault {kind} has no {name}{_nearest(name, names)}; it has {', '.join(names)}.",
                param=name,
            )
    try:
        replica = msgspec.convert(values.pop("replica", None), int | None)
        fault = msgspec.convert({"kind": kind, **values}, wanted)
    except msgspec.ValidationError as error:
        what = str(error).replace("`", "").replace(" - at $.", ", at ")
        raise ConfigError(f"fault {kind}: {what[:1].lower()}{what[1:]}.") from error
    _check(kind, fault)
    if replica is not None and replica < 0:
        raise ConfigError(f"fault {kind}: replica must be 0 or more, not {replica}.")
    return Command(fault, replica)


_BOUNDS = {
    "for_s": (0.0, math.inf),
    "share": (0.0, 1.0),
    "mean_ms": (0.0, 3_600_000.0),
    "sigma": (0.0, 5.0),
    "after_tokens": (0, 10_000_000),
    "status": (400, 599),
    "retry_after_s": (0, 86_400),
    "factor": (1.0, 1000.0),
}


def _check(kind: str, fault: AnyFault) -> None:
    for name, (least, most) in _BOUNDS.items():
        value = getattr(fault, name, None)
        if value is not None and not least <= value <= most:
            until = "" if math.isinf(most) else f" to {most:g}"
            more = " or more" if math.isinf(most) else ""
            raise ConfigError(
                f"fault {kind}: {name} must be {'from ' if until else ''}{least:g}{until}{more}, "
                f"not {value:g}.",
                param=name,
            )


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


class Faults:
    """The faults of one replica that are in force; chance comes from ``rng``."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._known: dict[str, tuple[AnyFault, float]] = {}

    def put(self, fault: AnyFault, now: float) -> None:
        """Let a fault be in force from now on."""
        until = math.inf if fault.for_s is None else now + fault.for_s
        self._known[_kind(fault)] = (fault, until)

    def clear(self, kind: str | None = None) -> None:
        """End one kind of fault, or all; raises ``ConfigError`` for a kind that does not exist."""
        if kind is None:
            self._known.clear()
        elif kind in KINDS:
            self._known.pop(kind, None)
        else:
            raise ConfigError(f"there is no fault {kind}{_nearest(kind, KINDS)}.", param="kind")

    def expire(self, now: float) -> float | None:
        """Drop what is over; when the next one will be, None for never."""
        over = [kind for kind, (_, until) in self._known.items() if until <= now]
        for kind in over:
            del self._known[kind]
        soonest = min((until for _, until in self._known.values()), default=math.inf)
        return None if math.isinf(soonest) else soonest

    def in_force(self, now: float) -> list[tuple[AnyFault, float | None]]:
        """Every fault with the seconds it has left, None without an end."""
        self.expire(now)
        return [
            (fault, None if math.isinf(until) else until - now)
            for fault, until in self._known.values()
        ]

    @property
    def stalled(self) -> bool:
        """Whether stalled requests stay so."""
        return "stall" in self._known

    @property
    def refusing(self) -> Refuse | None:
        """How connections are refused, if they are."""
        found = self._known.get("refuse")
        return found[0] if found and isinstance(found[0], Refuse) else None

    @property
    def slowness(self) -> float:
        """How many times slower than its profile the engine runs."""
        found = self._known.get("slow_start")
        return found[0].factor if found and isinstance(found[0], SlowStart) else 1.0

    @property
    def starting(self) -> bool:
        """Whether ``/health`` says that the engine is not ready."""
        return "slow_start" in self._known

    def verdict(self) -> Verdict | None:
        """What the next request meets; None: nothing."""
        if not self._known:
            return None
        met = {
            kind: fault
            for kind, (fault, _) in self._known.items()
            if isinstance(fault, RequestFault)
            and (fault.share >= 1 or self._rng.random() < fault.share)
        }
        latency, stall = met.get("latency"), met.get("stall")
        error, death = met.get("error"), met.get("death")
        return Verdict(
            delay_s=latency.draw_s(self._rng) if isinstance(latency, Latency) else 0.0,
            stall=stall if isinstance(stall, Stall) else None,
            error=error if isinstance(error, Error) else None,
            death=death if isinstance(death, Death) else None,
        )


def _kind(fault: AnyFault) -> str:
    return "slow_start" if isinstance(fault, SlowStart) else type(fault).__name__.lower()
