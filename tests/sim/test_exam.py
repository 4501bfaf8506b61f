"""The exam (F1.13) at a quarter of its rates: a calm load, a pulse of short and long ones, calm."""

from __future__ import annotations

from itertools import pairwise
from statistics import quantiles

import msgspec
import pytest

from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder
from forebay.lab.measure.result import OK
from forebay.lab.sim.admitted import AdmittedRouter
from forebay.lab.sim.fleet import Fleet, Pool, PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.run import VirtualDrive
from forebay.lab.workload.arrivals import PulseArrivals
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.presets import preset_kinds
from forebay.policy.admission import AdmissionSettings, PoolAdmission
from forebay.policy.gate import GateSettings
from forebay.policy.shed import ShedSettings

CALM_S, PULSE_S, AFTER_S, WARM_S = 25.0, 15.0, 10.0, 12.0
STRAIGHT_ON = 90.0
"""Good answers a second that the three engines give at best, at any rate of this mix, without
admission (benchmarks/overload)."""


class Kept(Recorder):
    """Keeps every request as it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Finished] = []

    def record(self, finished: Finished) -> None:
        self.all.append(finished)
        super().record(finished)


def sat(seed: int) -> list[Finished]:
    """Every request of one exam: one engine for short requests, two for long ones."""
    patient = GateSettings(shed=ShedSettings(target_s=5.0, interval_s=5.0, max_wait_s=30.0))
    settings = AdmissionSettings(pools={"long": PoolAdmission(gate=patient)})
    profile = find_profile("h100/8b/fp16/tp1")
    engine = profile.engine_config(max_model_len=16_384)
    short = PoolConfig(engine=engine, name="short", max_input_tokens=5_000, max_output_tokens=1_024)
    pools = [
        Pool(config, profile.step_model())
        for config in (short, PoolConfig(engine=engine, name="long", replicas=2))
    ]
    # Light answers are of one length: a ratio of their latencies then speaks of waiting.
    first, *others = preset_kinds("mixed")
    pulse = PulseArrivals(
        calm_rate=50, peak_rate=200, calm_s=CALM_S, pulse_s=PULSE_S, after_s=AFTER_S
    )
    kinds = (msgspec.structs.replace(first, output_tokens=32), *others)
    recorder = Kept()
    drive = VirtualDrive(
        lambda ended: Fleet(pools, lambda fleet: AdmittedRouter(fleet, settings), ended), recorder
    )
    drive.open_loop(Workload(WorkloadSpec(arrivals=pulse, kinds=kinds)).requests(seed))
    return recorder.all


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_pulse_of_four_times_the_load_keeps_goodput_and_tails(seed: int) -> None:
    asked = sat(seed)
    light: list[float] = []
    pulse_ends = CALM_S + PULSE_S
    for first_s, end_s in ((WARM_S, CALM_S), (CALM_S + 1.0, pulse_ends + AFTER_S)):
        light += [
            one.finished_at_s - one.at_s
            for one in asked
            if one.kind == "light" and one.status == OK and first_s <= one.at_s < end_s
        ]
    cuts = quantiles(light, n=100)
    assert cuts[98] <= 2 * cuts[49], "P99 is more than twice P50 outside the pulse's first second"
    for first_s, end_s in pairwise((CALM_S + 1.0, CALM_S + 8.0, pulse_ends)):
        good = sum(
            one.status == OK
            and (one.deadline_s is None or one.finished_at_s - one.at_s <= one.deadline_s)
            for one in asked
            if first_s <= one.at_s < end_s
        )
        assert good / (end_s - first_s) >= 0.95 * STRAIGHT_ON
    after = [one for one in asked if one.kind == "light" and one.at_s >= pulse_ends + 2.0]
    assert sum(one.status == OK for one in after) == len(after)
