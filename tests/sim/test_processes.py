"""Several gateway processes in front of the same engine: together they let in what one would."""

from __future__ import annotations

import pytest

from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.sim.admitted import AdmittedRouter
from forebay.lab.sim.engine import EngineConfig
from forebay.lab.sim.fleet import Event, Fleet, Job, PoolConfig
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.policy.admission import AdmissionSettings
from forebay.testing.steps import LinearSteps


class Processes:
    """Requests go to one admission after the other, each with gates of its own."""

    def __init__(self, fleet: Fleet, processes: int) -> None:
        self._made = [AdmittedRouter(fleet, AdmissionSettings()) for _ in range(processes)]
        self._of: dict[int, AdmittedRouter] = {}
        self._turn = 0
        self._woken_at = -1.0
        self.most = 0
        for one in self._made:
            for gate in one.desk.gates.values():
                gate.limit.share(processes)

    def arrived(self, job: Job, now: float) -> None:
        self._turn += 1
        made = self._of[id(job)] = self._made[self._turn % len(self._made)]
        made.arrived(job, now)
        if self._turn <= 40:  # before anything was measured
            self.most = max(self.most, self.in_flight())

    def changed(self, job: Job, event: Event, now: float) -> None:
        self._of[id(job)].changed(job, event, now)

    def woken(self, now: float) -> None:
        if now == self._woken_at:
            return  # each of them has asked for it
        self._woken_at = now
        for one in self._made:
            one.woken(now)

    def in_flight(self) -> int:
        gates = [gate for one in self._made for gate in one.desk.gates.values()]
        return sum(load.requests for gate in gates for load in gate.loads)


def run(processes: int) -> tuple[RunResult, int]:
    """Three times what the engine can do; the result, and the most in work at the beginning."""
    kind = Kind(name="k", input_tokens=400, output_tokens=100, deadline_s=4.0)
    workload = Workload(
        WorkloadSpec(kinds=(kind,), arrivals=PoissonArrivals(rate=30.0, duration_s=40.0))
    )
    engine = EngineConfig(kv_tokens=100_000, max_num_seqs=256)
    made: list[Processes] = []

    def router(fleet: Fleet) -> Processes:
        made.append(Processes(fleet, processes))
        return made[0]

    options = VirtualOptions(recorder=RecorderOptions(warmup_s=10.0))
    pools = [(PoolConfig(engine=engine), LinearSteps())]
    found = simulate(workload, pools, Run(source="simulation"), options, router)
    return found, made[0].most


@pytest.mark.parametrize("processes", [2, 4])
def test_together_they_do_as_well_as_one(processes: int) -> None:
    alone, _ = run(1)
    together, _ = run(processes)
    # Measured: 10.3 and 10.1 a second, alone 12.1; each learns of the engine from its own part.
    assert together.total.goodput_per_s >= 0.8 * alone.total.goodput_per_s


def test_at_first_they_let_in_no_more_than_one_would() -> None:
    assert run(4)[1] <= run(1)[1]
