"""The report of a ramp: where the knee lies, and what every step said."""

from __future__ import annotations

from pathlib import Path

from forebay.lab.bench.ramp_result import RampResult, RampStep
from forebay.lab.report import charts
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import Card, Figure, Page, Section, Table, figure, render
from forebay.lab.report.parts import json_text, origin
from forebay.lab.report.words import Words


def write_ramp_report(result: RampResult, path: Path, words: Words | None = None) -> None:
    """Write the HTML report of a ramp; OSError when the file cannot be written."""
    words = words or Words()
    path.write_text(render(ramp_page(result, words), words), encoding="utf-8")


def ramp_page(result: RampResult, words: Words) -> Page:
    """What the report says, as a page."""
    steps = sorted(result.steps, key=lambda step: step.rate_per_s)
    invalid = [step for step in steps if not step.generator_valid]
    reasons = [
        f"{step.rate_per_s:g}/s: {'; '.join(words.reasons(step.why, step.why_not))}"
        for step in invalid
        if step.why_not
    ]
    return Page(
        title=words("title_ramp").format(target=result.run.target),
        subtitle=origin(result.run, None, words),
        alarm=words("steps_not_valid") if invalid else "",
        reasons=reasons,
        cards=_cards(result, words),
        sections=(
            Section(words("knee"), notes=result.sentences, figures=_figures(result, steps, words)),
            Section(words("steps"), tables=[_table(steps, words)]),
            Section(
                words("what_ran"),
                notes=(words("definitions"),),
                details=[
                    (words("workload"), json_text(result.run.workload)),
                    (words("options"), json_text(result.run.options)),
                ],
            ),
        ),
    )


def _cards(result: RampResult, words: Words) -> list[Card]:
    found = result.knee_per_s > 0
    note = words("at_least_good").format(share=f"{result.wanted_share:.1%}")
    value = f"{result.knee_per_s:.4g}/s" if found else words("none_found")
    cards = [Card(words("knee"), value, note, "good" if found else "bad")]
    if result.high_per_s is not None:
        cards.append(Card(words("too_much"), f"{result.high_per_s:.4g}/s", words("lowest_bad")))
    return cards


def _figures(result: RampResult, steps: list[RampStep], words: Words) -> list[Figure]:
    if not steps:
        return []
    shares = [
        {
            "rate_per_s": step.rate_per_s,
            "share": step.goodput_share,
            "verdict": words(step.verdict),
        }
        for step in steps
    ]
    drawn = charts.knee(shares, result.knee_per_s or None, result.wanted_share, words)
    figures = [figure(words("chart_knee"), drawn, wide=True)]
    latencies = [
        {"rate_per_s": step.rate_per_s, "quantile": name, "seconds": value}
        for step in steps
        for name, value in (("P50", step.total_p50_s), ("P99", step.total_p99_s))
        if value > 0
    ]
    if latencies:
        chart = charts.latency_by_rate(latencies, words)
        figures.append(figure(words("chart_by_rate"), chart, wide=True))
    return figures


def _table(steps: list[RampStep], words: Words) -> Table:
    return Table(
        (
            words("rate"),
            words("verdict"),
            words("runs"),
            words("count"),
            words("good_share"),
            words("goodput_per_s"),
            f"{words('ttft')} P50",
            "P99",
            f"{words('total')} P50",
            "P99",
        ),
        [
            (
                f"{step.rate_per_s:.4g}",
                words(step.verdict),
                f"{step.runs}",
                f"{step.meant:,}",
                f"{step.goodput_share:.2%}",
                f"{step.goodput_per_s:,.4g}",
                seconds(step.ttft_p50_s),
                seconds(step.ttft_p99_s),
                seconds(step.total_p50_s),
                seconds(step.total_p99_s),
            )
            for step in steps
        ],
    )
