"""Evaluations as tables for people."""

from __future__ import annotations

from forebay.app.output import Output
from forebay.lab.evaluate.compare import Change, EvalComparison
from forebay.lab.evaluate.result import ALL, TIMES, EvalResult, Mean
from forebay.lab.report.numbers import seconds


def tell(result: EvalResult, output: Output) -> None:
    """Print an evaluation: for each set its measures by language, then how long it took."""
    for one in result.sets:
        documents = f", {one.documents:,} documents" if one.documents else ""
        output.line(f"{one.name}: {one.questions:,} questions{documents}")
        names = dict.fromkeys(name for of in one.measures.values() for name in of)
        output.table(
            ("measure", *one.measures),
            [(name, *(_mean(of.get(name)) for of in one.measures.values())) for name in names],
        )
        output.line("rungs: " + ", ".join(f"{name} {n:,}" for name, n in one.rungs.items()))
        output.line()
        output.table(
            ("latency", "language", "questions", "P50", "P90", "P99", "max"),
            [
                (
                    stage,
                    language,
                    found.count,
                    *(seconds(at) for at in (found.p50_s, found.p90_s, found.p99_s, found.max_s)),
                )
                for language, of in one.latency.items()
                for stage, found in of.items()
            ],
        )
        output.line()


UNSURE = "not beyond noise"


def tell_changes(comparison: EvalComparison, output: Output) -> None:
    """Print a comparison: what moved beyond noise first, then the rest."""
    moved = [one for one in comparison.changes if one.verdict != "same"]
    if not moved:
        output.line("Nothing changed beyond noise.")
    rest = [one for one in comparison.changes if one.verdict == "same"]
    output.table(
        (
            "set",
            "language",
            "measure",
            "n",
            "before",
            "after",
            "change",
            "interval",
            "p",
            "verdict",
        ),
        [_changed(one) for one in (*moved, *rest)],
    )


def _changed(one: Change) -> tuple[str, ...]:
    timed = one.measure in TIMES
    change, low, high = (
        f"{value:+.1%}" if timed else f"{value:+.4f}" for value in (one.change, one.low, one.high)
    )
    before, after = (
        seconds(value) if timed else f"{value:.4f}" for value in (one.before, one.after)
    )
    language = "" if one.language == ALL else one.language
    interval = f"{low}..{high}"
    count = f"{one.questions:,}"
    return (
        one.set,
        language,
        one.measure,
        count,
        before,
        after,
        change,
        interval,
        f"{one.p:.3f}",
        UNSURE if one.verdict == "same" else one.verdict,
    )


def _mean(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value:.3f} ({mean.low:.3f}..{mean.high:.3f})"
