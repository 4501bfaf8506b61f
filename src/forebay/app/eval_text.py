"""Evaluations as tables for people."""

from __future__ import annotations

from forebay.app.output import Output
from forebay.lab.evaluate.compare import Change, EvalComparison
from forebay.lab.evaluate.result import ALL, TIMES, EvalResult, Mean
from forebay.lab.report.numbers import seconds
from forebay.lab.report.words import Words


def tell(result: EvalResult, output: Output, words: Words) -> None:
    """Print an evaluation: for each set its measures by language, then how long it took."""
    for one in result.sets:
        counts = words("set_counts" if one.documents else "set_questions").format(
            questions=f"{one.questions:,}", documents=f"{one.documents:,}"
        )
        output.line(words("line").format(head=one.name, told=counts))
        names = dict.fromkeys(name for of in one.measures.values() for name in of)
        output.table(
            (words("measure"), *map(words, one.measures)),
            [
                (words(name), *(_mean(of.get(name)) for of in one.measures.values()))
                for name in names
            ],
        )
        rungs = ", ".join(f"{name} {n:,}" for name, n in one.rungs.items())
        output.line(words("line").format(head=words("rungs"), told=rungs))
        output.line()
        columns = (words("latency_stage"), words("language"), words("questions"))
        output.table(
            (*columns, "P50", "P90", "P99", words("max")),
            [
                (
                    words(stage),
                    words(language),
                    found.count,
                    *(seconds(at) for at in (found.p50_s, found.p90_s, found.p99_s, found.max_s)),
                )
                for language, of in one.latency.items()
                for stage, found in of.items()
            ],
        )
        output.line()


def tell_changes(comparison: EvalComparison, output: Output, words: Words) -> None:
    """Print a comparison: what moved beyond noise first, then the rest."""
    moved = [one for one in comparison.changes if one.verdict != "same"]
    if not moved:
        output.line(words("nothing_changed"))
    rest = [one for one in comparison.changes if one.verdict == "same"]
    columns = ("set", "language", "measure", "questions", "before", "after", "change")
    output.table(
        [words(name) for name in (*columns, "interval", "p_value", "verdict")],
        [_changed(one, words) for one in (*moved, *rest)],
    )


def _changed(one: Change, words: Words) -> tuple[str, ...]:
    timed = one.measure in TIMES
    change, low, high = (
        f"{value:+.1%}" if timed else f"{value:+.4f}" for value in (one.change, one.low, one.high)
    )
    before, after = (
        seconds(value) if timed else f"{value:.4f}" for value in (one.before, one.after)
    )
    return (
        one.set,
        "" if one.language == ALL else words(one.language),
        words(one.measure),
        f"{one.questions:,}",
        before,
        after,
        change,
        f"{low}..{high}",
        f"{one.p:.3f}",
        words(f"verdict_{one.verdict}"),
    )


def _mean(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value:.3f} ({mean.low:.3f}..{mean.high:.3f})"
