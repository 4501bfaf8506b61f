"""A simulated endpoint, measured from outside over HTTP, gives its own profile back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.kernel.clock import SystemClock
from forebay.lab.sim.calibrate import CalibrationSettings, calibrate
from forebay.lab.sim.probe import Endpoint
from forebay.lab.sim.profiles import EngineLimits, FittedProfile, save_profile
from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Simulated, SimulationServer
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps
from forebay.lab.sim.steps import StepModel

RATES = SlotRates(
    levels=(
        SlotLevel(in_flight=1, decode_s=0.012, context_token_s=1.5e-5),
        SlotLevel(in_flight=3, decode_s=0.030, context_token_s=1.5e-5),
    ),
    prefill_s=0.02,
    prefill_token_s=0.0006,
    prefill_pair_s=0.0,
)


SHAPES = ((1, 100, 0, 0), (3, 300, 0, 0), (0, 0, 50, 25), (0, 0, 300, 150))
ATTEMPTS = 10
"""Timers are late by milliseconds on a busy machine, never early: then it is measured again."""


async def calibrated(url: str) -> FittedProfile:
    bounds = CalibrationSettings(
        in_flight=(1, 3), prompt_tokens=(16, 300), output_tokens=12, repeats=2
    )
    async with asyncio.timeout(60):
        return await calibrate(Endpoint(url=url), bounds, SystemClock())


def steps(model: StepModel) -> list[float]:
    return [model.step_seconds(*shape) for shape in SHAPES]


async def test_a_simulated_endpoint_gives_its_profile_back(tmp_path: Path) -> None:
    path = tmp_path / "slots.json"
    save_profile(
        FittedProfile(name="slots", rates=RATES, limits=EngineLimits(max_num_seqs=3)), path
    )
    options = SimulatedServer(port=0, profile=str(path), drain_s=1.0)
    server = SimulationServer(Simulated.of(options))
    ready = asyncio.Event()
    true = pytest.approx(steps(SlotSteps(RATES)), rel=0.2)
    async with asyncio.TaskGroup() as group:
        serving = server.serve(lambda _: ready.set(), handle_signals=False)
        group.create_task(serving)
        try:
            await ready.wait()
            for _ in range(ATTEMPTS):
                found = await calibrated(server.addresses.replicas[0])
                if steps(found.step_model()) == true:
                    break
        finally:
            server.request_stop()
    assert found.model == "sim"
    assert steps(found.step_model()) == true
