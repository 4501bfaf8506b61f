"""Reports of ramps and of comparisons: what they draw, and when there is nothing to draw."""

from __future__ import annotations

import json

import vl_convert

from forebay.lab.bench.ramp_result import RampResult, RampStep
from forebay.lab.measure.comparison import Change, Comparison
from forebay.lab.measure.result import Run
from forebay.lab.report.comparisons import comparison_page
from forebay.lab.report.page import VEGA_LITE, Page
from forebay.lab.report.ramps import ramp_page
from forebay.lab.report.words import Words

RUN = Run(source="bench", target="http://127.0.0.1:8500/v1", seed=3)


def step(rate: float, share: float, *, valid: bool = True) -> RampStep:
    return RampStep(
        rate_per_s=rate,
        runs=1,
        meant=1_000,
        good=int(1_000 * share),
        goodput_share=share,
        healthy=share >= 0.99,
        decided=True,
        goodput_per_s=rate * share,
        ttft_p50_s=0.02,
        ttft_p99_s=0.05,
        total_p50_s=0.3,
        total_p99_s=0.9 / share,
        generator_valid=valid,
        why_not=() if valid else ("too busy",),
    )


def ramp(*steps: RampStep, knee: float = 100.0) -> RampResult:
    return RampResult(
        run=RUN,
        wanted_share=0.99,
        knee_per_s=knee,
        high_per_s=200.0,
        steps=steps,
        sentences=("The knee is at 100 requests/s.",),
    )


def change(figure: str, value: float, verdict: str = "same") -> Change:
    better = None if verdict == "same" else verdict == "lower"
    return Change(
        kind="",
        figure=figure,
        unit="s",
        before=1.0,
        after=1.0 + value,
        change=value,
        low=value - 0.1,
        high=value + 0.1,
        direction=verdict,  # type: ignore[arg-type]
        better=better,
    )


def drawn(page: Page) -> int:
    specs = [json.loads(item.spec_json) for part in page.sections for item in part.figures]
    for spec in specs:
        vl_convert.vegalite_to_vega(spec, vl_version=VEGA_LITE)
    return len(specs)


def test_a_ramp_shows_its_knee_and_every_step() -> None:
    page = ramp_page(ramp(step(200.0, 0.5), step(100.0, 1.0)), Words())
    assert drawn(page) == 2
    assert page.cards[0].value == "100/s" and page.cards[0].mood == "good"
    (table,) = page.sections[1].tables
    assert [row[0] for row in table.rows] == ["100", "200"]
    assert not page.alarm


def test_steps_that_are_not_valid_are_an_alarm() -> None:
    page = ramp_page(ramp(step(100.0, 0.5, valid=False), knee=0.0), Words("zh"))
    assert page.alarm and page.reasons == ["100/s: too busy"]
    assert page.cards[0].mood == "bad"


def test_a_ramp_without_steps_has_a_page() -> None:
    assert drawn(ramp_page(ramp(knee=0.0), Words())) == 0


def test_a_comparison_shows_every_figure_with_its_interval() -> None:
    changes = (change("ttft_p99", 0.5, "higher"), change("total_p50", -0.3, "lower"))
    comparison = Comparison(changes=changes, sentences=("P99 of TTFT rose.",))
    page = comparison_page(comparison, ("a.json", "b.json"), Words())
    assert drawn(page) == 1
    (table,) = page.sections[1].tables
    assert table.rows[0][0] == "time to first token P99"
    assert [row[-1] for row in table.rows] == ["worse", "better"]


def test_what_cannot_be_told_is_in_the_table_and_not_in_the_chart() -> None:
    nan = float("nan")
    unknown = Change("", "total_p99", "s", nan, 1.0, nan, nan, nan, "unknown")
    comparison = Comparison(changes=(unknown,), sentences=(), warnings=("too few slices",))
    page = comparison_page(comparison, ("a.json", "b.json"), Words())
    assert drawn(page) == 0
    assert page.alarm and list(page.reasons) == ["too few slices"]
    assert page.sections[0].notes == ("Nothing changed beyond noise.",)
    assert page.sections[1].tables[0].rows[0][1] == "-"
