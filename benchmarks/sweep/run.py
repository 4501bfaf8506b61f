"""Random mixes of requests: the admission's defaults and sending straight on, judged by two rules.

Virtual time, equal on every machine. Writes ``mixes.json`` and docs/images/mixes.svg, in both
languages; ``--draw`` draws what is written already, ``--check`` writes nothing. ``--cache`` keeps
what no admission decides, for the next run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import numpy as np

from forebay.lab.measure.machine import describe_commit
from forebay.lab.mixes.judge import MIN_OF_CLAIRVOYANT, MIN_SHARE, Verdict
from forebay.lab.mixes.mix import random_mix
from forebay.lab.mixes.sweep import Report, sweep
from forebay.lab.mixes.text import line, summary
from forebay.lab.report.page import svg

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "docs" / "images"
SEEDS = range(300)
MOST = 1.2
"""Where the axis ends: an admission that breaks rule 1 may do more work than the schedule."""
WORDS: dict[str, dict[str, str]] = {
    "en": {
        "share": "small requests: worst kind's good answers, over alone",
        "work": "good work, over a clairvoyant schedule's",
        "mixes": "share of {count} random mixes at or below",
        "admission": "Forebay's admission",
        "straight": "sent straight on",
    },
    "zh": {
        "share": "小请求：最差一类的有效应答，与单独运行之比",
        "work": "有效工作量，与预知未来的调度之比",
        "mixes": "{count} 个随机组合中不高于此值的占比",
        "admission": "Forebay 准入控制",
        "straight": "直接转发",
    },
}


class Figures(msgspec.Struct, frozen=True):
    """What one router reached on one mix."""

    share: float
    second: float
    of_clairvoyant: float
    of_straight: float
    safe: bool
    used: bool

    @classmethod
    def of(cls, verdict: Verdict) -> Figures:
        """Rounded, for a file that people compare."""
        return cls(
            round(verdict.worst_share, 4),
            round(verdict.worst_second, 4),
            round(verdict.of_clairvoyant, 4),
            round(verdict.of_straight, 4),
            verdict.safe,
            verdict.used,
        )


class Row(msgspec.Struct, frozen=True):
    """One mix."""

    seed: int
    load: float
    requests: int
    kinds: int
    protected: int
    admission: Figures
    straight: Figures


class Found(msgspec.Struct, frozen=True):
    """All mixes, in order of their seeds."""

    commit: str
    rows: tuple[Row, ...]


def row(report: Report) -> Row:
    """A report in short."""
    return Row(
        report.mix.seed,
        round(report.mix.load, 3),
        report.requests,
        len(report.verdict.shares),
        len(report.verdict.safeties),
        Figures.of(report.verdict),
        Figures.of(report.straight),
    )


def chart(rows: Sequence[Row], language: str) -> alt.HConcatChart:
    """Two distributions, each of both routers."""
    words = WORDS[language]
    # A mix in which nothing is protected says nothing of small requests.
    some = [one for one in rows if one.protected]
    shares = {
        "admission": [one.admission.share for one in some],
        "straight": [one.straight.share for one in some],
    }
    works = {
        "admission": [one.admission.of_clairvoyant for one in rows],
        "straight": [one.straight.of_clairvoyant for one in rows],
    }
    return alt.hconcat(
        _panel(shares, "share", MIN_SHARE, words), _panel(works, "work", MIN_OF_CLAIRVOYANT, words)
    )


def _panel(
    values: dict[str, list[float]], what: str, wanted: float, words: dict[str, str]
) -> alt.LayerChart:
    points = [
        point for name, found in values.items() for point in _distribution(words[name], found)
    ]
    count = len(values["admission"])
    lines = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("value:Q", title=words[what], scale=alt.Scale(domain=[0, MOST])),
            y=alt.Y(
                "part:Q",
                title=words["mixes"].format(count=count),
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color("router:N", title=None, sort=None),
        )
    )
    rule = (
        alt.Chart(alt.InlineData(values=[{}]))
        .mark_rule(strokeDash=[4, 4], color="#8d99ae")
        .encode(x=alt.datum(wanted))
    )
    panel: alt.LayerChart = alt.layer(lines, rule).properties(width=380, height=240)
    return panel


def _distribution(router: str, values: Iterable[float]) -> list[dict[str, Any]]:
    ordered = np.sort(np.clip(np.array(list(values)), 0.0, MOST))
    parts = np.arange(1, len(ordered) + 1) / len(ordered)
    points = [
        {"router": router, "value": round(float(value), 4), "part": round(float(part), 4)}
        for value, part in zip(ordered, parts, strict=True)
    ]
    return [
        {"router": router, "value": 0.0, "part": 0.0},
        *points,
        {"router": router, "value": MOST, "part": 1.0},
    ]


def draw(rows: Sequence[Row]) -> None:
    """Both languages' pictures."""
    IMAGES.mkdir(exist_ok=True)
    for language, ending in (("en", ""), ("zh", ".zh-CN")):
        picture = svg(chart(rows, language))
        (IMAGES / f"mixes{ending}.svg").write_text(picture, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many, from 0 on")
    parser.add_argument("--cache", type=Path, help="folder of what no admission decides")
    parser.add_argument("--draw", action="store_true", help="draw what is written already")
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    file = HERE / "mixes.json"
    if asked.draw:
        draw(msgspec.json.decode(file.read_bytes(), type=Found).rows)
        return 0
    reports: list[Report] = []
    for report in sweep([random_mix(seed) for seed in range(asked.seeds)], asked.jobs, asked.cache):
        reports.append(report)
        print(line(report), flush=True)
    print(summary(reports))
    if not asked.check:
        found = Found(describe_commit(), tuple(row(one) for one in reports))
        rows = [msgspec.json.encode(one).decode() for one in found.rows]
        text = f'{{"commit":"{found.commit}","rows":[\n' + ",\n".join(rows) + "\n]}\n"
        file.write_text(text, encoding="utf-8")
        draw(found.rows)
    return 0 if all(one.verdict.passed for one in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
