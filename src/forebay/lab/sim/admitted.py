"""The production admission in front of simulated engines, unchanged, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.context import Priority
from forebay.kernel.errors import ForebayError, InvalidRequest, RateLimited
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, Router
from forebay.policy.admission import (
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    Entry,
    PoolAdmission,
    PoolRule,
)
from forebay.policy.engine_gate import PROGRESS_S, EngineGate
from forebay.policy.gate import PoolGate, Ticket

TICK_S = 0.05
LOOK_S = 1.0


class _FleetClock(Clock):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def now(self) -> float:
        return self._fleet.now


class AdmittedRouter:
    """Requests pass the desk; what it sends goes to the replica it chose.

    Input is known exactly here, as if the prompt were built already. ``settings`` are those of a
    server; its pools go by the names of the fleet's. A gate without ``max_tokens`` lets in what
    the engine's KV cache holds, as its operator would set it.
    """

    def __init__(self, fleet: Fleet, settings: AdmissionSettings) -> None:
        clock = _FleetClock(fleet)
        self._fleet = fleet
        self._pools: dict[str, Pool] = {}
        rules: list[PoolRule] = []
        gates: dict[str, PoolGate] = {}
        for pool in fleet.pools:
            how = _bounded(settings.pools.get(pool.config.name), pool)
            rule = _rule(pool, how)
            rules.append(rule)
            gates[rule.name] = EngineGate(how.gate, [one.name for one in pool.replicas])
            self._pools[rule.name] = pool
        self.desk = Desk(settings, rules, gates, clock, clock)
        self._jobs: dict[Ticket, Job] = {}
        self._ticking = False
        self._looks_at = 0.0

    def arrived(self, job: Job, now: float) -> None:
        """Reserve and enter, or be refused."""
        plan = job.plan
        ask = Ask(
            who=Claimant(key=plan.key, user=plan.user, tenant=plan.tenant or "default"),
            route="chat",  # a server has one route for all kinds of questions
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
            self.desk.tick(now)
            if now >= self._looks_at:
                self._look()
                self._looks_at = now + LOOK_S
            for gate in self.desk.gates.values():
                gate.tick(now)
                gate.judge(now)
                self._carry_out(gate)
            self._fleet.wake_at(now + TICK_S)

    def _report(self, now: float) -> None:
        """Tell how far the long answers have come, as a server sees by their streams."""
        for ticket, job in self._jobs.items():
            entry = job.state
            if ticket.first_token_at is not None and now - ticket.sampled_at >= PROGRESS_S:
                assert isinstance(entry, Entry)
                assert entry.gate is not None
                entry.gate.progress(ticket, self._fleet.written(job), now)

    def _look(self) -> None:
        """Tell the gates what a server reads on its engines' metrics pages."""
        for name, gate in self.desk.gates.items():
            for number, replica in enumerate(self._pools[name].replicas):
                seen = self._fleet.figures(replica)
                gate.signals(number, waiting=seen.waiting, kv_use=seen.kv_use)

    def _carry_out(self, gate: PoolGate) -> None:
        while refused := gate.refused():  # one that leaves may let others in, or out
            for ticket in refused:
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


def admitted(settings: AdmissionSettings | None = None) -> Callable[[Fleet], Router]:
    """A router for ``Fleet``: admission as configured."""
    return lambda fleet: AdmittedRouter(fleet, settings or AdmissionSettings())


def _bounded(how: PoolAdmission | None, pool: Pool) -> PoolAdmission:
    how = how or PoolAdmission()
    if how.gate.max_tokens:
        return how
    most = 0.95 * pool.config.engine.kv_tokens
    gate = msgspec.structs.replace(how.gate, max_tokens=most)
    return msgspec.structs.replace(how, gate=gate)


def _rule(pool: Pool, how: PoolAdmission) -> PoolRule:
    config = pool.config
    window = config.engine.max_model_len
    return PoolRule(
        config.name,
        config.max_input_tokens or window,
        config.max_output_tokens or window,
        frozenset(how.tenants),
        how.spill_to,
        priorities=frozenset(how.priorities),
    )


def _priority(priority: str | int | None) -> Priority:
    if priority in ("high", "low"):
        return "high" if priority == "high" else "low"
    if isinstance(priority, int):
        return "high" if priority < 0 else "low" if priority > 0 else "normal"
    return "normal"
