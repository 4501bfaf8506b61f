"""Axes of durations: always marks to read by, whatever the values."""

from __future__ import annotations

import math
import random

import pytest

from forebay.lab.report import charts
from forebay.lab.report.words import Words


@pytest.mark.parametrize("seed", range(50))
def test_every_span_has_marks_around_it(seed: int) -> None:
    chance = random.Random(seed)
    low = 10 ** chance.uniform(-4, 3)
    high = low * 10 ** chance.uniform(0, 4) if seed else low
    rows = [{"kind": "light", "seconds": value, "share": 0.5} for value in (low, high)]
    encoding = charts.distribution(rows, "time", Words()).to_dict()["encoding"]["x"]
    first, last = encoding["scale"]["domain"]
    marks = encoding["axis"]["values"]
    assert first <= low * 1.001 and high <= last * 1.001
    assert len(marks) >= 2 and (marks[0], marks[-1]) == (first, last)
    assert len(marks) <= 16
    assert all(math.isclose(mark, float(f"{mark:.0e}")) for mark in marks)


def test_kinds_keep_their_colours_when_all_are_drawn_too() -> None:
    words = Words()
    kinds = ("heavy", "light", words("all"))
    rows = [
        {"at_s": 0.0, "kind": kind, "quantile": "p50", "seconds": 0.1} for kind in reversed(kinds)
    ]
    alone = [{"kind": kind, "seconds": 0.1, "share": 1.0} for kind in ("light", "heavy")]
    over_time = charts.latency_over_time(rows, words).to_dict()
    distribution = charts.distribution(alone, "time", words).to_dict()
    domains = [chart["encoding"]["color"]["scale"]["domain"] for chart in (over_time, distribution)]
    assert domains == [["light", "heavy", "all"], ["light", "heavy"]]
