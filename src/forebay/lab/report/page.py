"""One self-contained HTML page: script, style and data inside, nothing fetched from anywhere.

The page forbids itself any request by its content security policy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import altair as alt
import jinja2
import msgspec

from forebay.lab.report.charts import Chart
from forebay.lab.report.theme import configuration
from forebay.lab.report.words import Words

VEGA_LITE = "6.4"
"""What Altair writes; vl-convert carries several."""


class Card(msgspec.Struct, frozen=True):
    """One figure to see first; ``mood`` is ``good``, ``bad`` or empty."""

    name: str
    value: str
    note: str = ""
    mood: str = ""


class Figure(msgspec.Struct, frozen=True):
    """One chart and its heading; ``spec_json`` is safe inside a script element."""

    title: str
    spec_json: str
    wide: bool = False


class Table(msgspec.Struct, frozen=True):
    """Rows of cells; the first column is the name of the row. ``prose``: cells hold sentences."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    prose: bool = False


class Section(msgspec.Struct, frozen=True):
    """A part of the page with a heading."""

    title: str
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    details: Sequence[tuple[str, str]] = ()


class Page(msgspec.Struct, frozen=True):
    """What one page says; ``alarm`` stands in red above everything."""

    title: str
    subtitle: Sequence[str] = ()
    alarm: str = ""
    reasons: Sequence[str] = ()
    cards: Sequence[Card] = ()
    sections: Sequence[Section] = ()


def figure(title: str, chart: Chart, *, wide: bool = False) -> Figure:
    """A chart as it goes into a page."""
    return Figure(title, _in_script(chart.to_dict()), wide)


def render(page: Page, words: Words) -> str:
    """The HTML text of a page."""
    import vl_convert

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    source = files("forebay.lab.report").joinpath("page.html").read_text(encoding="utf-8")
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return environment.from_string(source).render(
        page=page,
        language=words("language_tag"),
        no_script=words("no_script"),
        bundle=script.replace("</script", "<\\/script"),
        themes=_in_script({mode: configuration(mode) for mode in ("light", "dark")}),
    )


def svg(chart: Chart | alt.HConcatChart | alt.VConcatChart) -> str:
    """One chart as SVG on white, for documents; the machine's fonts only measure its texts."""
    import vl_convert

    spec = {**chart.to_dict(), "config": configuration("light", "#ffffff")}
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)


def _in_script(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # JSON knows no markup: with every < escaped, nothing can end the element early.
    return text.replace("<", "\\u003c")
