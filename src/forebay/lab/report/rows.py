"""A result as rows for charts: coarser slices, quantiles of each, at most so many points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
import numpy as np

from forebay.lab.measure.histogram import decode, merge, quantile
from forebay.lab.measure.result import NOT_SENT, OK, Figures, RunResult, Slice, SliceFigures
from forebay.lab.report.charts import Row
from forebay.lab.report.words import Words

MAX_BINS = 120
"""More moments than this are hard to tell apart on a page."""
MAX_KINDS = 7
"""Colours that can be told apart, one being for all kinds together; tables have every kind."""
MAX_POINTS = 160
CELLS_PER_DECADE = 8
SHORTEST_S = 1e-4
"""Shorter latencies are drawn as this one: axes are logarithmic."""
SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


class Bin(msgspec.Struct, frozen=True):
    """Neighbouring slices drawn as one."""

    start_s: float
    end_s: float
    slices: tuple[Slice, ...]

    @property
    def width_s(self) -> float:
        return self.end_s - self.start_s

    def of(self, kind: str | None) -> Iterator[SliceFigures]:
        """The figures of one kind, or of every kind."""
        for item in self.slices:
            for name, figures in item.kinds.items():
                if kind is None or name == kind:
                    yield figures


def bins(result: RunResult, at_most: int = MAX_BINS) -> list[Bin]:
    """The timeline in at most so many bins of equal width (the last may be shorter)."""
    slices, width_s = result.timeline.slices, result.timeline.width_s
    size = max(1, math.ceil(len(slices) / at_most))
    return [
        Bin(group[0].start_s, group[-1].start_s + width_s, tuple(group))
        for group in _groups(slices, size)
    ]


def kinds(result: RunResult) -> list[str]:
    """The kinds worth drawing, most requested first."""
    by_size = sorted(result.by_kind, key=lambda name: -result.by_kind[name].sent)
    return by_size[:MAX_KINDS]


def latency_rows(result: RunResult, pick: Callable[[SliceFigures], str], words: Words) -> list[Row]:
    """Quantiles of one measure by bin and kind; bins without an answer have no point."""
    rows: list[Row] = []
    names = kinds(result)
    series: list[tuple[str, str | None]] = [(name, name) for name in names]
    if len(names) > 1:
        series.append((words("all"), None))
    for part in bins(result):
        for label, kind in series:
            values, counts = merge([pick(figures) for figures in part.of(kind)])
            if len(values):
                rows.extend(
                    {
                        "at_s": _round(part.start_s),
                        "kind": label,
                        "quantile": name,
                        "seconds": _drawn(quantile(values, counts, share)),
                    }
                    for name, share in SHARES
                )
    return rows


def rate_rows(result: RunResult, words: Words) -> list[Row]:
    """Requests a second that were due, answered whole, and good; each over the bin's width."""
    rows: list[Row] = []
    for part in bins(result):
        offered = sum(item.sent + item.statuses.get(NOT_SENT, 0) for item in part.of(None))
        finished = sum(item.finished for item in part.slices)
        good = sum(item.good for item in part.of(None))
        for name, count in (("offered", offered), ("achieved", finished), ("goodput", good)):
            rows.append(
                {
                    "at_s": _round(part.start_s),
                    "series": words(name),
                    "per_s": _round(count / part.width_s),
                }
            )
    return rows


def distribution_rows(result: RunResult, pick: Callable[[Figures], str]) -> list[Row]:
    """The distribution of one measure by kind, in at most ``MAX_POINTS`` points each."""
    rows: list[Row] = []
    for kind in kinds(result):
        values, counts = decode(pick(result.by_kind[kind]))
        if not len(values):
            continue
        shares = np.cumsum(counts) / counts.sum()
        # Points close together in share: the tail keeps its own.
        wanted = np.unique(
            np.searchsorted(
                shares,
                np.concatenate((np.linspace(0, 0.99, MAX_POINTS - 40), np.linspace(0.99, 1, 40))),
            ).clip(0, len(values) - 1)
        )
        rows.extend(
            {
                "kind": kind,
                "seconds": _drawn(float(values[at])),
                "share": _round(float(shares[at])),
            }
            for at in wanted
        )
    return rows


def heat_rows(result: RunResult, pick: Callable[[SliceFigures], str]) -> list[Row]:
    """Counts by moment and latency on a logarithmic grid."""
    rows: list[Row] = []
    for part in bins(result):
        values, counts = merge([pick(figures) for figures in part.of(None)])
        if not len(values):
            continue
        cells = np.floor(np.log10(np.maximum(values, SHORTEST_S)) * CELLS_PER_DECADE)
        rows.extend(
            {
                "at_s": _round(part.start_s),
                "until_s": _round(part.end_s),
                "low_s": _round(10 ** (float(cell) / CELLS_PER_DECADE)),
                "high_s": _round(10 ** ((float(cell) + 1) / CELLS_PER_DECADE)),
                "count": int(counts[cells == cell].sum()),
            }
            for cell in np.unique(cells)
        )
    return rows


def status_rows(result: RunResult, words: Words) -> list[Row]:
    """Requests a second by what became of them; answered ones are good or late."""
    counted: list[tuple[Bin, Counter[str]]] = []
    for part in bins(result):
        found: Counter[str] = Counter()
        for item in part.of(None):
            found.update(item.statuses)
            found["good"] += item.good
            found["late"] += item.ok - item.good
        del found[OK]
        counted.append((part, found))
    seen = dict.fromkeys(["good", "late", *(name for _, found in counted for name in found)])
    drawn = [name for name in seen if any(found[name] for _, found in counted)]
    return [
        {
            "at_s": _round(part.start_s),
            "status": words(name),
            "outcome": name,
            "per_s": _round(found[name] / part.width_s),
        }
        for part, found in counted
        for name in drawn
    ]


def goodput_rows(result: RunResult) -> list[Row]:
    """Share of good answers by kind, with the counts beside it."""
    rows: list[Row] = []
    for kind in kinds(result):
        figures = result.by_kind[kind]
        asked = figures.sent + figures.not_sent - figures.disconnected
        share = f"{figures.goodput_share:.1%} ({figures.good:,} / {asked:,})"
        rows.append(
            {
                "kind": kind,
                "label": f"{kind}  {share}",
                "share": _round(figures.goodput_share),
            }
        )
    return rows


def _groups(items: Iterable[Slice], size: int) -> Iterator[Sequence[Slice]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _drawn(seconds: float) -> float:
    return _round(max(seconds, SHORTEST_S))


def _round(value: float) -> float:
    """Five significant digits: more is invisible and only makes the page bigger."""
    return float(f"{value:.5g}")
