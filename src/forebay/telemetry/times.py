"""A histogram that one thread writes to, at a fifth of the cost of one that any may."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Times(Collector):
    """Seconds by bucket; ``bounds`` are the buckets' upper ends, ascending, the infinite one not
    among them.

    ``observe`` is for one thread alone; reading from another misses at most what is being written.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(float(bound) for bound in bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Metric]:
        """The histogram as it is now."""
        family = HistogramMetricFamily(self._name, self._text)
        total, buckets = 0, []
        ends = [*(str(bound) for bound in self._bounds), "+Inf"]
        for end, count in zip(ends, list(self._counts), strict=True):
            total += count
            buckets.append((end, float(total)))
        family.add_metric([], buckets, self._sum)
        return (family,)

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry."""
        return (HistogramMetricFamily(self._name, self._text),)
