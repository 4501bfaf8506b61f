"""The production gate of a pool, unchanged, as a router of the simulated fleet."""

from __future__ import annotations

import math

from forebay.lab.measure.result import Run, RunResult
from forebay.lab.sim.engine import EngineConfig
from forebay.lab.sim.fleet import Event, Fleet, Job, PoolConfig
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.testing.steps import LinearSteps

TICK_S = 0.1


class GateRouter:
    """Numbers and time into the gate, its decisions out to the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._replicas = fleet.pools[0].replicas
        self.gate = PoolGate(GateSettings(), [replica.name for replica in self._replicas])
        self._jobs: dict[Ticket, Job] = {}
        fleet.wake_at(TICK_S)

    def arrived(self, job: Job, now: float) -> None:
        plan = job.plan
        ticket = Ticket(cost=plan.input_tokens + plan.output_tokens, deadline_at=job.deadline_at)
        ticket.input_tokens, ticket.output_tokens = plan.input_tokens, plan.output_tokens
        ticket.expected_tokens = plan.output_tokens
        job.state = ticket
        self._jobs[ticket] = job
        self.gate.arrive(ticket, now)
        self._carry_out()

    def changed(self, job: Job, event: Event, now: float) -> None:
        ticket = job.state
        assert isinstance(ticket, Ticket)
        if event is Event.FIRST_TOKEN:
            self.gate.first_token(ticket, now)
        else:
            ok = {Event.FINISHED: True, Event.LEFT: None}.get(event, False)
            self.gate.finish(ticket, now, ok=ok)
            self._jobs.pop(ticket, None)
        self._carry_out()

    def woken(self, now: float) -> None:
        self.gate.tick(now)
        self._carry_out()
        self._fleet.wake_at(now + TICK_S)

    def _carry_out(self) -> None:
        for ticket in self.gate.refused():
            job = self._jobs.pop(ticket)
            self._fleet.refuse(job, ticket.reason, retry_after_s=ticket.retry_after_s)
        for ticket in self.gate.sent():
            self._fleet.send(self._jobs[ticket], self._replicas[ticket.replica])


def overloaded(gated: bool) -> RunResult:
    """Three times what two replicas can do, answers of use for three seconds."""
    kind = Kind(name="k", input_tokens=400, output_tokens=100, deadline_s=3.0)
    workload = Workload(
        WorkloadSpec(kinds=(kind,), arrivals=PoissonArrivals(rate=100.0, duration_s=60.0))
    )
    engine = EngineConfig(kv_tokens=100_000, max_num_seqs=64)
    pools = [(PoolConfig(engine=engine, replicas=2), LinearSteps())]
    router = GateRouter if gated else None
    return simulate(workload, pools, Run(source="simulation"), VirtualOptions(), router)


def test_the_gate_keeps_goodput_up_where_sending_everything_on_loses_it() -> None:
    direct, gated = overloaded(False), overloaded(True)
    assert gated.total.statuses["refused"] > 1000
    assert direct.total.goodput_per_s < 1.0 < 10.0 < gated.total.goodput_per_s
    assert math.isfinite(gated.total.total.p99_s)
