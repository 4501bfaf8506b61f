"""Figures of lists of ended requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from forebay.lab.measure.batch import Finished
from forebay.lab.measure.result import OK, REFUSED

Chosen = Callable[[float], bool]


def between(*spans: tuple[float, float]) -> Chosen:
    """Whether a start lies in one of the spans of seconds."""
    return lambda at_s: any(first <= at_s < end for first, end in spans)


def good(one: Finished) -> bool:
    """Answered whole within its deadline, counted from the intended start."""
    took_s = one.finished_at_s - one.at_s
    return one.status == OK and (one.deadline_s is None or took_s <= one.deadline_s)


def goodput(requests: Iterable[Finished], first_s: float, end_s: float) -> float:
    """Good answers a second, of the requests that started in the span."""
    return sum(good(one) for one in requests if first_s <= one.at_s < end_s) / (end_s - first_s)


def finishing(requests: Iterable[Finished], first_s: float, end_s: float) -> float:
    """Good answers a second, by when they ended: what the engines did in the span."""
    ends = sum(good(one) for one in requests if first_s <= one.finished_at_s < end_s)
    return ends / (end_s - first_s)


def written(requests: Iterable[Finished], first_s: float, end_s: float) -> float:
    """Output tokens a second of good answers that started in the span."""
    tokens = (one.output_tokens for one in requests if first_s <= one.at_s < end_s and good(one))
    return sum(tokens) / (end_s - first_s)


def quantile(seconds: Sequence[float], share: float) -> float:
    """Of a sorted or unsorted sequence; 0 of none."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def latency(requests: Iterable[Finished], kind: str, chosen: Chosen) -> dict[str, Any]:
    """Of the answered ones of a kind that started in the spans."""
    took = [
        one.finished_at_s - one.at_s
        for one in requests
        if one.status == OK and one.kind == kind and chosen(one.at_s)
    ]
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    return {
        "answered": len(took),
        "p50_s": round(p50, 4),
        "p99_s": round(p99, 4),
        "ratio": round(p99 / p50, 3) if p50 else None,
    }


def refusals(requests: Iterable[Finished], chosen: Chosen) -> dict[str, Any]:
    """When those refused heard so, from their intended start, as the client sees it."""
    took = [
        one.finished_at_s - one.at_s
        for one in requests
        if one.status == REFUSED and chosen(one.at_s)
    ]
    return {
        "refused": len(took),
        "p50_ms": round(1000 * quantile(took, 0.5), 2),
        "p99_ms": round(1000 * quantile(took, 0.99), 2),
    }


def by_kind(requests: Iterable[Finished], chosen: Chosen) -> dict[str, dict[str, int]]:
    """Outcomes of each kind."""
    found: dict[str, Counter[str]] = {}
    for one in requests:
        if chosen(one.at_s):
            counts = found.setdefault(one.kind, Counter())
            counts["good" if good(one) else one.status if one.status != OK else "late"] += 1
    return {kind: dict(counts) for kind, counts in sorted(found.items())}


def by_second(requests: Iterable[Finished], kind: str, seconds: int) -> list[float]:
    """The share of a kind's requests that were good, by the second in which they started."""
    asked, found = [0] * seconds, [0] * seconds
    for one in requests:
        if one.kind == kind and one.at_s < seconds:
            asked[int(one.at_s)] += 1
            found[int(one.at_s)] += good(one)
    return [round(ok / max(1, all_), 3) for ok, all_ in zip(found, asked, strict=True)]
