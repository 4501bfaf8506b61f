"""The report of a search: the front with its knee, before and after, the patch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from forebay.lab.measure.result import Run
from forebay.lab.report.charts import Chart, Row
from forebay.lab.report.page import Card, Figure, Page, Section, Table, figure, render, svg
from forebay.lab.report.parts import json_text, origin
from forebay.lab.report.words import Words
from forebay.lab.tune.objectives import Figures
from forebay.lab.tune.result import TuneResult
from forebay.lab.tune.words import TEXTS

ROLES = ("tried", "front", "eligible", "chosen", "base")
_COLOURS = ("#adb5bd", "#5b8def", "#2b6cb0", "#d64545", "#2f9e60")
_SHAPES = ("circle", "circle", "circle", "diamond", "square")
_SIZES = (28, 50, 70, 190, 130)
_HEIGHT_PX = 300
_WIDTH_PX = 430


def tuning_words(words: Words) -> Words:
    """The same language with the words of this report."""
    return Words(words.language, TEXTS)


def write_tuning_report(result: TuneResult, path: Path, words: Words) -> None:
    """Write the HTML report; OSError when the file cannot be written."""
    words = tuning_words(words)
    path.write_text(render(tuning_page(result, words), words), encoding="utf-8")


def write_tuning_svg(result: TuneResult, path: Path, words: Words) -> None:
    """Write both pictures of the front as one SVG; OSError when the file cannot be written."""
    words = tuning_words(words)
    panels = [
        chart.properties(width=_WIDTH_PX, height=_HEIGHT_PX, title=words(title))
        for title, chart in _charts(result, words)
    ]
    beside = alt.hconcat(*panels).resolve_scale(color="shared", shape="shared", size="shared")
    path.write_text(svg(beside), encoding="utf-8")


def tuning_page(result: TuneResult, words: Words) -> Page:
    """What the report says, as a page."""
    run = Run(
        source="tune",
        target=result.corpus,
        seed=result.settings.seed,
        workload={"name": words(f"tune_source_{result.source}")},
        fingerprint="",
        options={},
        machine=result.machine,
        commit=result.commit,
        versions=result.versions,
    )
    held = result.found.held_out
    asked = words("tune_asked").format(tuning=result.tuning_questions, held=held.questions)
    warning = result.warning
    return Page(
        title=words("tune_title").format(corpus=result.corpus),
        subtitle=[*origin(run, None, words), asked],
        alarm=words(warning) if warning else "",
        reasons=(change_sentence(result, words),) if warning else (),
        cards=_cards(result, words),
        sections=(
            Section(
                words("tune_front_section"),
                notes=(
                    words("tune_knee_note").format(loss=f"{result.quality_loss:g}"),
                    words("tune_latency_note"),
                ),
                figures=[_figure(words(name), chart) for name, chart in _charts(result, words)],
                tables=[_front_table(result, words), *_failures(result, words)],
            ),
            Section(
                words("tune_held_out"),
                notes=(change_sentence(result, words),),
                tables=[held_out_table(result, words), *answers_tables(result, words)],
            ),
            Section(
                words("what_ran"),
                tables=[_steps(result, words)],
                details=[
                    (words("tune_patch"), result.patch),
                    (words("options"), json_text(_builtins(result))),
                ],
            ),
        ),
    )


def change_sentence(result: TuneResult, words: Words) -> str:
    """What the held-out half says of quality, and whether that is beyond chance."""
    if result.found.chosen is None:
        return words("tune_kept")
    change = result.found.held_out.quality
    told = words("tune_change").format(mean=change.mean, low=change.low, high=change.high)
    if change.verdict == "same":
        told += words("tune_same")
    return told + (words("tune_cheaper") if result.advised == "cheaper" else "")


def held_out_table(result: TuneResult, words: Words) -> Table:
    """Both configurations on the held-out half, a figure a row."""
    held = result.found.held_out
    rows = zip(_cells(result, held.before), _cells(result, held.after), strict=True)
    names = _names(result, words)
    return Table(
        (words("figure"), words("before"), words("after")),
        [(name, *pair) for name, pair in zip(names, rows, strict=True)],
    )


def answers_tables(result: TuneResult, words: Words) -> list[Table]:
    """Refusals and inventions before and after, where they were looked at."""
    columns = ("measure", "questions", "before", "after", "low", "high", "verdict")
    rows = [
        (
            words(one.measure),
            f"{one.questions:,}",
            f"{one.before:.3f}",
            f"{one.after:.3f}",
            f"{one.low:+.3f}",
            f"{one.high:+.3f}",
            words(f"verdict_{one.verdict}"),
        )
        for one in result.answers
    ]
    return [Table([words(name) for name in columns], rows, words("answers_told"))] if rows else []


def _cards(result: TuneResult, words: Words) -> list[Card]:
    held = result.found.held_out
    mood = {"better": "good", "worse": "bad", "same": ""}[held.quality.verdict]
    latency = result.latency
    return [
        Card(
            words("tune_quality").format(depth=result.settings.objectives.depth),
            f"{held.after.quality:.4f}",
            f"{words('before')}: {held.before.quality:.4f}",
            mood,
        ),
        Card(
            words(f"tune_{latency}"),
            _ms(held.after.latency_ms(latency)),
            f"{words('before')}: {_ms(held.before.latency_ms(latency))}",
        ),
        Card(
            words("tune_memory"),
            _bytes(held.after.memory_bytes),
            f"{words('before')}: {_bytes(held.before.memory_bytes)}",
        ),
    ]


def _figure(title: str, chart: Chart) -> Figure:
    return figure(title, chart, wide=True)


def _charts(result: TuneResult, words: Words) -> list[tuple[str, Chart]]:
    rows = _rows(result, words)
    latency = words(f"tune_{result.latency}")
    return [
        ("tune_by_latency", _scatter(rows, ("latency_ms", f"{latency}, ms"), result, words)),
        (
            "tune_by_memory",
            _scatter(rows, ("memory_mb", f"{words('tune_memory')}, MB"), result, words),
        ),
    ]


def _scatter(rows: Sequence[Row], x: tuple[str, str], result: TuneResult, words: Words) -> Chart:
    """Quality over one cost; rows: ``role``, ``place``, ``quality`` and the cost."""
    names = [words(f"tune_{role}") for role in ROLES]
    quality = words("tune_quality").format(depth=result.settings.objectives.depth)
    data = alt.InlineData(values=[dict(row) for row in rows])
    base = alt.Chart(data, width="container", height=_HEIGHT_PX)
    legend = alt.Legend(labelLimit=260, columns=3)
    points: Chart = base.mark_point(filled=True, opacity=0.9).encode(
        x=alt.X(f"{x[0]}:Q", title=x[1], scale=alt.Scale(type="log", nice=False, padding=12)),
        y=alt.Y("quality:Q", title=quality, scale=alt.Scale(zero=False, padding=8)),
        color=alt.Color(
            "role:N",
            title=None,
            scale=alt.Scale(domain=names, range=list(_COLOURS)),
            legend=legend,
        ),
        shape=alt.Shape(
            "role:N", title=None, scale=alt.Scale(domain=names, range=list(_SHAPES)), legend=legend
        ),
        size=alt.Size(
            "role:N", title=None, scale=alt.Scale(domain=names, range=list(_SIZES)), legend=legend
        ),
        order=alt.Order("place:Q"),
        tooltip=[
            alt.Tooltip("number:N", title=words("tune_number")),
            alt.Tooltip("quality:Q", title=quality, format=".4f"),
            alt.Tooltip("latency_ms:Q", title=words(f"tune_{result.latency}"), format=".3~g"),
            alt.Tooltip("memory_mb:Q", title=words("tune_memory"), format=".3~g"),
            alt.Tooltip("settings:N", title=words("tune_settings")),
        ],
    )
    return points


def _rows(result: TuneResult, words: Words) -> list[Row]:
    found = result.found
    rows = [
        _row(result, trial.figures, _role(result, trial.number), str(trial.number), trial.values)
        for trial in found.trials
        if trial.figures is not None
    ]
    rows.append(_row(result, found.base, "base", "-", result.before))
    return [{**row, "role": words(f"tune_{row['role']}")} for row in rows]


def _row(result: TuneResult, point: Figures, role: str, number: str, values: dict[str, Any]) -> Row:
    return {
        "role": role,
        "place": ROLES.index(role),
        "number": number,
        "quality": point.quality,
        "latency_ms": max(point.latency_ms(result.latency), 1e-6),
        "memory_mb": max(point.memory_bytes, 1) / 1e6,
        "settings": settings_text(values),
    }


def _role(result: TuneResult, number: int) -> str:
    found = result.found
    if number == found.chosen:
        return "chosen"
    if number in found.eligible:
        return "eligible"
    return "front" if number in found.front else "tried"


def settings_text(values: dict[str, Any]) -> str:
    """Settings on one line, without the sections they stand in."""
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in values.items())


def _front_table(result: TuneResult, words: Words) -> Table:
    found = result.found
    columns = (words("tune_number"), "", *_names(result, words), words("tune_settings"))
    rows = [("-", words("tune_base"), *_cells(result, found.base), settings_text(result.before))]
    for number in found.front:
        trial = found.trial(number)
        if trial.figures is not None:
            role = words(f"tune_{_role(result, number)}")
            cells = _cells(result, trial.figures)
            rows.append((str(number), role, *cells, settings_text(trial.values)))
    return Table(columns, rows)


def _failures(result: TuneResult, words: Words) -> list[Table]:
    failed = [trial for trial in result.found.trials if trial.figures is None]
    if not failed:
        return []
    rows = [(str(trial.number), trial.reason, settings_text(trial.values)) for trial in failed]
    columns = (words("tune_number"), words("tune_reason"), words("tune_settings"))
    return [Table(columns, rows, words("tune_failed"))]


def _steps(result: TuneResult, words: Words) -> Table:
    columns = (words("tune_steps"), words("before"), words("after"), words("tune_seconds"))
    return Table(
        columns,
        [
            (
                words(f"tune_step_{step.name}"),
                settings_text(step.before),
                settings_text(step.after),
                f"{step.seconds:.1f}",
            )
            for step in result.steps
        ],
    )


def _names(result: TuneResult, words: Words) -> tuple[str, ...]:
    quality = words("tune_quality").format(depth=result.settings.objectives.depth)
    rest = ("cpu", "p50", "p99", "memory", "chunks", "words_only")
    return (quality, *(words(f"tune_{name}") for name in rest))


def _cells(result: TuneResult, point: Figures) -> tuple[str, ...]:
    return (
        f"{point.quality:.4f}",
        _ms(point.cpu_ms),
        _ms(point.p50_ms),
        _ms(point.p99_ms),
        _bytes(point.memory_bytes),
        f"{point.chunks:,}",
        f"{point.words_only_share:.0%}",
    )


def _ms(value: float) -> str:
    return f"{value:.3g} ms"


def _bytes(value: int) -> str:
    return f"{value / 1e6:.3g} MB"


def _builtins(result: TuneResult) -> dict[str, Any]:
    import msgspec

    return {
        "settings": msgspec.to_builtins(result.settings),
        "space": msgspec.to_builtins(result.space),
    }
