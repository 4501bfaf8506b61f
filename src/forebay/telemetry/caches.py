"""Figures of the cache tiers, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_EVENTS = {
    "evictions": "evicted",
    "expired": "expired",
    "rejected": "rejected",
    "carried": "carried",
    "touched": "touched",
    "unreadable": "unreadable",
    "joined": "joined",
    "kept": "kept",
    "found": "hit",
    "lacking": "miss",
    "rewarmed": "rewarmed",
    "rewarming_failed": "rewarming_failed",
    "foretold": "foretold",
    "filled": "filled",
    "failed": "failed",
    "put_off": "put_off",
    "lost": "lost",
    "told": "told",
}
"""What a tier counts, by its name there: what becomes of entries beside hits and misses."""
_REFUSED = "refused_"


class CacheCollector(Collector):
    """``statistics`` answers tier to figure to value."""

    def __init__(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        size = GaugeMetricFamily("forebay_cache_bytes", "Memory of a tier.", labels=["tier"])
        entries = GaugeMetricFamily("forebay_cache_entries", "Entries of a tier.", labels=["tier"])
        events = CounterMetricFamily(
            "forebay_cache_events", "What became of entries.", labels=["tier", "event"]
        )
        for tier, figures in self._statistics().items():
            size.add_metric([tier], figures["bytes"])
            entries.add_metric([tier], figures["entries"])
            for figure, event in _EVENTS.items():
                if figure in figures:
                    events.add_metric([tier, event], figures[figure])
            for figure, count in figures.items():
                # Why answers were not kept: named in code, so there are only as many as it knows.
                if figure.startswith(_REFUSED):
                    events.add_metric([tier, figure], count)
        return (size, entries, events)
