"""Histograms that one thread writes to, at a fifth of the cost of those that any may."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.kernel.clock import WallClock


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
        self._created = WallClock().now()

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Metric]:
        """The histogram as it is now."""
        family = HistogramMetricFamily(self._name, self._text)
        self.add_to(family, {})
        return (family,)

    def add_to(self, family: HistogramMetricFamily, labels: Mapping[str, str]) -> None:
        """Add what was counted as the child that has these labels."""
        total, buckets = 0, []
        ends = [*(str(bound) for bound in self._bounds), "+Inf"]
        for end, count in zip(ends, list(self._counts), strict=True):
            total += count
            buckets.append((end, float(total)))
        family.add_metric(list(labels.values()), buckets, self._sum)
        family.add_sample(f"{self._name}_created", dict(labels), self._created)

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry."""
        return (HistogramMetricFamily(self._name, self._text),)


class LabelledTimes(Collector):
    """``Times`` for each value of one label, which are few."""

    def __init__(self, name: str, text: str, label: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._bounds = bounds
        self._children: dict[str, Times] = {}

    def child(self, value: str) -> Times:
        """The histogram of a value, to be kept by who observes."""
        found = self._children.get(value)
        if found is None:
            found = self._children[value] = Times(self._name, self._text, self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        """The histograms as they are now."""
        family = HistogramMetricFamily(self._name, self._text, labels=[self._label])
        for value, child in list(self._children.items()):
            child.add_to(family, {self._label: value})
        return (family,)

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry."""
        return (HistogramMetricFamily(self._name, self._text, labels=[self._label]),)
