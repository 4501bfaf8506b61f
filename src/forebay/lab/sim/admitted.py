"""The production admission in front of simulated engines, unchanged, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.context import Priority
from forebay.kernel.errors import ForebayError, InvalidRequest, RateLimited
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, Router
from forebay.policy.admission import AdmissionSettings, Ask, Claimant, Desk, Entry, PoolRule
from forebay.policy.gate import SAMPLE_S, GateSettings, PoolGate, Ticket

TICK_S = 0.05
UNBOUNDED = 2**31 - 1


class _FleetClock(Clock):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def now(self) -> float:
        return self._fleet.now


class AdmittedRouter:
    """Requests pass the desk; what it sends goes to the replica it chose.

    Input is known exactly here, as if the prompt were built already. ``limits`` of tenants are
    those of ``settings``. Gates of pools not named in ``gates`` have the default settings; a gate
    without ``max_tokens`` lets in what the engine's KV cache holds, as its operator would set it.
    ``lanes`` are pools as admission sees them, each with the fleet's pool that serves it: two may
    share their engines, as two pools of a configuration may name the same addresses.
    """

    def __init__(
        self,
        fleet: Fleet,
        settings: AdmissionSettings,
        gates: Mapping[str, GateSettings],
        lanes: Sequence[tuple[PoolRule, str]] = (),
    ) -> None:
        clock = _FleetClock(fleet)
        self._fleet = fleet
        by_name = {pool.config.name: pool for pool in fleet.pools}
        rules = [rule for rule, _ in lanes] or [_rule(pool, settings) for pool in fleet.pools]
        served_by = {rule.name: name for rule, name in lanes}
        self._pools = {rule.name: by_name[served_by.get(rule.name, rule.name)] for rule in rules}
        made = {
            name: PoolGate(_bounded(gates.get(name), pool), [one.name for one in pool.replicas])
            for name, pool in self._pools.items()
        }
        self.desk = Desk(settings, rules, made, clock, clock)
        self._jobs: dict[Ticket, Job] = {}
        self._ticking = False

    def arrived(self, job: Job, now: float) -> None:
        """Reserve and enter, or be refused."""
        plan = job.plan
        ask = Ask(
            who=Claimant(key=plan.key, user=plan.user, tenant=plan.tenant or "default"),
            route=plan.kind,
            priority=_priority(plan.priority),
            deadline_at=job.deadline_at,
            input_tokens=plan.input_tokens,
            cap=plan.output_tokens,
            session=plan.session,
        )
        try:
            entry = self.desk.reserve(ask)
        except ForebayError as error:
            code = 429 if isinstance(error, RateLimited) else 400
            retry_s = error.retry_after_s if isinstance(error, RateLimited) else 0.0
            if not isinstance(error, RateLimited | InvalidRequest):
                raise
            self._fleet.refuse(job, error.message, code=code, retry_after_s=retry_s)
            return
        job.state = entry
        self._jobs[entry.ticket] = job
        self._carry_out(self.desk.enter(entry))
        if not self._ticking:
            self._ticking = True
            self._fleet.wake_at(now + TICK_S)

    def changed(self, job: Job, event: Event, now: float) -> None:
        """Tell the desk what became of a request."""
        entry = job.state
        assert isinstance(entry, Entry)
        assert entry.gate is not None
        if event is Event.FIRST_TOKEN:
            entry.gate.first_token(entry.ticket, now)
            return
        sequence = job.sequence
        if sequence is not None:
            entry.prompt_tokens = job.plan.input_tokens
            entry.completion_tokens = self._fleet.written(job)
        ok = True if event is Event.FINISHED else False if event is Event.FAILED else None
        del self._jobs[entry.ticket]
        self.desk.leave(entry, ok)
        self._carry_out(entry.gate)

    def woken(self, now: float) -> None:
        """Time passes for replicas that rest or hang, as in the server."""
        self._ticking = bool(self._jobs)
        if self._ticking:
            self._report(now)
            for gate in self.desk.gates.values():
                gate.tick(now)
                gate.judge(now)
                self._carry_out(gate)
            self._fleet.wake_at(now + TICK_S)

    def _report(self, now: float) -> None:
        """Tell how far the long answers have come, as a server sees by their streams."""
        for ticket, job in self._jobs.items():
            entry = job.state
            if ticket.first_token_at is not None and now - ticket.sampled_at >= SAMPLE_S:
                assert isinstance(entry, Entry)
                assert entry.gate is not None
                entry.gate.progress(ticket, self._fleet.written(job), now)

    def _carry_out(self, gate: PoolGate) -> None:
        for ticket in gate.refused():
            job = self._jobs.pop(ticket)
            entry = job.state
            assert isinstance(entry, Entry)
            self.desk.leave(entry, None)
            self._fleet.refuse(job, ticket.reason, retry_after_s=ticket.retry_after_s)
        for ticket in gate.sent():
            job = self._jobs[ticket]
            entry = job.state
            assert isinstance(entry, Entry)
            self._fleet.send(job, self._pools[entry.pool].replicas[ticket.replica])


def admitted(
    settings: AdmissionSettings | None = None,
    gates: Mapping[str, GateSettings] | None = None,
    lanes: Sequence[tuple[PoolRule, str]] = (),
) -> Callable[[Fleet], Router]:
    """A router for ``Fleet``: admission as configured, see ``AdmittedRouter``."""
    return lambda fleet: AdmittedRouter(fleet, settings or AdmissionSettings(), gates or {}, lanes)


def _bounded(settings: GateSettings | None, pool: Pool) -> GateSettings:
    settings = settings or GateSettings()
    if settings.max_tokens:
        return settings
    return msgspec.structs.replace(settings, max_tokens=0.95 * pool.config.engine.kv_tokens)


def _rule(pool: Pool, settings: AdmissionSettings) -> PoolRule:
    config = pool.config
    extra = settings.pools.get(config.name)
    return PoolRule(
        config.name,
        config.max_input_tokens or UNBOUNDED,
        config.max_output_tokens or UNBOUNDED,
        frozenset(extra.tenants) if extra else frozenset(),
        extra.spill_to if extra else (),
    )


def _priority(priority: str | int | None) -> Priority:
    if priority in ("high", "low"):
        return "high" if priority == "high" else "low"
    if isinstance(priority, int):
        return "high" if priority < 0 else "low" if priority > 0 else "normal"
    return "normal"
