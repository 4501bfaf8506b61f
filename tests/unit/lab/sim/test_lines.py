from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.lab.sim.lines import line_seconds, line_steps


@given(
    intercept=st.floats(1e-5, 1.0),
    slope=st.floats(0, 1e-3),
    context=st.integers(0, 10_000),
    growth=st.integers(1, 256),
    steps=st.integers(0, 400),
)
def test_a_line_is_the_sum_of_its_steps(
    intercept: float, slope: float, context: int, growth: int, steps: int
) -> None:
    total = sum(intercept + slope * (context + j * growth) for j in range(steps))
    assert line_seconds(intercept, slope, context, growth, steps) == pytest.approx(total, rel=1e-9)
    found = line_steps(intercept, slope, context, growth, total)
    assert abs(found - steps) <= 1


def test_a_flat_line_divides() -> None:
    assert line_steps(0.5, 0.0, 100, 4, 10.0) == 20
