"""Figures of breakers, read when somebody scrapes: what answers do without, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_GAUGES = {
    "left": ("forebay_breaker_left", "Processes that do without a part."),
    "in_flight": ("forebay_breaker_in_flight", "Requests that use a part at the moment."),
}
_COUNTERS = {
    "openings": ("forebay_breaker_openings", "Times that a part was left."),
    "probes": ("forebay_breaker_probes", "Probes of parts that were left."),
    "turned_away": ("forebay_breaker_turned_away", "Requests for which a part had no room."),
}


class BreakerCollector(Collector):
    """``statistics`` answers part to figure to value."""

    def __init__(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        gauges = {
            figure: GaugeMetricFamily(name, text, labels=["part"])
            for figure, (name, text) in _GAUGES.items()
        }
        counters = {
            figure: CounterMetricFamily(name, text, labels=["part"])
            for figure, (name, text) in _COUNTERS.items()
        }
        for part, figures in self._statistics().items():
            for figure, gauge in gauges.items():
                gauge.add_metric([part], figures[figure])
            for figure, counter in counters.items():
                counter.add_metric([part], figures[figure])
        return (*gauges.values(), *counters.values())
