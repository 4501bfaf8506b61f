"""Figures of the guard before the record, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_RESULTS = ("stopped", "passed", "unready", "read")


class GuardCollector(Collector):
    """``statistics`` answers figure to value."""

    def __init__(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        family = CounterMetricFamily(
            "forebay_guard",
            "Names of documents and chunks: stopped as certainly unknown, passed to the record, "
            "passed as nothing was known yet; reads of what came since.",
            labels=["result"],
        )
        figures = self._statistics()
        for result in _RESULTS:
            family.add_metric([result], figures[result])
        return (family,)
