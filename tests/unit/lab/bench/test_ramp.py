"""Ramps over a made-up target: the knee, undecided steps, a generator at its end, stopping."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.bench.options import BenchOptions, Observer, RampOptions, Snapshot
from forebay.lab.bench.ramp import RunOnce, run_ramp
from forebay.lab.bench.ramp_result import RampResult, RampStep, load_ramp
from forebay.lab.measure.result import Figures, Generator, Run, RunResult
from tests.unit.lab.bench.targets import options, raw_target, ready, whole_stream, workload

STEADY: dict[str, Any] = {"kind": "poisson", "rate": 1.0, "duration_s": 9.0}


def made_up(knee: float, *, generator_up_to: float = 1e9) -> tuple[RunOnce, list[BenchOptions]]:
    """Below the knee one request in five hundred fails, above it one in three."""
    seen: list[BenchOptions] = []

    async def run_once(bench: BenchOptions, observer: Observer | None) -> RunResult:
        seen.append(bench)
        rate = bench.workload.spec.arrivals.rate  # type: ignore[union-attr]
        sent = round(rate * (bench.workload.duration_s or 0))
        rng = random.Random(bench.seed)
        chance = 0.998 if rate <= knee else 0.67 * (knee > 0)
        good = sum(rng.random() < chance for _ in range(sent))
        if observer is not None:
            observer(Snapshot(elapsed_s=1.0))
        return RunResult(
            run=Run(source="bench", target="t", options={"slice_s": 1.0}),
            duration_s=bench.workload.duration_s or 0.0,
            elapsed_s=1.0,
            offered_per_s=rate,
            sent_per_s=rate,
            total=Figures(sent=sent, good=good, ok=good),
            generator=Generator(valid=rate <= generator_up_to, why_not=("busy",)),
        )

    return run_once, seen


def ramp_options(**more: Any) -> RampOptions:
    bench = options("http://127.0.0.1:9", workload(arrivals=STEADY))
    settings = {"settle_s": 0.0, "step_s": 20.0} | more
    return RampOptions(bench=bench, **settings)


async def test_the_knee_is_found() -> None:
    run_once, seen = made_up(137.0)
    heard: list[RampStep] = []
    labels: list[str] = []
    result = await run_ramp(
        ramp_options(),
        lambda snapshot: labels.append(snapshot.label),
        on_step=heard.append,
        run_once=run_once,
    )
    assert result.knee_per_s <= 137 < (result.high_per_s or 0) <= result.knee_per_s * 1.06
    assert tuple(heard) == result.steps
    assert [step.rate_per_s for step in heard[:5]] == [10, 20, 40, 80, 160]
    assert "The knee is at" in result.sentences[0]
    assert labels[0] == "10/s"
    # Every run has a seed of its own; the ramp's description names the first.
    assert [bench.seed for bench in seen] == list(range(1, 1 + len(seen)))
    assert result.run.seed == 1 and result.run.options["ramp"]["step_s"] == 20.0


async def test_an_undecided_step_is_run_again() -> None:
    run_once, _ = made_up(1e9)
    result = await run_ramp(ramp_options(max_per_s=10.0, max_repeats=5), run_once=run_once)
    (step,) = result.steps
    assert step.runs > 1 and step.meant == 200 * step.runs
    assert step.healthy
    undecided = await run_ramp(ramp_options(max_per_s=10.0, max_repeats=1), run_once=run_once)
    assert not undecided.steps[0].decided
    assert any("too short to decide" in line for line in undecided.sentences)


async def test_a_generator_at_its_end_is_told() -> None:
    run_once, _ = made_up(1e9, generator_up_to=100.0)
    result = await run_ramp(ramp_options(), run_once=run_once)
    assert result.knee_per_s <= 100
    assert any("the generator was the bottleneck" in line for line in result.sentences)
    assert not all(step.generator_valid for step in result.steps)
    assert {step.verdict for step in result.steps} == {"healthy", "undecided"}
    assert "were more than the generator could send" in result.sentences[0]


async def test_nothing_is_healthy() -> None:
    run_once, _ = made_up(0.0)
    result = await run_ramp(ramp_options(), run_once=run_once)
    assert result.knee_per_s == 0.0
    assert "were not served well" in result.sentences[0]


async def test_the_highest_rate_is_healthy() -> None:
    run_once, _ = made_up(1e9)
    result = await run_ramp(ramp_options(max_per_s=50.0), run_once=run_once)
    assert (result.knee_per_s, result.high_per_s) == (50.0, None)
    assert "at or above 50" in result.sentences[0]


async def test_stopping_keeps_what_is_known() -> None:
    run_once, _ = made_up(1e9)
    stop = asyncio.Event()

    def enough(step: RampStep) -> None:
        if step.rate_per_s >= 40:
            stop.set()

    result = await run_ramp(ramp_options(), on_step=enough, stop=stop, run_once=run_once)
    assert result.knee_per_s == 40.0
    assert "The search was stopped before its end." in result.sentences


async def test_steps_are_bounded() -> None:
    run_once, _ = made_up(137.0)
    result = await run_ramp(ramp_options(max_steps=3), run_once=run_once)
    assert len(result.steps) == 3
    assert any("ran out of steps" in line for line in result.sentences)


@pytest.mark.parametrize(
    "more",
    [
        {"start_per_s": 0.0},
        {"start_per_s": 20.0, "max_per_s": 10.0},
        {"goodput_share": 1.0},
        {"resolution": 0.0},
        {"confidence": 1.0},
        {"step_s": 0.0},
        {"settle_s": -1.0},
        {"settle_s": math.inf},
        {"step_s": math.inf},
        {"max_per_s": math.inf},
    ],
)
async def test_ramps_that_cannot_be_run(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await run_ramp(ramp_options(**more), run_once=made_up(1.0)[0])


async def test_a_ramp_needs_a_steady_rate() -> None:
    bench = options("http://127.0.0.1:9", workload(arrivals={"kind": "pulse"}))
    with pytest.raises(ConfigError, match="steady rate"):
        await run_ramp(RampOptions(bench=bench), run_once=made_up(1.0)[0])


async def test_a_ramp_against_a_target(tmp_path: Any) -> None:
    async with raw_target(ready(whole_stream())) as target:
        bench = options(target, workload(arrivals=STEADY))
        result = await run_ramp(
            RampOptions(
                bench=bench, start_per_s=40, max_per_s=80, step_s=0.4, settle_s=0.0, max_repeats=1
            )
        )
    assert result.knee_per_s == 80.0
    path = tmp_path / "ramp.json"
    path.write_bytes(msgspec.json.encode(result))
    assert load_ramp(path) == result
    for damaged in (b"{}", b"x", msgspec.json.encode(msgspec.structs.replace(result, kind="run"))):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError):
            load_ramp(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_ramp(tmp_path / "none.json")
    assert isinstance(result, RampResult)
