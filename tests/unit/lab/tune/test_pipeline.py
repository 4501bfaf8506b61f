"""The pipeline: named steps, each with its before and after."""

from __future__ import annotations

import asyncio

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import InvalidRequest
from forebay.lab.tune.pipeline import Settled, StepReport, run_pipeline


class Doubling:
    """A step of another kind."""

    name = "doubling"

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        before = float(settled.values.get("x", 1))
        return (
            Settled(settled.questions, {**settled.values, "x": 2 * before}),
            StepReport("", {"x": before}, {"x": 2 * before}),
        )


def test_steps_run_in_order_on_what_those_before_have_settled() -> None:
    clock = VirtualClock()
    settled, reports = asyncio.run(run_pipeline([Doubling(), Doubling()], Settled(), clock))
    assert settled.values == {"x": 4.0}
    assert [(each.name, each.before, each.after) for each in reports] == [
        ("doubling", {"x": 1.0}, {"x": 2.0}),
        ("doubling", {"x": 2.0}, {"x": 4.0}),
    ]


class Failing:
    """A step that cannot be done."""

    name = "failing"

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        raise InvalidRequest("没有问题")


def test_a_step_that_fails_ends_the_pipeline_with_its_error() -> None:
    later = Doubling()
    with pytest.raises(InvalidRequest, match="没有问题"):
        asyncio.run(run_pipeline([Failing(), later], Settled(), VirtualClock()))


class Slow:
    """A step that takes three virtual seconds."""

    name = "slow"

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        self._clock.advance(3.0)
        return settled, StepReport(self.name, notes=("done",))


def test_each_step_tells_how_long_it_took() -> None:
    clock = VirtualClock()
    _, [report] = asyncio.run(run_pipeline([Slow(clock)], Settled(), clock))
    assert (report.seconds, report.notes) == (3.0, ("done",))
