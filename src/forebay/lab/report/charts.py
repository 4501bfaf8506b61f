"""Charts of a result, as Vega-Lite: rows of plain values in, one chart out.

A chart sets no colour of the background and no font: the page and the SVG writer bring a theme.
Widths follow the place a chart stands in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import altair as alt

from forebay.lab.report.words import Words

Chart = alt.Chart | alt.LayerChart | alt.FacetChart
Axis = TypeVar("Axis", alt.X, alt.Y)
Row = Mapping[str, Any]
Rows = Sequence[Row]

HEIGHT_PX = 240
STATUS_COLOURS = {
    "good": "#2f9e60",
    "late": "#e0a526",
    "timeout": "#d64545",
    "http_error": "#8e44ad",
    "refused": "#5b8def",
    "disconnected": "#adb5bd",
}
"""What became of a request; the rest share colours that tell them apart."""
_OTHER_STATUS = ("#ef8f8f", "#6d4c41", "#c17fd0", "#8d99ae", "#495057")


def latency_over_time(rows: Rows, words: Words) -> Chart:
    """Latency by moment of the intended start.

    Rows: ``at_s``, ``kind``, ``quantile``, ``seconds``. A click on the legend singles a kind out.
    """
    chosen = alt.selection_point(fields=["kind"], bind="legend")
    chart: Chart = (
        _chart(rows)
        .mark_line(interpolate="monotone", strokeWidth=1.6)
        .encode(
            x=_time(words),
            y=_duration(alt.Y, "seconds", words("latency_s"), _span(rows, "seconds")),
            color=_kind_colour(rows, words),
            strokeDash=alt.StrokeDash("quantile:N", title=words("quantile")),
            opacity=alt.condition(chosen, alt.value(1), alt.value(0.12)),
            tooltip=_tips(words, "kind", "quantile", "at_s", "seconds"),
        )
        .add_params(chosen)
    )
    return chart


def rates_over_time(rows: Rows, words: Words) -> Chart:
    """Requests a second: offered, answered, good. Rows: ``at_s``, ``series``, ``per_s``."""
    order = [words("offered"), words("achieved"), words("goodput")]
    chart: Chart = (
        _chart(rows)
        .mark_line(interpolate="step-after")
        .encode(
            # Lines often lie upon each other: the upper ones are thinner.
            strokeWidth=alt.StrokeWidth(
                "series:N", title=None, scale=alt.Scale(domain=order, range=[5, 2.5, 1.4])
            ),
            x=_time(words),
            y=alt.Y("per_s:Q", title=words("per_s"), scale=alt.Scale(zero=True)),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=order)),
            tooltip=_tips(words, "series", "at_s", "per_s"),
        )
    )
    return chart


def distribution(rows: Rows, title: str, words: Words) -> Chart:
    """Share of requests that took at most so long. Rows: ``kind``, ``seconds``, ``share``."""
    chart: Chart = (
        _chart(rows)
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=_duration(alt.X, "seconds", title, _span(rows, "seconds")),
            y=_share_axis(alt.Y, "share", words("share")),
            color=_kind_colour(rows, words),
            tooltip=_tips(words, "kind", "seconds", "share"),
        )
    )
    return chart


def goodput_by_kind(rows: Rows, words: Words) -> Chart:
    """Share of each kind that was answered whole and in time.

    Rows: ``kind``, ``label`` (what stands beside the bar), ``share``.
    """
    chart: Chart = (
        _chart(rows)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=360)),
            x=_share_axis(alt.X, "share", words("good_share")),
            color=_kind_colour(rows, words).legend(None),
            tooltip=_tips(words, "kind", "share"),
        )
        .properties(height=max(1, len(rows)) * 34)
    )
    return chart


def heat_map(rows: Rows, title: str, words: Words) -> Chart:
    """How many requests of each moment took how long.

    Rows: ``at_s``, ``until_s``, ``low_s``, ``high_s``, ``count``; colours are logarithmic.
    """
    chart: Chart = (
        _chart(rows)
        .mark_rect()
        .encode(
            x=alt.X("at_s:Q", title=words("time_s"), scale=alt.Scale(nice=False)),
            x2="until_s:Q",
            y=_duration(alt.Y, "low_s", title, _span(rows, "low_s", "high_s")),
            y2="high_s:Q",
            color=alt.Color("count:Q", title=words("count"), scale=alt.Scale(type="symlog")),
            tooltip=_tips(words, "at_s", "low_s", "high_s", "count"),
        )
    )
    return chart


def status_over_time(rows: Rows, words: Words) -> Chart:
    """What became of the requests of each moment, stacked.

    Rows: ``at_s``, ``status``, ``per_s``, ``outcome`` (of STATUS_COLOURS or another), one for every
    status at every moment.
    """
    names = dict.fromkeys((str(row["status"]), str(row["outcome"])) for row in rows)
    colours = [
        STATUS_COLOURS.get(outcome, _OTHER_STATUS[place % len(_OTHER_STATUS)])
        for place, (_, outcome) in enumerate(names)
    ]
    domain = [name for name, _ in names]
    chart: Chart = (
        _chart([{**row, "place": domain.index(str(row["status"]))} for row in rows])
        .mark_area(interpolate="step-after", line=False)
        .encode(
            x=_time(words),
            y=alt.Y("per_s:Q", title=words("per_s"), stack="zero"),
            color=alt.Color("status:N", title=None, scale=alt.Scale(domain=domain, range=colours)),
            order=alt.Order("place:Q"),
            tooltip=_tips(words, "status", "at_s", "per_s"),
        )
    )
    return chart


def knee(rows: Rows, knee_per_s: float | None, wanted: float, words: Words) -> Chart:
    """Share of good answers at each rate that was tried, and where the knee lies.

    Rows: ``rate_per_s``, ``share``, ``verdict``.
    """
    points = (
        _chart(rows)
        .mark_point(filled=True, size=90)
        .encode(
            x=alt.X("rate_per_s:Q", title=words("rate"), scale=alt.Scale(zero=False)),
            y=_share_axis(alt.Y, "share", words("good_share")),
            color=alt.Color("verdict:N", title=None),
            tooltip=_tips(words, "rate_per_s", "share", "verdict"),
        )
    )
    line = points.mark_line(strokeWidth=1, opacity=0.5).encode(color=alt.value("#8d99ae"))
    layers = [
        line,
        points,
        points.mark_rule(strokeDash=[4, 4]).encode(
            x=alt.X(), y=alt.datum(wanted), color=alt.value("#8d99ae"), tooltip=alt.value(None)
        ),
    ]
    if knee_per_s is not None:
        layers.append(
            points.mark_rule(strokeWidth=2).encode(
                x=alt.datum(knee_per_s),
                y=alt.Y(),
                color=alt.value("#2f9e60"),
                tooltip=alt.value(None),
            )
        )
    return alt.layer(*layers).properties(width="container", height=HEIGHT_PX)


def latency_by_rate(rows: Rows, words: Words) -> Chart:
    """Latency at each rate that was tried. Rows: ``rate_per_s``, ``quantile``, ``seconds``."""
    chart: Chart = (
        _chart(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("rate_per_s:Q", title=words("rate"), scale=alt.Scale(zero=False)),
            y=_duration(alt.Y, "seconds", words("total_s"), _span(rows, "seconds")),
            color=alt.Color("quantile:N", title=words("quantile")),
            tooltip=_tips(words, "rate_per_s", "quantile", "seconds"),
        )
    )
    return chart


def changes(rows: Rows, words: Words) -> Chart:
    """Each figure's change with its interval.

    Rows: ``figure``, ``change``, ``low``, ``high`` (shares of the first), ``verdict``.
    """
    base = _chart(rows).encode(
        y=alt.Y("figure:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("verdict:N", title=None),
    )
    spans = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("low:Q", title=words("change"), axis=alt.Axis(format="+%")),
        x2="high:Q",
        tooltip=_tips(words, "figure", "change", "low", "high", "verdict"),
    )
    middles = base.mark_point(filled=True, size=70).encode(x="change:Q")
    zero = (
        alt.Chart(alt.InlineData(values=[{}])).mark_rule(strokeDash=[4, 4]).encode(x=alt.datum(0.0))
    )
    return alt.layer(zero, spans, middles).properties(
        width="container", height=max(1, len(rows)) * 26
    )


def measures(rows: Rows, words: Words) -> Chart:
    """Means with their intervals, a row a measure, a colour a language.

    Rows: ``measure``, ``language``, ``value``, ``low``, ``high``, ``count``.
    """
    base = _chart(rows).encode(
        y=alt.Y("measure:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("language:N", sort=None),
        color=alt.Color("language:N", title=words("language"), sort=None),
        tooltip=_tips(words, "measure", "language", "value", "low", "high", "count"),
    )
    spans = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("low:Q", title=words("mean"), scale=alt.Scale(domain=[0, 1]), axis=alt.Axis()),
        x2="high:Q",
    )
    middles = base.mark_point(filled=True, size=60).encode(x="value:Q")
    languages = len({row["language"] for row in rows})
    height = max(1, len(rows) // max(languages, 1)) * (12 + 10 * languages)
    return alt.layer(spans, middles).properties(width="container", height=height)


_ABOUT = 1.001
"""What a value may lie beyond a mark and still be on it: rows are rounded."""
_READABLE = (
    "datum.value < 0.001 ? format(datum.value * 1e6, '~g') + ' µs'"
    " : datum.value < 1 ? format(datum.value * 1e3, '~g') + ' ms'"
    " : format(datum.value, '~g') + ' s'"
)


def _span(rows: Rows, *fields: str) -> tuple[float, float]:
    values = [float(row[field]) for row in rows for field in fields]
    return min(values), max(values)


def _duration(channel: type[Axis], field: str, title: str, span: tuple[float, float]) -> Axis:
    """A logarithmic axis from mark to mark: 1, 2 and 5 of each decade, or its beginning only."""
    decades = range(math.floor(math.log10(span[0])), math.ceil(math.log10(span[1])) + 2)
    digits = (1, 2, 5) if len(decades) <= 5 else (1,)
    marks = [digit * 10.0**power for power in decades for digit in digits]
    low = max(mark for mark in marks if mark <= span[0] * _ABOUT)
    high = min(mark for mark in marks if mark >= span[1] / _ABOUT and mark > low)
    return channel(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(type="log", domain=[low, high], nice=False, clamp=True),
        axis=alt.Axis(values=[mark for mark in marks if low <= mark <= high], labelExpr=_READABLE),
    )


def _chart(rows: Rows) -> alt.Chart:
    data = alt.InlineData(values=[dict(row) for row in rows])
    return alt.Chart(data, width="container", height=HEIGHT_PX)


def _kind_colour(rows: Rows, words: Words) -> alt.Color:
    """One colour a kind on the whole page: in the order of the rows, all kinds together last."""
    every = words("all")
    names = dict.fromkeys(str(row["kind"]) for row in rows)
    domain = [name for name in names if name != every] + [every] * (every in names)
    return alt.Color("kind:N", title=words("kind"), scale=alt.Scale(domain=domain))


def _share_axis(channel: type[Axis], field: str, title: str) -> Axis:
    return channel(
        f"{field}:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")
    )


def _time(words: Words) -> alt.X:
    return alt.X("at_s:Q", title=words("time_s"), scale=alt.Scale(nice=False))


def _tips(words: Words, *fields: str) -> list[alt.Tooltip]:
    return [_tip(field, words(field)) for field in fields]


def _tip(field: str, title: str) -> alt.Tooltip:
    if field in ("share", "change", "low", "high", "value"):
        return alt.Tooltip(f"{field}:Q", title=title, format=".2%")
    if field.endswith("_s") or field in ("seconds", "count"):
        return alt.Tooltip(f"{field}:Q", title=title, format=",.4~g")
    return alt.Tooltip(f"{field}:N", title=title)
