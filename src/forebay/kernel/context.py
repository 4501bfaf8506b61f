"""The one explicit context that travels with a request; no stage reads a global."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Literal, Protocol

import msgspec

from forebay.kernel.caching import Served
from forebay.kernel.clock import Clock, Deadline

Priority = Literal["low", "normal", "high"]
SceneName = Literal["faq", "report", "code", "document"]
"""Scenes that are known by a request's text; operators may make others."""
StageOutcome = Literal["ok", "error", "timeout", "cancelled", "skipped"]


class Plan(msgspec.Struct, frozen=True):
    """What a tenant has bought; None: no bound of its own.

    ``burst_tokens`` is what may be used at once; None: a minute's worth. ``weight`` is the tenant's
    share where tenants wait for one another.
    """

    tokens_per_minute: int | None = None
    burst_tokens: int | None = None
    max_in_flight: int | None = None
    weight: float = 1.0


HedgeOutcome = Literal["won", "lost", "failed", "alone"]
"""Of a second replica: it was first, it was not, it failed, or it goes on as the first failed."""


class Hedging(Protocol):
    """Whether a late request may ask a second replica, and what came of it."""

    def after_s(self) -> float | None:
        """Seconds after which a first token is late; None: not known."""
        ...

    def begin(self) -> int | None:
        """The second replica by its number; None: nobody may be asked."""
        ...

    def ended(self, second: int, outcome: HedgeOutcome) -> None:
        """One of the two goes on."""
        ...


class Placement(Protocol):
    """Where admission put a request: a replica of a pool, by its number there."""

    pool: str
    replica: int

    def unless_hung(self, leave: Callable[[], None] | None) -> None:
        """What to do when the replica hangs and another may be tried; None: nothing any more."""
        ...

    @property
    def hedging(self) -> Hedging | None:
        """How a second replica may be asked; None: not at all."""
        ...

    @property
    def max_output_tokens(self) -> int:
        """Output tokens the request may write."""
        ...

    def token(self) -> None:
        """The engine gave a sign of life."""
        ...

    def again(self) -> bool:
        """The replica failed before its first token: whether another was found (``replica``)."""
        ...


class RateState(msgspec.Struct, frozen=True):
    """The tightest token quota of a request just after it was charged."""

    limit_tokens: int
    remaining_tokens: int
    reset_s: float


class Principal(msgspec.Struct, frozen=True):
    """Who is asking, after keys and narrowing headers have been applied.

    ``groups`` None means all rights (no keys configured, loopback). ``knowledge`` None means
    every knowledge base.
    """

    tenant: str = "default"
    key_id: str = "anonymous"
    user: str | None = None
    groups: frozenset[str] | None = None
    knowledge: frozenset[str] | None = None
    default_kb: str | None = None
    admin: bool = False
    operator: bool = False
    priority: Priority = "normal"
    business_line: str = ""
    plan: Plan = Plan()

    def may_read(self, kb: str) -> bool:
        """Whether this principal may know that ``kb`` exists."""
        return self.knowledge is None or kb in self.knowledge


class Scene(msgspec.Struct, frozen=True):
    """What a request is for, and what that gives it.

    ``name`` is what it is charged, placed and bounded as; ``read_as`` what rules or its text said,
    whatever its client asked for. ``pool``: where it goes if its prompt fits; empty: any.
    ``max_output_tokens`` and ``deadline_ms`` None: no bound, no time of its own.
    """

    name: str = ""
    read_as: str = ""
    pool: str = ""
    max_output_tokens: int | None = None
    deadline_ms: int | None = None


NO_SCENE = Scene()


class StageRecord(msgspec.Struct):
    """How long one stage waited and then worked, in seconds on the request's clock.

    It began to wait at ``started_at``; ``worked_s`` is known when it no longer is ``running``.
    """

    name: str
    started_at: float
    waited_s: float = 0.0
    worked_s: float = 0.0
    running: bool = False
    outcome: StageOutcome = "ok"
    attributes: dict[str, str | int | float | bool] = {}


class Degradation(msgspec.Struct, frozen=True):
    """One step down that was taken, and why; shown in answer, header, metric, trace and log."""

    stage: str
    rung: str
    reason: str


class Coverage(msgspec.Struct, frozen=True, array_like=True):
    """The share of a knowledge base's chunks that each leg could see; None: it was not needed."""

    words: float | None = None
    vectors: float | None = None


TextSink = Callable[[str], bool]
"""Takes text at once, after what an answer's stream gave before; False: it took this, and the rest
goes through the stream again, which waits for slow readers. Never raises.

``RequestContext.sink`` is the client's, set by whoever writes to it; who needs to see all text of
an answer takes it away. ``direct`` leads there from the generator, once its answer has begun; the
answering life sets it.
"""

SHARED_HIT = "shared"
"""What ``RequestContext.cache`` says of a hit that only other tenants' requests account for."""


class RequestContext:
    """Everything a stage may know about the request it works for.

    Mutable on purpose in few places only: ``stages``, ``degradations``, ``address`` (the client's,
    set by the gateway), ``placement`` and ``rate`` (set by admission), ``kb_version`` (pinned by
    retrieval), ``served`` (which version may be served, told when the query began), ``scene`` and
    ``deadline`` (when its text is known), ``labels`` (what the request is, in words of which there
    are few; told in the log), ``sink`` and ``direct`` (where text may go past the layers between an
    engine's read and the client's write).
    """

    __slots__ = (
        "address",
        "cache",
        "clock",
        "coverage",
        "deadline",
        "degradations",
        "direct",
        "kb_version",
        "labels",
        "no_cache",
        "placement",
        "principal",
        "rate",
        "request_id",
        "rung",
        "scene",
        "served",
        "sink",
        "stages",
        "started_at",
        "traceparent",
    )

    def __init__(
        self,
        *,
        request_id: str,
        principal: Principal,
        deadline: Deadline,
        clock: Clock,
        traceparent: str | None = None,
        no_cache: bool = False,
    ) -> None:
        self.address = ""
        self.placement: Placement | None = None
        self.rate: RateState | None = None
        self.request_id = request_id
        self.principal = principal
        self.deadline = deadline
        self.clock = clock
        self.traceparent = traceparent
        self.no_cache = no_cache
        self.started_at = clock.now()
        self.stages: list[StageRecord] = []
        self.degradations: list[Degradation] = []
        self.kb_version: int | None = None
        self.rung: str | None = None
        self.coverage: Coverage | None = None
        self.scene = NO_SCENE
        self.served: Served | None = None
        self.labels: dict[str, str] = {}
        self.sink: TextSink | None = None
        self.direct: TextSink | None = None
        self.cache: dict[str, str] = {"embedding": "off", "retrieval": "off", "answer": "off"}

    def like(self, request_id: str) -> RequestContext:
        """The context of an equal request that was told the same of its answer."""
        other = RequestContext(
            request_id=request_id,
            principal=self.principal,
            deadline=self.deadline,
            clock=self.clock,
            no_cache=self.no_cache,
        )
        other.cache, other.rung, other.kb_version = dict(self.cache), self.rung, self.kb_version
        other.scene = self.scene
        return other

    def part(self, deadline: Deadline | None = None) -> RequestContext:
        """The context of a part of this request: its caller and time, a place of its own.

        ``deadline``: the part has less time than the whole.
        """
        own = RequestContext(
            request_id=self.request_id,
            principal=self.principal,
            deadline=deadline or self.deadline,
            clock=self.clock,
            traceparent=self.traceparent,
            no_cache=self.no_cache,
        )
        own.address, own.served, own.scene = self.address, self.served, self.scene
        return own

    def take_in(self, part: RequestContext) -> None:
        """What a part went through is the request's own; a step down is told once."""
        self.stages += part.stages
        new = [one for one in part.degradations if one not in self.degradations]
        self.degradations += dict.fromkeys(new)

    def told_cache(self) -> dict[str, str]:
        """What the client may know of each cache tier: nothing of what other tenants asked."""
        return {
            tier: "miss" if found == SHARED_HIT else found for tier, found in self.cache.items()
        }

    def stage(self, name: str, *, waited_s: float = 0.0) -> _Stage:
        """Record a stage: its working time and its outcome, also when it raises.

        ``waited_s``: how long it waited before this call.
        """
        return _Stage(self, name, waited_s)

    def degrade(self, stage: str, rung: str, reason: str) -> None:
        """Note a step down the ladder."""
        self.degradations.append(Degradation(stage, rung, reason))


class _Stage:
    """The block of one stage; no generator, since every request has several."""

    __slots__ = ("_began_at", "_clock", "_record", "_records")

    def __init__(self, ctx: RequestContext, name: str, waited_s: float) -> None:
        self._clock = ctx.clock
        self._records = ctx.stages
        self._record = StageRecord(name, 0.0, waited_s=waited_s, running=True, attributes={})

    def __enter__(self) -> StageRecord:
        record, began_at = self._record, self._clock.now()
        self._began_at, record.started_at = began_at, began_at - record.waited_s
        self._records.append(record)
        return record

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        record = self._record
        if kind is not None:
            record.outcome = _outcome(kind)
        record.running = False
        record.worked_s = self._clock.now() - self._began_at


def _outcome(kind: type[BaseException]) -> StageOutcome:
    if issubclass(kind, TimeoutError):
        return "timeout"
    return "error" if issubclass(kind, Exception) else "cancelled"
