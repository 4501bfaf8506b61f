"""Engines short of memory on the virtual clock: what is let in follows what they show (F2.13)."""

from __future__ import annotations

import pytest

from forebay.lab.measure.result import Run, RunResult
from forebay.lab.sim.admitted import admitted
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.presets import preset_workload
from forebay.policy.admission import AdmissionSettings, PoolAdmission
from forebay.policy.batch import BatchRule, BatchSettings
from forebay.policy.gate import GateSettings

UNBOUNDED = 1e9
"""Nobody has told the gate how many tokens the engine's memory holds."""


def run(*, follows: bool, seed: int) -> RunResult:
    """Two long requests fill this engine's 20,000 tokens of KV."""
    profile = find_profile("l20/8b/fp8")
    engine = profile.engine_config(max_model_len=16_384, kv_tokens=20_000)
    gate = GateSettings(max_tokens=UNBOUNDED, batch=BatchSettings(enabled=follows))
    settings = AdmissionSettings(pools={"engines": PoolAdmission(gate=gate)})
    return simulate(
        preset_workload("heavy5", 60.0, 90.0),
        [(PoolConfig(engine=engine, name="engines"), profile.step_model())],
        Run(source="simulation"),
        VirtualOptions(seed=seed),
        router=admitted(settings),
    )


def test_less_is_let_into_an_engine_whose_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = []
    look = BatchRule.look

    def noted(self: BatchRule, worked: float, memory: float, now: float) -> float | None:
        factors.append(look(self, worked, memory, now))
        return factors[-1]

    monkeypatch.setattr(BatchRule, "look", noted)
    good = {"light": 0, "heavy": 0}
    for seed in (1, 2):
        for kind, found in run(follows=True, seed=seed).by_kind.items():
            good[kind] += found.good
    assert 0.75 in factors
    factors.clear()
    for seed in (1, 2):
        for kind, found in run(follows=False, seed=seed).by_kind.items():
            good[kind] -= found.good
    assert factors == []
    # Measured: 5,712 light and 4 heavy answers in time with it, 5,355 and 4 without.
    assert good["light"] >= 0
    assert good["heavy"] >= 0
