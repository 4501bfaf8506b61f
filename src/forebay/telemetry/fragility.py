"""Figures of the fragility watch, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_SIGNS = ("spread", "confidence", "unsupported")


class FragilityCollector(Collector):
    """``statistics`` answers knowledge base to figure to value."""

    def __init__(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        rolling = GaugeMetricFamily(
            "forebay_fragility",
            "Signs of fragile retrieval over recent requests, of the knowledge base where each is "
            "worst.",
            labels=["sign"],
        )
        fragile = CounterMetricFamily(
            "forebay_fragile",
            "Searches and answers that a sign called fragile.",
            labels=["sign"],
        )
        figures = self._statistics().values()
        for sign in _SIGNS:
            values = [each[sign] for each in figures if sign in each]
            if values:
                rolling.add_metric([sign], max(values))
            fragile.add_metric([sign], sum(each[f"{sign}_fragile"] for each in figures))
        return (rolling, fragile)
