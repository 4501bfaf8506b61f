"""Named mixes and workloads from a few options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.arrivals import PoissonArrivals, PulseArrivals
from forebay.lab.workload.plan import read_workload
from forebay.lab.workload.presets import (
    SimpleWorkload,
    preset_kinds,
    preset_names,
    preset_workload,
    simple_workload,
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_runs(name: str) -> None:
    planned = preset_workload(name, duration_s=2)
    requests = list(planned.requests(1))
    assert len(requests) > 200 and all(one.deadline_s for one in requests)


def test_the_figures_of_the_faq_and_the_report() -> None:
    (faq,), (heavy,) = preset_kinds("faq"), preset_kinds("heavy")
    assert (faq.input_tokens, faq.output_tokens) == (2, 10)
    assert (heavy.input_tokens, heavy.output_tokens) == (8_000, 2_000)


@pytest.mark.parametrize(("name", "share"), [("heavy5", 5), ("heavy20", 20), ("heavy0.5", 0.5)])
def test_any_share_of_heavy_requests_has_a_name(name: str, share: float) -> None:
    light, heavy = preset_kinds(name)
    assert (light.share, heavy.share) == (100 - share, share)


def test_the_examples_are_the_presets() -> None:
    examples = {"light": "light", "avalanche": "heavy5", "exam": "exam"}
    for file, preset in examples.items():
        read = read_workload(ROOT / "examples" / "workloads" / f"{file}.toml")
        assert read.fingerprint == preset_workload(preset).fingerprint


def test_the_exam_brings_its_pulse_unless_a_rate_is_given() -> None:
    assert isinstance(preset_workload("exam").spec.arrivals, PulseArrivals)
    assert isinstance(preset_workload("exam", rate=10).spec.arrivals, PoissonArrivals)


def test_options_change_the_mix(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("why\nwhy not\n")
    planned = simple_workload(
        SimpleWorkload(
            arrivals="gamma", cv=3.0, rate=10, count=50, queries="q.txt", zipf=1.0,
            output_tokens=7, deadline_s=1.5,
        ),
        tmp_path,
    )  # fmt: skip
    requests = list(planned.requests(1))
    assert len(requests) == 50 and planned.duration_s is None
    assert {(one.text, one.input_tokens) for one in requests} == {("why", 1), ("why not", 2)}
    assert {(one.output_tokens, one.deadline_s) for one in requests} == {(7, 1.5)}


def test_users_make_a_closed_loop() -> None:
    planned = simple_workload(SimpleWorkload(users=20, think_s=1.0))
    assert planned.closed_loop is not None and planned.closed_loop.users == 20
    assert planned.duration_s == 60


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp":0,"input_length":5,"output_length":6}\n')
    options = SimpleWorkload(trace="t.jsonl", time_scale=0.5)
    planned = simple_workload(options, tmp_path)
    (request,) = planned.requests(1)
    assert request.input_tokens == 5 and planned.name == "t.jsonl"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"mix": "lite"}, 'no mix is named "lite"; did you mean light?'),
    ({"mix": "heavy0"}, 'no mix is named "heavy0"; did you mean heavy?'),
    (
        {"arrivals": "possion"},
        'workload options: arrivals.kind = "possion" is unknown; did you mean poisson?',
    ),
    ({"rate": -1}, "workload options: arrivals.rate: expected a number above 0."),
    ({"duration_s": 0}, "workload options: arrivals.duration_s: expected a number above 0."),
    (
        {"cv": 2.0},
        "workload options: unknown key arrivals.cv; known here: count, duration_s, rate.",
    ),
    ({"zipf": 1.0}, "zipf has no meaning without queries: give both or neither."),
    ({"think_s": 1.0}, "think_s has no meaning without users: give both or neither."),
    ({"time_scale": 1.0}, "time_scale has no meaning without trace: give both or neither."),
    (
        {"users": 5, "rate": 3.0},
        "rate and users exclude each other: users ask as fast as they are served.",
    ),
    (
        {"trace": "t", "rate": 3.0},
        "a trace brings its own rate: use rate_scale to change it.",
    ),
    ({"trace": "none.csv"}, "none.csv does not exist; check the name and the folder."),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_wrong_options_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        simple_workload(SimpleWorkload(**options))
    assert caught.value.message == sentence
