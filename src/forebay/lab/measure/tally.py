"""Counts and histograms of a run by request kind and by tenant."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from forebay.lab.measure.batch import STATUS_IDS, Batch
from forebay.lab.measure.histogram import Floats, Ints, SparseCounts, layout, summarise
from forebay.lab.measure.result import DISCONNECTED, NOT_SENT, OK, STATUSES, Figures, Quantiles

MAX_SCOPES = 128
_METRICS = ("ttft", "itl", "tpot", "total", "refused")
_FACTS = 16
"""Counters of a scope: one a status, then good requests and tokens in and out."""
_GOOD, _INPUT, _OUTPUT = 13, 14, 15


class Tally:
    """Figures of up to ``MAX_SCOPES`` sets of requests; a request counts in several."""

    def __init__(self) -> None:
        self._grid = layout(3)
        self._facts = np.zeros(MAX_SCOPES * _FACTS, np.int64)
        self._cells = SparseCounts()
        self._sums = np.zeros(MAX_SCOPES * len(_METRICS))
        self._maxima = np.zeros(MAX_SCOPES * len(_METRICS))

    def add(self, batch: Batch, *scopes: Ints) -> None:
        """Count each row of ``batch`` in its scope, of each of ``scopes``."""
        good = batch.good()
        rows, gaps, often = batch.itl()
        once = None
        times = (
            (*batch.ttft(), once),
            (rows, gaps, often),
            (*batch.tpot(), once),
            (*batch.total(), once),
            (*batch.refused(), once),
        )
        for scope in scopes:
            base = scope * _FACTS
            np.add.at(self._facts, base + batch.status, 1)
            np.add.at(self._facts, base + _GOOD, good)
            np.add.at(self._facts, base + _INPUT, batch.input_tokens)
            np.add.at(self._facts, base + _OUTPUT, batch.output_tokens)
            for metric, (of, seconds, weights) in enumerate(times):
                self._add_times(scope[of], metric, seconds, weights)

    def _add_times(self, scopes: Ints, metric: int, seconds: Floats, weights: Ints | None) -> None:
        rows = scopes * len(_METRICS) + metric
        self._cells.add(rows * self._grid.size + self._grid.index(seconds), weights)
        np.add.at(self._sums, rows, seconds if weights is None else seconds * weights)
        np.maximum.at(self._maxima, rows, seconds)

    def absorb(self, other: Tally, scopes: Ints) -> None:
        """Add another tally, whose scope n is our ``scopes[n]``."""
        of_facts = (scopes[:, None] * _FACTS + np.arange(_FACTS)).ravel()
        np.add.at(self._facts, of_facts, other._facts)
        rows = (scopes[:, None] * len(_METRICS) + np.arange(len(_METRICS))).ravel()
        np.add.at(self._sums, rows, other._sums)
        np.maximum.at(self._maxima, rows, other._maxima)
        keys, counts = other._cells.items()
        size = self._grid.size
        self._cells.add(rows[keys // size] * size + keys % size, counts)

    def figures(self, scopes: Iterable[int], duration_s: float) -> Figures:
        """What the requests of these scopes together were like, rates over ``duration_s``."""
        chosen = np.array(list(scopes), np.int64)
        facts = self._facts.reshape(-1, _FACTS)[chosen].sum(axis=0)
        statuses = {name: int(facts[number]) for name, number in STATUS_IDS.items()}
        ok, good = statuses[OK], int(facts[_GOOD])
        everything = int(facts[: len(STATUSES)].sum())
        meant = everything - statuses[DISCONNECTED]
        times = {name: self._quantiles(chosen, number) for number, name in enumerate(_METRICS)}
        return Figures(
            sent=everything - statuses[NOT_SENT],
            ok=ok,
            good=good,
            disconnected=statuses[DISCONNECTED],
            not_sent=statuses[NOT_SENT],
            goodput_share=good / meant if meant else 0.0,
            goodput_per_s=good / duration_s if duration_s > 0 else 0.0,
            ok_per_s=ok / duration_s if duration_s > 0 else 0.0,
            input_tokens=int(facts[_INPUT]),
            output_tokens=int(facts[_OUTPUT]),
            output_tokens_per_s=int(facts[_OUTPUT]) / duration_s if duration_s > 0 else 0.0,
            ttft=times["ttft"],
            itl=times["itl"],
            tpot=times["tpot"],
            total=times["total"],
            refused=times["refused"],
            statuses={name: count for name, count in statuses.items() if count},
        )

    def _quantiles(self, scopes: Ints, metric: int) -> Quantiles:
        size = self._grid.size
        counts = np.zeros(size, np.int64)
        for scope in scopes.tolist():
            low = (scope * len(_METRICS) + metric) * size
            index, found = self._cells.within(low, low + size)
            counts[index] += found
        index = np.flatnonzero(counts)
        return summarise(
            index,
            counts[index],
            total_s=float(self._sums[scopes * len(_METRICS) + metric].sum()),
            max_s=float(self._maxima[scopes * len(_METRICS) + metric].max(initial=0.0)),
        )
