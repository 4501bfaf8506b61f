"""A load that comes all at once to engines of which nothing is known yet."""

from __future__ import annotations

from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import Run
from forebay.lab.sim.engine import EngineConfig
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.testing.steps import LinearSteps

FOUND_S = 10.0
"""Answers of use end within three seconds: so long the first crowd and the search after it take."""


def goodput(rate: float) -> float:
    """Good answers a second of two replicas that give about 22 at best, after the first seconds."""
    kind = Kind(name="k", input_tokens=400, output_tokens=100, deadline_s=3.0)
    workload = Workload(
        WorkloadSpec(kinds=(kind,), arrivals=PoissonArrivals(rate=rate, duration_s=40.0))
    )
    engine = EngineConfig(kv_tokens=100_000, max_num_seqs=64)
    options = VirtualOptions(router="admission", recorder=RecorderOptions(warmup_s=FOUND_S))
    pools = [(PoolConfig(engine=engine, replicas=2), LinearSteps())]
    return simulate(workload, pools, Run(source="simulation"), options).total.goodput_per_s


def test_from_cold_ten_times_the_capacity_is_survived_like_once() -> None:
    """The first window is measured in a crowd and nobody ends in time: no base may come of that."""
    found = {rate: goodput(rate) for rate in (20.0, 40.0, 60.0, 100.0, 150.0, 200.0)}
    best = max(found.values())
    # Measured: 19.8, 22.6, 23.3, 22.9, 17.5 and 19.6.
    assert all(good >= 0.72 * min(0.95 * rate, best) for rate, good in found.items()), found
