"""Urgent and patient requests in one pool, and what a bad first second teaches; deterministic."""

from __future__ import annotations

import pytest

from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.sim.admitted import admitted
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.presets import preset_kinds, preset_workload
from forebay.policy.admission import AdmissionSettings, PoolAdmission
from forebay.policy.gate import GateSettings

# Nobody has told the gate how many tokens the engine's memory holds.
SETTINGS = AdmissionSettings(pools={"engines": PoolAdmission(gate=GateSettings(max_tokens=1e9))})


def run(
    workload: Workload, profile: str, *, replicas: int = 1, seed: int = 1, **engine: int
) -> RunResult:
    found = find_profile(profile)
    config = found.engine_config(max_model_len=16_384, **engine)
    pool = PoolConfig(engine=config, name="engines", replicas=replicas)
    options = VirtualOptions(seed=seed, recorder=RecorderOptions(warmup_s=5.0))
    return simulate(
        workload,
        [(pool, found.step_model())],
        Run(source="simulation"),
        options,
        admitted(SETTINGS),
    )


def test_summaries_that_have_time_do_not_keep_out_questions_that_have_none() -> None:
    kinds = tuple(kind for kind in preset_kinds("mixed") if kind.name != "heavy")
    spec = WorkloadSpec(arrivals=PoissonArrivals(rate=400, duration_s=20.0), kinds=kinds)
    found = run(Workload(spec), "h100/8b", replicas=2)
    # The door counted all that waited: 72 good answers a second, 14 % of the light ones.
    assert found.total.goodput_per_s >= 250
    assert found.by_kind["light"].goodput_share >= 0.9
    assert found.by_kind["light"].total.p99_s < 2.0


@pytest.mark.parametrize("seed", [4, 6])
def test_a_first_second_in_which_nobody_is_answered_does_not_shut_the_door(seed: int) -> None:
    """Long prompts take the first second whole, and light answers end at their deadline."""
    workload = preset_workload("heavy5", 60.0, 90.0)
    found = run(workload, "l20/8b/fp8", seed=seed, kv_tokens=20_000)
    # 2 and 13 of 5,000 in 90 s: their latency passed for that of an empty engine.
    assert found.by_kind["light"].good >= 200
