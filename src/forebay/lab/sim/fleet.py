"""Pools of engines behind a router, on a virtual clock.

The router is the seam for policies of admission, queueing and balance: it decides, in synchronous
functions of numbers and time, where a request goes, whether it waits and whether it is refused.
The fleet carries out and tells back: first tokens, ends, clients that left. Events of one moment
come in this order: engines, deadlines, the router's own alarms, arrivals.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.result import DISCONNECTED, HTTP_ERROR, OK, REFUSED, TIMEOUT
from forebay.lab.sim.engine import Engine, EngineConfig, EngineStatistics, RequestTooLong
from forebay.lab.sim.prefixes import block_hashes
from forebay.lab.sim.sequence import Sequence as EngineSequence
from forebay.lab.sim.steps import StepModel
from forebay.lab.workload.request import PlannedRequest

PRIORITIES = {"high": -1, "normal": 0, "low": 1}
"""Names of priority as engines take them: lower goes first."""

_MAX_REPLICAS = 10_000
_AFTER_ENGINES = 1 << 61
_AFTER_DEADLINES = 1 << 62


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas with one purpose."""

    engine: EngineConfig
    name: str = "default"
    replicas: Annotated[int, Meta(ge=1)] = 1
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_waiting: int | None = None
    """Requests that may wait inside one replica; None: engines themselves have no bound."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"pool {self.name} needs at least one replica, not {self.replicas}")
        if self.replicas > _MAX_REPLICAS:
            raise ConfigError(f"pool {self.name} may have {_MAX_REPLICAS} replicas at most")
        for most in (self.max_input_tokens, self.max_output_tokens):
            if most is not None and most < 1:
                raise ConfigError(f"pool {self.name} takes requests of at least one token")
        if self.max_waiting is not None and self.max_waiting < 0:
            raise ConfigError(f"max_waiting of pool {self.name} must not be negative")

    def takes(self, plan: PlannedRequest) -> bool:
        """Whether the request is within the pool's caps."""
        return (self.max_input_tokens is None or plan.input_tokens <= self.max_input_tokens) and (
            self.max_output_tokens is None or plan.output_tokens <= self.max_output_tokens
        )


class Replica:
    """One engine and what the fleet has sent there."""

    __slots__ = ("due_at", "engine", "in_flight", "name", "number", "outstanding_tokens", "pool")

    def __init__(self, pool: Pool, number: int, engine: Engine) -> None:
        self.pool = pool
        self.number = number  # within its pool
        self.name = f"{pool.config.name}-{number}"
        self.engine = engine
        self.in_flight = 0
        self.outstanding_tokens = 0  # of those in flight, in and out
        self.due_at = -1.0


class Pool:
    """The replicas of one ``PoolConfig``."""

    __slots__ = ("config", "replicas")

    def __init__(self, config: PoolConfig, steps: StepModel) -> None:
        self.config = config
        self.replicas = [
            Replica(self, number, Engine(config.engine, steps)) for number in range(config.replicas)
        ]


class Event(enum.Enum):
    """What became of a request after the router let it in."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - a token of text
    FINISHED = "finished"
    LEFT = "left"
    """The client gave up: it may stand in the router's queue or on a replica."""
    FAILED = "failed"
    """The engine can never take it."""


class Job:
    """One request in the fleet; ``state`` is the router's own."""

    __slots__ = (
        "at_s",
        "code",
        "ended_at",
        "plan",
        "reason",
        "replica",
        "retry_after_s",
        "sequence",
        "state",
        "status",
    )

    def __init__(self, plan: PlannedRequest, at_s: float) -> None:
        self.plan = plan
        self.at_s = at_s  # the intended start
        self.replica: Replica | None = None
        self.sequence: EngineSequence | None = None
        self.status = ""  # one of measure.result.STATUSES once it ended
        self.code = 0
        self.reason = ""
        self.retry_after_s = 0.0
        self.ended_at = 0.0
        self.state: object = None

    @property
    def deadline_at(self) -> float:
        """When its answer is of no use any more; infinite without a deadline."""
        return math.inf if self.plan.deadline_s is None else self.at_s + self.plan.deadline_s


class Router(Protocol):
    """Decides about requests by calling the fleet's ``send``, ``refuse`` and ``wake_at``.

    It may read what a gateway could know: the plan, ``written`` tokens, an engine's ``figures``.
    A request that is neither sent nor refused when a method returns waits with the router, until
    it is sent, refused or LEFT. Every method may decide about any request.
    """

    def arrived(self, job: Job, now: float) -> None:
        """A new request."""
        ...

    def changed(self, job: Job, event: Event, now: float) -> None:
        """Something happened to a request that was let in; those it refused are not told."""
        ...

    def woken(self, now: float) -> None:
        """The time that ``wake_at`` named has come."""
        ...


class Fleet:
    """All pools, their router and what is due when.

    ``ended`` is called once for each request, with its ``status`` set. Clients with a deadline
    give up when it passes, unless ``leaves`` is false.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        router: Callable[[Fleet], Router],
        ended: Callable[[Job], None],
        *,
        leaves: bool = True,
    ) -> None:
        if not pools:
            raise ConfigError("a fleet needs at least one pool")
        names = [pool.config.name for pool in pools]
        if len(set(names)) < len(names):
            raise ConfigError(f"two pools are named {max(names, key=names.count)}; rename one")
        self.pools = tuple(pools)
        self.live = 0
        self.now = 0.0
        self._ended = ended
        self._leaves = leaves
        self._due: list[tuple[float, int, Replica | Job | None]] = []
        self._order = itertools.count()
        self._deadline_order = itertools.count(_AFTER_ENGINES)
        self._alarm_order = itertools.count(_AFTER_DEADLINES)
        self._numbers = itertools.count()
        self._router = router(self)

    # --- what the run calls -------------------------------------------------------------------

    def arrive(self, plan: PlannedRequest, at_s: float) -> None:
        """A request comes in at ``at_s``, to which the fleet must have been moved."""
        job = Job(plan, at_s)
        self.live += 1
        self.now = at_s
        if self._leaves and plan.deadline_s is not None:
            entry = (at_s + plan.deadline_s, next(self._deadline_order), job)
            heapq.heappush(self._due, entry)
        self._router.arrived(job, at_s)

    def next_event_at(self) -> float:
        """When something is due next; infinite when nothing is."""
        return self._due[0][0] if self._due else math.inf

    def run_until(self, at_s: float) -> None:
        """Let everything happen that is due up to and including ``at_s``."""
        due = self._due
        while due and due[0][0] <= at_s:
            now, _, what = heapq.heappop(due)
            if type(what) is Replica:
                if what.due_at == now:
                    self.now = now
                    self._move(what, now)
            elif type(what) is Job:
                if not what.status:
                    self.now = now
                    self._leave(what, now)
            else:
                self.now = now
                self._router.woken(now)
        self.now = at_s

    def step(self) -> None:
        """Let happen what is due next, and all that is due at the same moment."""
        self.run_until(self._due[0][0])

    # --- what the router calls ----------------------------------------------------------------

    def send(self, job: Job, replica: Replica) -> None:
        """Hand a request to an engine; one that can never fit fails at once."""
        if job.status or job.replica is not None:
            raise RuntimeError(f"request {job.plan.index} is decided about twice")
        plan = job.plan
        output_tokens = plan.output_tokens
        leaves_after = plan.disconnect_after_tokens
        if leaves_after is not None and leaves_after < output_tokens:
            # The client goes with this token: to the engine it is as if the answer ended there.
            output_tokens = max(1, leaves_after)
        sequence = EngineSequence(next(self._numbers), plan.input_tokens, output_tokens)
        if plan.prefix:
            hashes, size = block_hashes(plan, replica.engine.config.block_tokens)
            sequence.block_hashes, sequence.hash_tokens = hashes, size
        if plan.priority is not None:
            sequence.priority = _priority(plan.priority)
        sequence.tag = job
        now = self.now
        try:
            replica.engine.submit(sequence, now)
        except RequestTooLong as error:
            job.code, job.reason = 400, error.message
            self._end(job, HTTP_ERROR, now)
            self._router.changed(job, Event.FAILED, now)
            return
        job.sequence = sequence
        job.replica = replica
        replica.in_flight += 1
        replica.outstanding_tokens += plan.input_tokens + plan.output_tokens
        self._arm(replica)

    def refuse(self, job: Job, reason: str, *, code: int = 503, retry_after_s: float = 1.0) -> None:
        """Turn a request away: 503 for the system's limit, 429 for a tenant's."""
        if job.status or job.replica is not None:
            raise RuntimeError(f"request {job.plan.index} is decided about twice")
        job.reason, job.code, job.retry_after_s = reason, code, retry_after_s
        self._end(job, REFUSED, self.now)

    def wake_at(self, at_s: float) -> None:
        """Have ``woken`` called at this time."""
        entry = (max(at_s, self.now), next(self._alarm_order), None)
        heapq.heappush(self._due, entry)

    def written(self, job: Job) -> int:
        """Tokens of the answer so far."""
        if job.replica is None or job.sequence is None:
            return 0
        job.replica.engine.look(self.now)
        return job.replica.engine.produced(job.sequence)

    def figures(self, replica: Replica) -> EngineStatistics:
        """What the engine would show on its metrics page now."""
        replica.engine.look(self.now)
        return replica.engine.statistics()

    # --- inside -------------------------------------------------------------------------------

    def _arm(self, replica: Replica) -> None:
        """Put the replica's next event into the calendar, if it changed."""
        due_at = replica.engine.next_event_at()
        if due_at is not None and due_at != replica.due_at:
            replica.due_at = due_at
            heapq.heappush(self._due, (due_at, next(self._order), replica))

    def _move(self, replica: Replica, now: float) -> None:
        replica.due_at = -1.0
        progress = replica.engine.advance(now)
        self._arm(replica)
        for sequence in progress.first_tokens:
            job = sequence.tag
            assert type(job) is Job
            self._router.changed(job, Event.FIRST_TOKEN, now)
        for sequence in progress.finished:
            job = sequence.tag
            assert type(job) is Job
            self._leave_replica(job, replica)
            left = sequence.output_tokens < job.plan.output_tokens
            self._end(job, DISCONNECTED if left else OK, now)
            self._router.changed(job, Event.LEFT if left else Event.FINISHED, now)

    def _leave(self, job: Job, now: float) -> None:
        """The client gives up."""
        replica = job.replica
        if replica is not None and job.sequence is not None:
            replica.engine.cancel(job.sequence, now)
            self._leave_replica(job, replica)
            self._arm(replica)
        self._end(job, TIMEOUT, now)
        self._router.changed(job, Event.LEFT, now)

    @staticmethod
    def _leave_replica(job: Job, replica: Replica) -> None:
        plan = job.plan
        replica.in_flight -= 1
        replica.outstanding_tokens -= plan.input_tokens + plan.output_tokens

    def _end(self, job: Job, status: str, now: float) -> None:
        job.status = status
        job.ended_at = now
        self.live -= 1
        if job.sequence is not None:
            job.sequence.tag = None  # no cycle is left for the collector
        self._ended(job)


def _priority(priority: str | int) -> int:
    if isinstance(priority, int):
        return priority
    found = PRIORITIES.get(priority)
    if found is None:
        raise ConfigError(f"priority {priority!r} is none of {', '.join(PRIORITIES)}")
    return found
