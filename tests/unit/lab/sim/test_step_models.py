"""What every step model promises the engine, over rooflines and slot tables alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.lab.sim.hardware import HARDWARE
from forebay.lab.sim.models import KV_PRECISIONS, MODELS, PRECISIONS
from forebay.lab.sim.roofline import Efficiency, RooflineSteps
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps
from forebay.lab.sim.steps import StepModel

rooflines = st.builds(
    RooflineSteps,
    st.sampled_from(HARDWARE),
    st.sampled_from(MODELS),
    precision=st.sampled_from(PRECISIONS),
    kv_precision=st.sampled_from(KV_PRECISIONS),
    tensor_parallel=st.sampled_from((1, 2, 8)),
    efficiency=st.builds(
        Efficiency,
        memory=st.floats(0.05, 1),
        compute=st.floats(0.0005, 1),
        overhead_s=st.floats(0, 0.01),
    ),
)
levels = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).flatmap(
    lambda counts: st.tuples(
        *[
            st.builds(
                SlotLevel,
                in_flight=st.just(count),
                decode_s=st.floats(1e-4, 0.1),
                context_token_s=st.floats(0, 1e-4),
            )
            for count in sorted(counts)
        ]
    )
)
slots = st.builds(
    SlotSteps,
    st.builds(
        SlotRates,
        levels=levels,
        prefill_s=st.floats(0, 0.1),
        prefill_token_s=st.floats(0, 0.01),
        prefill_pair_s=st.floats(0, 1e-5),
        overlap=st.floats(0, 1),
    ),
)
models: st.SearchStrategy[StepModel] = rooflines | slots
counts = st.integers(1, 300)
contexts = st.integers(0, 600_000)


@given(models, counts, contexts, st.integers(0, 300))
def test_a_run_is_the_sum_of_its_steps(
    model: StepModel, sequences: int, context: int, steps: int
) -> None:
    total = sum(model.step_seconds(sequences, context + j * sequences, 0, 0) for j in range(steps))
    assert model.run_seconds(sequences, context, steps) == pytest.approx(total, rel=1e-9)


@given(models, counts, contexts, st.integers(0, 200_000), st.floats(0, 1))
def test_steps_within_is_the_inverse(
    model: StepModel, sequences: int, context: int, steps: int, part: float
) -> None:
    at = model.run_seconds(sequences, context, steps)
    after = model.run_seconds(sequences, context, steps + 1)
    assert model.steps_within(sequences, context, at) == steps
    between = at + part * (after - at)
    expected = steps if between < after else steps + 1
    assert model.steps_within(sequences, context, between) == expected


@given(models, counts, contexts, st.floats(-1, 0))
def test_no_time_no_steps(model: StepModel, sequences: int, context: int, seconds: float) -> None:
    assert model.steps_within(sequences, context, seconds) == 0
    assert model.run_seconds(sequences, context, 0) == 0


@given(models, counts, contexts, st.integers(1, 8192), contexts, st.integers(1, 1000))
def test_more_work_never_takes_less_time(
    model: StepModel, sequences: int, context: int, prefill: int, attended: int, more: int
) -> None:
    base = model.step_seconds(sequences, context, prefill, attended)
    assert base > 0
    # Sums that are equal on paper may differ in the last place.
    least = base * (1 - 1e-12)
    assert model.step_seconds(sequences, context + more, prefill, attended) >= least
    assert model.step_seconds(sequences, context, prefill + more, attended) >= least
    assert model.step_seconds(sequences, context, prefill, attended + more) >= least
    assert model.step_seconds(sequences, context, 0, 0) * (1 - 1e-12) <= base
    assert model.step_seconds(0, 0, prefill, attended) * (1 - 1e-12) <= base


@given(rooflines, counts, contexts, st.integers(1, 50))
def test_a_larger_batch_is_slower_by_step_and_faster_by_token(
    model: RooflineSteps, sequences: int, context: int, more: int
) -> None:
    one = model.step_seconds(sequences, context, 0, 0)
    larger = model.step_seconds(sequences + more, context, 0, 0)
    assert larger >= one
    assert larger / (sequences + more) <= one / sequences * (1 + 1e-12)
