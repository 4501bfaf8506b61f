"""The report of a comparison: what changed beyond noise, and every figure with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from forebay.lab.measure.comparison import Change, Comparison
from forebay.lab.report import charts
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import Figure, Page, Section, Table, figure, render
from forebay.lab.report.words import Words

FARTHEST = 2.0
"""Changes beyond this are drawn at the edge: one huge figure must not flatten the others."""


def write_comparison_report(
    comparison: Comparison, names: tuple[str, str], path: Path, words: Words | None = None
) -> None:
    """Write the HTML report of a comparison; OSError when the file cannot be written."""
    words = words or Words()
    page = comparison_page(comparison, names, words)
    path.write_text(render(page, words), encoding="utf-8")


def comparison_page(comparison: Comparison, names: tuple[str, str], words: Words) -> Page:
    """What the report says, as a page."""
    kinds = list(dict.fromkeys(change.kind for change in comparison.changes))
    return Page(
        title=words("title_compare").format(before=names[0], after=names[1]),
        subtitle=[words("confidence").format(share=f"{comparison.confidence:.0%}")],
        alarm=words("warnings") if comparison.warnings else "",
        reasons=comparison.warnings,
        sections=(
            Section(
                words("beyond_noise"), notes=comparison.sentences or (words("nothing_changed"),)
            ),
            *(
                _section(
                    kind or words("all"),
                    [change for change in comparison.changes if change.kind == kind],
                    words,
                )
                for kind in kinds
            ),
            *(
                [Section(words("differences"), notes=comparison.differences)]
                if comparison.differences
                else []
            ),
        ),
    )


def _section(kind: str, changes: Sequence[Change], words: Words) -> Section:
    return Section(kind, figures=_figures(changes, words), tables=[_table(changes, words)])


def _figures(changes: Sequence[Change], words: Words) -> list[Figure]:
    known = [change for change in changes if change.direction != "unknown"]
    rows = [
        {
            "figure": _name(change, words),
            "change": _within(change.change),
            "low": _within(change.low),
            "high": _within(change.high),
            "verdict": words(_verdict(change)),
        }
        for change in known
        if math.isfinite(change.change)
    ]
    return [figure(words("chart_changes"), charts.changes(rows, words), wide=True)] if rows else []


def _table(changes: Sequence[Change], words: Words) -> Table:
    columns = ("figure", "before", "after", "change", "low", "high", "verdict")
    return Table(
        [words(name) for name in columns],
        [
            (
                _name(change, words),
                _value(change.before, change.unit),
                _value(change.after, change.unit),
                *(_change(value) for value in (change.change, change.low, change.high)),
                words(_verdict(change)),
            )
            for change in changes
        ],
    )


def _verdict(change: Change) -> str:
    if change.direction == "same" or change.direction == "unknown":
        return f"verdict_{change.direction}"
    if change.better is None:
        return f"verdict_{change.direction}"
    return "verdict_better" if change.better else "verdict_worse"


def _name(change: Change, words: Words) -> str:
    measure, _, quantile = change.figure.rpartition("_")
    if measure in ("ttft", "itl", "tpot", "total"):
        return f"{words(measure)} {quantile.upper()}"
    return words(f"figure_{change.figure}")


def _value(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "-"
    if unit == "s":
        return seconds(value)
    return f"{value:.2%}" if unit == "share" else f"{value:,.4g}/s"


def _change(value: float) -> str:
    return f"{value:+.1%}" if math.isfinite(value) else "-"


def _within(value: float) -> float:
    return min(max(value, -FARTHEST), FARTHEST)
