"""The proof: mixes of requests, each once through a plain pass-through and once through admission.

Both sides are asked light requests first, then the same rate with larger ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import altair as alt
import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.histogram import decode, quantile
from forebay.lab.measure.result import REFUSED, RunResult
from forebay.lab.report.charts import STATUS_COLOURS, Chart, Row
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import Card, Page, Section, Table, figure, render
from forebay.lab.report.parts import json_text, origin
from forebay.lab.report.words import Words

LIGHT = "light"
PASS_THROUGH, FOREBAY = "pass_through", "forebay"
FATES = {"good": "good", "lost": "timeout", "refused": "refused"}
"""What became of a request, and whose colour it has."""
BUSY_SHARE = 0.9
"""Of a core: a process that used more was itself what others waited for."""
WIDTH_PX, HEIGHT_PX = 430, 210
LOWER_PX = 130
"""Height of the panels below the first."""


class Side(msgspec.Struct, frozen=True):
    """One way to the engine: light requests alone, then with larger ones."""

    name: Literal["pass_through", "forebay"]
    light: RunResult
    mixed: RunResult
    cpu: dict[str, float] = {}
    """Share of one core that each process used in the second phase, its tail included."""


class Summary(msgspec.Struct, frozen=True):
    """A side's second phase in a few figures; times in seconds.

    ``light_ttft`` is of light requests that were not refused. One that got no answer counts with
    its whole deadline, a lower bound: else a service that answers nobody would look fast.
    """

    side: str
    light_sent: int
    light_good: int
    light_good_share: float
    light_good_share_before: float
    """In the first phase, without larger requests."""
    light_ttft_p50_s: float
    light_ttft_p99_s: float
    light_refused: int
    larger_sent: int
    larger_answered: int
    larger_refused: int
    refused_p99_s: float = 0.0
    """Until a client that was refused knew it, from the intended start; 0: nobody was."""


class Panel(msgspec.Struct, frozen=True):
    """One mix through both sides."""

    mix: Literal["heavy", "medium", "parts"]
    share: float
    """Of the requests that are larger."""
    calm_s: float
    phase_s: float
    sides: tuple[Side, ...]
    summary: tuple[Summary, ...] = ()


class Proof(msgspec.Struct, frozen=True):
    """What ``forebay prove`` found."""

    panels: tuple[Panel, ...]
    rate_per_s: float
    profile: str
    speed: float
    """Engine seconds in one real second."""
    valid: bool
    why_not: tuple[str, ...] = ()
    kind: str = "proof"


def summarise(side: Side, mix: str) -> Summary:
    """The figures that people compare; ``mix`` is the kind of the larger ones."""
    light, larger = side.mixed.by_kind[LIGHT], side.mixed.by_kind.get(mix)
    refused = light.statuses.get(REFUSED, 0)
    values, counts = decode(light.ttft.histogram)
    unanswered = light.sent - refused - int(counts.sum())
    if unanswered > 0:
        # The values stay in order: nothing that was answered in time took longer.
        deadline_s = _deadline_s(side.mixed, LIGHT)
        at = int(np.searchsorted(values, deadline_s))
        values = np.insert(values, at, deadline_s)
        counts = np.insert(counts, at, unanswered)
    known = len(values) > 0
    return Summary(
        side=side.name,
        light_sent=light.sent,
        light_good=light.good,
        light_good_share=light.goodput_share,
        light_good_share_before=side.light.by_kind[LIGHT].goodput_share,
        light_ttft_p50_s=quantile(values, counts, 0.5) if known else 0.0,
        light_ttft_p99_s=quantile(values, counts, 0.99) if known else 0.0,
        light_refused=refused,
        larger_sent=larger.sent if larger else 0,
        larger_answered=larger.good if larger else 0,
        larger_refused=larger.statuses.get(REFUSED, 0) if larger else 0,
        refused_p99_s=side.mixed.total.refused.p99_s,
    )


def load_proof(path: Path) -> Proof:
    """A proof that ``--out`` wrote; ``ConfigError`` when it cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Proof)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a proof's file") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no proof ({error}); forebay prove --out writes one"
        ) from error
    if found.kind != "proof" or not found.panels:
        raise ConfigError(f"{path} is no proof; forebay prove --out writes one")
    return found


def table(proof: Proof, words: Words) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Column names and rows of the printed table: a figure a row, a side a column."""
    columns = ("", *(words(side.name) for side in proof.panels[0].sides))
    return columns, [row for panel in proof.panels for row in _lines(panel, words)]


def _lines(panel: Panel, words: Words) -> list[tuple[str, ...]]:
    found = panel.summary
    mix = words(f"proof_{panel.mix}_phase")
    figures = {
        "proof_before": [f"{one.light_good_share_before:.1%}" for one in found],
        "proof_light": [
            f"{one.light_good_share:.1%} ({one.light_good:,} / {one.light_sent:,})" for one in found
        ],
        "proof_larger": [f"{one.larger_answered} / {one.larger_sent}" for one in found],
        "proof_ttft_p50": [seconds(one.light_ttft_p50_s) for one in found],
        "proof_ttft_p99": [seconds(one.light_ttft_p99_s) for one in found],
        "proof_told": [f"{one.light_refused:,} + {one.larger_refused:,}" for one in found],
        "proof_refused_p99": [
            seconds(one.refused_p99_s) if one.light_refused + one.larger_refused else "-"
            for one in found
        ],
    }
    return [(words(name).format(mix=mix), *values) for name, values in figures.items()]


def chart(proof: Proof, words: Words) -> alt.HConcatChart | alt.VConcatChart:
    """What became of the requests of each second: the pass-through left, Forebay right."""
    title = alt.Title(
        setting(proof, words), fontSize=12, fontWeight="normal", orient="bottom", offset=10
    )
    rows = [_beside(panel, words, first=panel is proof.panels[0]) for panel in proof.panels]
    if len(rows) == 1:
        only: alt.HConcatChart = rows[0].properties(title=title)
        return only
    below: alt.VConcatChart = (
        alt.vconcat(*rows).resolve_scale(color="shared").properties(title=title)
    )
    return below


def _beside(panel: Panel, words: Words, *, first: bool) -> alt.HConcatChart:
    drawn = [_panel(side, panel, words) for side in panel.sides]
    if not first:
        drawn = [one.properties(height=LOWER_PX, title="") for one in drawn]
    beside: alt.HConcatChart = alt.hconcat(*drawn).resolve_scale(y="shared", color="shared")
    return beside


def write_proof_report(proof: Proof, path: Path, words: Words) -> None:
    """Write the HTML report; OSError when the file cannot be written."""
    path.write_text(render(_page(proof, words), words), encoding="utf-8")


def _deadline_s(result: RunResult, kind: str) -> float:
    found = [one for one in result.run.workload.get("kinds", ()) if one["name"] == kind]
    return float(found[0]["deadline_s"]) if found else 0.0


def _panel(side: Side, panel: Panel, words: Words) -> Chart:
    names = [words(f"proof_{fate}") for fate in FATES]
    colours = [STATUS_COLOURS[status] for status in FATES.values()]
    rows = _rows(side, panel, words)
    areas = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_area(interpolate="step-after", line=False)
        .encode(
            x=alt.X("at_s:Q", title=words("proof_time"), scale=alt.Scale(nice=False)),
            y=alt.Y("per_s:Q", title=words("per_s"), stack="zero"),
            color=alt.Color(
                "fate:N",
                title=None,
                scale=alt.Scale(domain=names, range=colours),
                legend=alt.Legend(labelLimit=320),
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("fate:N", title=words("status")),
                alt.Tooltip("at_s:Q", title=words("at_s")),
                alt.Tooltip("per_s:Q", title=words("per_s")),
            ],
        )
    )
    turn = alt.Chart(alt.InlineData(values=[{"at_s": panel.calm_s, "text": _turn(panel, words)}]))
    rule = turn.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color="#1c2733").encode(
        x=alt.X("at_s:Q")
    )
    label = turn.mark_text(
        align="left", baseline="top", dx=6, dy=-14, fontSize=12, color="#1c2733"
    ).encode(x=alt.X("at_s:Q"), y=alt.value(0), text="text:N")
    layered: Chart = alt.layer(areas, rule, label).properties(
        width=WIDTH_PX,
        height=HEIGHT_PX,
        title=alt.Title(words(f"{side.name}_title"), offset=18),
    )
    return layered


def _turn(panel: Panel, words: Words) -> str:
    return words(f"proof_turn_{panel.mix}").format(share=f"{panel.share:.0%}")


def _rows(side: Side, panel: Panel, words: Words) -> list[Row]:
    """Requests a second by second of the intended start and by what became of them."""
    rows: list[Row] = []
    phases = ((side.light, 0.0, panel.calm_s), (side.mixed, panel.calm_s, panel.phase_s))
    for result, began_s, phase_s in phases:
        width_s = result.timeline.width_s
        for part in result.timeline.slices:
            if part.start_s >= phase_s:
                continue
            sent = sum(item.sent for item in part.kinds.values())
            good = sum(item.good for item in part.kinds.values())
            refused = sum(item.statuses.get(REFUSED, 0) for item in part.kinds.values())
            counts = {"good": good, "lost": sent - good - refused, "refused": refused}
            # The last slice may be shorter; drawn areas end with the phase.
            covered_s = min(width_s, phase_s - part.start_s)
            rows += [
                {
                    "at_s": part.start_s + began_s,
                    "fate": words(f"proof_{fate}"),
                    "place": place,
                    "per_s": float(f"{counts[fate] / covered_s:.5g}"),
                }
                for place, fate in enumerate(FATES)
            ]
    last = rows[-len(FATES) :]
    return [*rows, *({**row, "at_s": panel.calm_s + panel.phase_s} for row in last)]


def _page(proof: Proof, words: Words) -> Page:
    columns, lines = table(proof, words)
    first = proof.panels[0].sides[0].mixed
    every = [(panel, side) for panel in proof.panels for side in panel.sides]
    details: list[tuple[str, Any]] = [
        (f"{_where(panel, side, words)}: {words('status')}", side.mixed.total.statuses)
        for panel, side in every
    ]
    details += [(words("workload"), first.run.workload), (words("versions"), first.run.versions)]
    panels = [
        figure(
            f"{words(f'{side.name}_title')}, {words(f'proof_{panel.mix}_phase')}",
            _panel(side, panel, words).properties(width="container", title=""),
        )
        for panel, side in every
    ]
    lasted_s = sum(panel.calm_s + panel.phase_s for panel in proof.panels)
    return Page(
        title=words("proof_title"),
        subtitle=[*origin(first.run, lasted_s, words), setting(proof, words)],
        alarm="" if proof.valid else words("not_valid"),
        reasons=doubts(proof.panels, words) or proof.why_not,
        cards=[
            Card(
                words(one.side),
                f"{one.light_good_share:.1%}",
                words("proof_light").format(mix=words(f"proof_{panel.mix}_phase")),
                "good" if one.light_good_share >= 0.95 else "bad",
            )
            for panel in proof.panels
            for one in panel.summary
        ],
        sections=(
            Section(words("chart_status"), figures=panels),
            Section(
                words("proof_compared"),
                notes=(words("proof_notes"), words("definitions")),
                tables=(Table(columns, lines),),
            ),
            Section(words("what_ran"), details=[(n, json_text(value)) for n, value in details]),
        ),
    )


def _where(panel: Panel, side: Side, words: Words) -> str:
    return f"{words(side.name)}, {words(f'proof_{panel.mix}_phase')}"


def setting(proof: Proof, words: Words) -> str:
    """What is simulated and what is real."""
    engine = proof.profile if proof.speed == 1 else f"{proof.profile} x {proof.speed:g}"
    return words("proof_setting").format(profile=engine, rate=f"{proof.rate_per_s:g}")


def doubts(panels: Sequence[Panel], words: Words) -> tuple[str, ...]:
    """Why the machine, not the engine, may have decided the result; empty when it did not."""
    found = []
    for panel in panels:
        for side in panel.sides:
            for phase, result in (("light", side.light), (panel.mix, side.mixed)):
                if result.generator is not None:
                    where = f"{words(side.name)}, {words(f'proof_{phase}_phase')}"
                    why = words.reasons(result.generator.why, result.generator.why_not)
                    found += [f"{where}: {reason}" for reason in why]
            for which, share in side.cpu.items():
                if share > BUSY_SHARE:
                    told = words("proof_core").format(
                        which=words(f"proof_{which}"), share=f"{share:.0%}"
                    )
                    found.append(f"{_where(panel, side, words)}: {told}")
    return tuple(found)


def verdicts(proof: Proof, words: Words) -> list[str]:
    """The result, a sentence for each mix."""
    found = []
    for panel in proof.panels:
        through, admitted = panel.summary
        found.append(
            words("proof_verdict").format(
                mix=words(f"proof_{panel.mix}_about"),
                through=f"{100 * through.light_good_share:.3g}%",
                admitted=f"{100 * admitted.light_good_share:.3g}%",
            )
        )
    return found
