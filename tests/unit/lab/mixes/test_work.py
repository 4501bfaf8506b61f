"""The work of a request is what an engine busy with its like takes for it."""

from __future__ import annotations

import pytest

from forebay.lab.mixes.work import EngineWork
from forebay.lab.sim.engine import Engine
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.sequence import Sequence

PROFILE = find_profile("h100/8b")
CONFIG = PROFILE.engine_config(max_model_len=32_768)
WORK = EngineWork(CONFIG, PROFILE.step_model())
SIZES = [
    (10, 5),
    (10, 4_000),
    (200, 32),
    (1_800, 400),
    (3_900, 1_500),
    (12_000, 500),
    (28_000, 5),
    (28_000, 4_000),
]


def times(inputs: int, outputs: int, count: int) -> list[float]:
    """When each of so many requests ends that an engine is given at once."""
    engine = Engine(CONFIG, PROFILE.step_model())
    for number in range(count):
        engine.submit(Sequence(number, inputs, outputs), 0.0)
    ends: list[float] = []
    while (at_s := engine.next_event_at()) is not None:
        ends += [at_s] * len(engine.advance(at_s).finished)
    return ends


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_full_engine_takes_as_long_as_the_work_says(inputs: int, outputs: int) -> None:
    expected = WORK.work_s(inputs, outputs)
    count = min(4_000, max(60, round(40 * WORK.alone_s(inputs, outputs) / expected)))
    ends = times(inputs, outputs, count)
    quarter = count // 4
    seen = (ends[3 * quarter] - ends[quarter]) / (2 * quarter)
    assert expected == pytest.approx(seen, rel=0.1)


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_one_request_alone_takes_as_long_as_is_said(inputs: int, outputs: int) -> None:
    assert times(inputs, outputs, 1)[0] == pytest.approx(WORK.alone_s(inputs, outputs), rel=0.02)


def test_work_grows_with_what_is_read_written_and_held() -> None:
    assert WORK.work_s(100, 10) < WORK.work_s(1_000, 10) < WORK.work_s(10_000, 10)
    assert WORK.work_s(100, 10) < WORK.work_s(100, 100) < WORK.work_s(100, 1_000)
    # An answer beside a long prompt keeps others out of the memory as long as it is written.
    short, long = WORK.work_s(100, 1_000), WORK.work_s(20_000, 1_000)
    assert long - WORK.work_s(20_000, 1) > 5 * (short - WORK.work_s(100, 1))
