"""The report of an evaluation, and that of two compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from forebay.lab.evaluate.compare import Change, EvalComparison
from forebay.lab.evaluate.failures import reasons
from forebay.lab.evaluate.result import (
    ALL,
    ERRORS,
    INVENTED,
    TIMES,
    EvalResult,
    Mean,
    Origin,
    SetResult,
)
from forebay.lab.report import charts
from forebay.lab.report.charts import Row
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import Card, Figure, Page, Section, Table, figure, render
from forebay.lab.report.parts import json_text
from forebay.lab.report.words import Words

CARDS = ("ndcg@10", "recall@10", "answer_found", "support", *ERRORS)
RETRIEVAL = ("recall@", "mrr@", "ndcg@")
JUDGED = "judged_"
SHORTEST_S = 1e-4
MAX_POINTS = 120


def write_evaluation_report(result: EvalResult, path: Path, words: Words | None = None) -> None:
    """Write the HTML report of an evaluation; OSError when the file cannot be written."""
    words = words or Words()
    path.write_text(render(evaluation_page(result, words), words), encoding="utf-8")


def evaluation_page(result: EvalResult, words: Words) -> Page:
    """What the report of an evaluation says, as a page."""
    failed = [
        f"{one.name}: {one.failed} / {one.questions}, {_first_error(one)}"
        for one in result.sets
        if one.failed
    ]
    return Page(
        title=words("title_eval").format(target=result.origin.target),
        subtitle=_origin(result.origin, words),
        alarm=words("questions_failed") if failed else "",
        reasons=failed,
        cards=_cards(result, words),
        sections=(
            *(_set_section(one, words) for one in result.sets),
            Section(
                words("what_ran"),
                details=[(words("options"), json_text(result.origin.options))],
            ),
        ),
    )


def write_quality_comparison(
    comparison: EvalComparison, names: tuple[str, str], path: Path, words: Words | None = None
) -> None:
    """Write the HTML report of a comparison; OSError when the file cannot be written."""
    words = words or Words()
    path.write_text(render(comparison_page(comparison, names, words), words), encoding="utf-8")


def comparison_page(comparison: EvalComparison, names: tuple[str, str], words: Words) -> Page:
    """What the report of a comparison says, as a page."""
    sets = list(dict.fromkeys(change.set for change in comparison.changes))
    return Page(
        title=words("title_eval_compare").format(before=names[0], after=names[1]),
        subtitle=[words("paired").format(share=f"{comparison.confidence:.0%}")],
        alarm=words("warnings") if comparison.warnings else "",
        reasons=words.reasons(comparison.why, comparison.warnings),
        sections=tuple(
            _changes_section(name, [one for one in comparison.changes if one.set == name], words)
            for name in sets
        ),
    )


def _cards(result: EvalResult, words: Words) -> list[Card]:
    """Means over the sets, each set counting once."""
    cards = []
    for name in CARDS:
        found = [one.measures[ALL][name] for one in result.sets if name in one.measures[ALL]]
        if found:
            value = sum(mean.value for mean in found) / len(found)
            note = words("less_is_better") if name in ERRORS else ""
            cards.append(Card(words(name), f"{value:.3f}", note))
    return cards


def _set_section(one: SetResult, words: Words) -> Section:
    counts = words("set_counts" if one.documents else "set_questions").format(
        questions=f"{one.questions:,}", documents=f"{one.documents:,}"
    )
    return Section(
        one.name,
        notes=(counts, words("measures_notes")),
        figures=[*_measure_figures(one, words), *_latency_figures(one, words)],
        tables=[
            _measures_table(one, words),
            _latency_table(one, words),
            Table(
                (words("rung"), words("questions")),
                [(name, f"{count:,}") for name, count in one.rungs.items()],
            ),
            *_failures_tables(one, words),
        ],
        details=[(words("measures_judge"), json_text(one.judge))] if one.judge else (),
    )


def _failures_tables(one: SetResult, words: Words) -> list[Table]:
    """The questions that went wrong, where the result tells of them."""
    if not one.failures:
        return []
    count = sum(bool(reasons(row)) for row in one.rows)
    told = words("failures").format(shown=f"{len(one.failures):,}", count=f"{count:,}")
    unanswered = {row.id for row in one.rows if INVENTED in row.values}
    columns = ("question", "failure_why", "failure_expected", "failure_said", "failure_found")
    rows = [
        (
            failure.question,
            "; ".join(map(words, failure.why)),
            words("failure_no_answer") if failure.id in unanswered else failure.expected or "-",
            failure.said or "-",
            ", ".join(failure.found) or "-",
        )
        for failure in one.failures
    ]
    return [Table([words(name) for name in columns], rows, told, prose=True)]


def _measure_figures(one: SetResult, words: Words) -> list[Figure]:
    names = list(dict.fromkeys(name for of in one.measures.values() for name in of))
    parts = {
        "measures_retrieval": [name for name in names if name.startswith(RETRIEVAL)],
        "measures_judge": [name for name in names if name.startswith(JUDGED)],
    }
    rest = [name for name in names if not any(name in part for part in parts.values())]
    parts = {
        "measures_retrieval": parts.pop("measures_retrieval"),
        "measures_answers": rest,
        **parts,
    }
    return [
        figure(words(title), charts.measures(_rows(one.measures, chosen, words), words), wide=True)
        for title, chosen in parts.items()
        if chosen
    ]


def _rows(
    measures: Mapping[str, Mapping[str, Mean]], names: Sequence[str], words: Words
) -> list[Row]:
    # One language says the same as all: it is drawn once.
    languages = list(measures) if len(measures) > 2 else list(measures)[:1]
    return [
        {
            "measure": words(name),
            "language": words(language),
            "value": round(mean.value, 4),
            "low": round(mean.low, 4),
            "high": round(mean.high, 4),
            "count": mean.count,
        }
        for name in names
        for language in languages
        if (mean := measures[language].get(name)) is not None
    ]


def _latency_figures(one: SetResult, words: Words) -> list[Figure]:
    drawn = []
    for name in TIMES:
        rows: list[Row] = []
        for language in sorted({row.language for row in one.rows}):
            taken = sorted(
                row.values[name]
                for row in one.rows
                if row.language == language and name in row.values
            )
            step = max(1, len(taken) // MAX_POINTS)
            rows += [
                {
                    "kind": words(language),
                    "seconds": float(f"{max(taken[at], SHORTEST_S):.4g}"),
                    "share": round((at + 1) / len(taken), 4),
                }
                for at in dict.fromkeys((*range(0, len(taken), step), len(taken) - 1))
                if taken
            ]
        if rows:
            drawn.append(figure(words(name), charts.distribution(rows, words(name), words)))
    return drawn


def _measures_table(one: SetResult, words: Words) -> Table:
    names = dict.fromkeys(name for of in one.measures.values() for name in of)
    return Table(
        (words("measure"), *(words(language) for language in one.measures)),
        [
            (
                words(name) + (f" ({words('less_is_better')})" if name in ERRORS else ""),
                *(_mean(of.get(name)) for of in one.measures.values()),
            )
            for name in names
        ],
    )


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{mean.value:.3f} ({mean.low:.3f} … {mean.high:.3f}, n {mean.count:,})"


def _latency_table(one: SetResult, words: Words) -> Table:
    columns = (words("latency_stage"), words("language"), words("questions"))
    return Table(
        (*columns, "P50", "P90", "P99", "P99.9", words("max")),
        [
            (
                words(stage),
                words(language),
                f"{found.count:,}",
                *map(seconds, (found.p50_s, found.p90_s, found.p99_s, found.p999_s, found.max_s)),
            )
            for language, stages in one.latency.items()
            for stage, found in stages.items()
        ],
    )


def _changes_section(name: str, changes: Sequence[Change], words: Words) -> Section:
    rows = [
        {
            "figure": _label(change, words),
            "change": round(change.change, 5),
            "low": round(change.low, 5),
            "high": round(change.high, 5),
            "verdict": words(f"verdict_{change.verdict}"),
        }
        for change in changes
        if math.isfinite(change.change)
    ]
    columns = ("measure", "questions", "before", "after", "change", "low", "high", "p_value")
    table = Table(
        [words(column) for column in (*columns, "holm", "verdict")],
        [
            (
                _label(change, words),
                f"{change.questions:,}",
                *(_amount(value, change) for value in (change.before, change.after)),
                *(_moved(value, change) for value in (change.change, change.low, change.high)),
                f"{change.p:.3f}",
                f"{change.holm:.3f}",
                words(f"verdict_{change.verdict}"),
            )
            for change in changes
        ],
    )
    return Section(
        name,
        figures=[figure(words("chart_changes"), charts.changes(rows, words), wide=True)],
        tables=[table],
    )


def _label(change: Change, words: Words) -> str:
    label = words(change.measure)
    return label if change.language == ALL else f"{label}, {words(change.language)}"


def _amount(value: float, change: Change) -> str:
    return seconds(value) if change.measure in TIMES else f"{value:.4f}"


def _moved(value: float, change: Change) -> str:
    return f"{value:+.1%}" if change.measure in TIMES else f"{value:+.4f}"


def _first_error(one: SetResult) -> str:
    return next((row.error for row in one.rows if row.error), "")


def _origin(origin: Origin, words: Words) -> list[str]:
    machine = origin.machine
    told = (
        origin.started_at,
        f"{words('seed')} {origin.seed}",
        f"{words('commit')} {origin.commit}" if origin.commit else "",
        words("measures_computed_by").format(name=origin.measures_by) if origin.measures_by else "",
    )
    where = (machine.cpu, machine.system, machine.python)
    lines = (" · ".join(part for part in line if part) for line in (told, where))
    return [line for line in lines if line]
