"""The report of one run: verdict, headline figures, charts, tables, and what was run."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

from forebay.lab.measure.result import Figures, Generator, Quantiles, RunResult
from forebay.lab.report import charts, rows
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import Card, Figure, Page, Section, Table, figure, render
from forebay.lab.report.parts import json_text, origin
from forebay.lab.report.words import Words

HEALTHY = 0.99
"""Share of good answers from which a run counts as healthy (bench ramp's default too)."""


def write_report(result: RunResult, path: Path, words: Words | None = None) -> None:
    """Write the HTML report of a run; OSError when the file cannot be written."""
    words = words or Words()
    path.write_text(render(run_page(result, words), words), encoding="utf-8")


def run_page(result: RunResult, words: Words) -> Page:
    """What the report says, as a page."""
    health = result.generator
    invalid = health is not None and not health.valid
    return Page(
        title=words("title_run").format(target=result.run.target or words(result.run.source)),
        subtitle=origin(result.run, result.duration_s, words),
        alarm=words("not_valid") if invalid else "",
        reasons=words.reasons(health.why, health.why_not) if health and invalid else (),
        cards=_cards(result, words),
        sections=(
            Section(words("over_time"), figures=_over_time(result, words)),
            Section(words("distributions"), figures=_distributions(result, words)),
            Section(
                words("by_kind"), figures=_by_kind(result, words), tables=_tables(result, words)
            ),
            _what_ran(result, words),
        ),
    )


def _cards(result: RunResult, words: Words) -> list[Card]:
    total = result.total
    good = total.goodput_share >= HEALTHY
    asked = total.sent + total.not_sent - total.disconnected
    cards = [
        Card(
            words("good_share"),
            f"{total.goodput_share:.2%}",
            f"{total.good:,} / {asked:,}",
            "good" if good else "bad",
        ),
        Card(words("goodput_card"), f"{total.goodput_per_s:.4g}/s", words("goodput_note")),
        Card(words("offered_card"), f"{result.offered_per_s:.4g}/s", words("offered_note")),
        Card(words("ttft"), f"{seconds(total.ttft.p50_s)}", f"P99 {seconds(total.ttft.p99_s)}"),
        Card(words("itl"), f"{seconds(total.itl.p50_s)}", f"P99 {seconds(total.itl.p99_s)}"),
        Card(words("total"), f"{seconds(total.total.p50_s)}", f"P99 {seconds(total.total.p99_s)}"),
        Card("P99 / P50", f"{total.total.tail_ratio:.3g}", words("total")),
    ]
    if result.generator is not None:
        late = result.generator.lateness
        cards.append(
            Card(
                words("generator"),
                f"{seconds(late.p99_s)}",
                words("generator_note").format(cpu=f"{result.generator.cpu_share:.0%}"),
                "" if result.generator.valid else "bad",
            )
        )
    return cards


def _over_time(result: RunResult, words: Words) -> list[Figure]:
    drawn: list[Figure] = []
    rates = rows.rate_rows(result, words)
    if rates:
        drawn.append(figure(words("chart_rates"), charts.rates_over_time(rates, words), wide=True))
    status = rows.status_rows(result, words)
    if status:
        drawn.append(
            figure(words("chart_status"), charts.status_over_time(status, words), wide=True)
        )
    for measure in ("total", "ttft"):
        lines = rows.latency_rows(result, attrgetter(measure), words)
        if lines:
            title = words("chart_latency").format(measure=words(measure))
            drawn.append(figure(title, charts.latency_over_time(lines, words), wide=True))
    for measure in ("ttft", "itl"):
        cells = rows.heat_rows(result, attrgetter(measure))
        if cells:
            title = words("chart_heat").format(measure=words(measure))
            chart = charts.heat_map(cells, words(f"{measure}_s"), words)
            drawn.append(figure(title, chart, wide=True))
    return drawn


def _distributions(result: RunResult, words: Words) -> list[Figure]:
    drawn: list[Figure] = []
    for measure in ("ttft", "itl", "total"):
        points = rows.distribution_rows(result, attrgetter(f"{measure}.histogram"))
        if points:
            chart = charts.distribution(points, words(f"{measure}_s"), words)
            drawn.append(figure(words(measure), chart))
    return drawn


def _by_kind(result: RunResult, words: Words) -> list[Figure]:
    shares = rows.goodput_rows(result)
    if not shares:
        return []
    return [figure(words("good_share"), charts.goodput_by_kind(shares, words), wide=True)]


def _tables(result: RunResult, words: Words) -> list[Table]:
    every = {words("all"): result.total, **result.by_kind}
    tables = [
        _counts_table(words("kind"), every, words),
        _latency_table(words("kind"), every, words),
    ]
    if len(result.by_tenant) > 1:
        tables.append(_counts_table(words("tenant"), result.by_tenant, words))
        tables.append(_latency_table(words("tenant"), result.by_tenant, words))
    tables += _share_tables(result, words)
    return tables


def _counts_table(name: str, figures: Mapping[str, Figures], words: Words) -> Table:
    columns = (
        name,
        words("sent"),
        words("ok"),
        words("good"),
        words("good_share"),
        words("goodput_per_s"),
        words("input_tokens"),
        words("output_tokens"),
        words("output_tokens_per_s"),
    )
    return Table(
        columns,
        [
            (
                kind or words("none"),
                f"{item.sent:,}",
                f"{item.ok:,}",
                f"{item.good:,}",
                f"{item.goodput_share:.2%}",
                f"{item.goodput_per_s:,.4g}",
                f"{item.input_tokens:,}",
                f"{item.output_tokens:,}",
                f"{item.output_tokens_per_s:,.4g}",
            )
            for kind, item in figures.items()
        ],
    )


def _latency_table(name: str, figures: Mapping[str, Figures], words: Words) -> Table:
    columns = (name, "", words("mean"), "P50", "P90", "P99", "P99.9", words("max"), "P99/P50")
    lines: list[tuple[str, ...]] = []
    for kind, item in figures.items():
        measures: dict[str, Quantiles] = {
            "ttft": item.ttft,
            "itl": item.itl,
            "tpot": item.tpot,
            "total": item.total,
        }
        for place, (measure, found) in enumerate(measures.items()):
            if found.count:
                label = (kind or words("none")) if place == 0 else ""
                lines.append((label, words(measure), *_quantile_cells(found)))
    return Table(columns, lines)


def _quantile_cells(found: Quantiles) -> tuple[str, ...]:
    values = (found.mean_s, found.p50_s, found.p90_s, found.p99_s, found.p999_s, found.max_s)
    return (*(seconds(value) for value in values), f"{found.tail_ratio:.3g}")


def _share_tables(result: RunResult, words: Words) -> list[Table]:
    tables: list[Table] = []
    if result.total.statuses:
        rest = {code: count for code, count in result.codes.items() if count}
        tables.append(_count_table(words("status"), result.total.statuses, words))
        if rest:
            tables.append(_count_table(words("http_status"), rest, words))
    if result.messages:
        told = [(words(status), message) for status, message in result.messages.items()]
        tables.append(Table((words("status"), words("message")), told))
    for tier, found in result.cache.items():
        tables.append(_count_table(words("cache_tier").format(tier=tier), found, words))
    if result.rungs:
        tables.append(_count_table(words("rung"), result.rungs, words))
    return tables


def _count_table(name: str, counts: Mapping[str, int], words: Words) -> Table:
    whole = sum(counts.values()) or 1
    return Table(
        (name, words("count"), words("share")),
        [(words(key), f"{count:,}", f"{count / whole:.2%}") for key, count in counts.items()],
    )


def _what_ran(result: RunResult, words: Words) -> Section:
    details = [
        (words("workload"), json_text(result.run.workload)),
        (words("options"), json_text(result.run.options)),
        (words("versions"), json_text(result.run.versions)),
        (words("engine"), json_text(result.engine)),
    ]
    tables = [] if result.generator is None else [_generator_table(result.generator, words)]
    return Section(
        words("what_ran"),
        notes=(words("definitions"),),
        tables=tables,
        details=[(name, text) for name, text in details if text != "{}"],
    )


def _generator_table(health: Generator, words: Words) -> Table:
    late = health.lateness
    rest = {
        "lateness": f"P50 {seconds(late.p50_s)} · P99 {seconds(late.p99_s)} · "
        f"{words('max')} {seconds(late.max_s)}",
        "cpu_share": f"{health.cpu_share:.1%}",
        "max_in_flight": f"{health.max_in_flight:,}",
        "connections": f"{health.connections:,}",
        "processes": f"{health.processes:,}",
        "valid": words("yes") if health.valid else words("no"),
    }
    return Table((words("generator"), ""), [(words(name), text) for name, text in rest.items()])
