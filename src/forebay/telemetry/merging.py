"""One page of figures for several processes.

Counters and histograms are added up, a process that ended with what it showed last, so that none
ever falls. Gauges are of living processes only: added up, except those that name a state or a
ratio, where the worst process speaks for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

WORST = frozenset({"forebay_pool_ejected", "forebay_pool_tail_ratio", "forebay_pool_alert_level"})
LEAST = frozenset({"forebay_quota_load_factor"})
"""Gauges of which the largest, and those of which the least is shown; all others are added up."""
MISSING = "forebay_metrics_missing_processes"
_OTHER = "other"

Labels = tuple[tuple[str, str], ...]


class Family(msgspec.Struct, frozen=True, array_like=True):
    """One metric of one process; ``samples`` are name, labels, value."""

    name: str
    text: str
    kind: str
    samples: tuple[tuple[str, Labels, float], ...]

    @property
    def lasts(self) -> bool:
        """Whether it counts what happened, which stays true when its process has ended."""
        return self.kind in ("counter", "histogram")


Page = tuple[Family, ...]


def page_of(registry: Iterable[Metric]) -> Page:
    """What a registry's ``collect`` shows now."""
    return tuple(
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            tuple(
                (one.name, tuple(sorted(one.labels.items())), float(one.value))
                for one in metric.samples
            ),
        )
        for metric in registry
    )


class TenantCap:
    """The first ``most`` tenants seen keep their names, for good; the rest are one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def apply(self, page: Page) -> Page:
        """The page with the other tenants under one name."""
        return merged([tuple(self._family(family) for family in page)], [])

    def _family(self, family: Family) -> Family:
        capped = ((name, self._labels(labels), value) for name, labels, value in family.samples)
        return msgspec.structs.replace(family, samples=tuple(capped))

    def _labels(self, labels: Labels) -> Labels:
        return tuple(
            (name, self._tenant(value) if name == "tenant" else value) for name, value in labels
        )

    def _tenant(self, tenant: str) -> str:
        if tenant not in self._known:
            if len(self._known) >= self._most:
                return _OTHER
            self._known.add(tenant)
        return tenant


def merged(alive: Sequence[Page], ended: Sequence[Page]) -> Page:
    """All processes as one: the living with all they show, the others with what lasts."""
    found: dict[str, tuple[Family, dict[tuple[str, Labels], float]]] = {}
    for family in _families(alive, ended):
        _, values = found.setdefault(family.name, (family, {}))
        for name, labels, value in family.samples:
            key = (name, labels)
            held = values.get(key)
            if held is None:
                values[key] = value
            elif (name.endswith("_created") and family.lasts) or name in LEAST:
                values[key] = min(held, value)
            elif name in WORST:
                values[key] = max(held, value)
            else:
                values[key] = held + value
    return tuple(
        msgspec.structs.replace(
            family, samples=tuple((*key, value) for key, value in values.items())
        )
        for family, values in found.values()
    )


def _families(alive: Sequence[Page], ended: Sequence[Page]) -> Iterator[Family]:
    for page in alive:
        yield from page
    for page in ended:
        yield from (family for family in page if family.lasts)


def text_of(page: Page, missing: int) -> bytes:
    """The page in the Prometheus text format; ``missing`` processes did not answer."""
    gone = Family(
        MISSING, "Processes that did not answer in time.", "gauge", ((MISSING, (), float(missing)),)
    )
    registry = CollectorRegistry()
    registry.register(_Shown((*page, gone)))
    return generate_latest(registry)


class _Shown(Collector):
    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterable[Metric]:
        for family in self._page:
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, dict(labels), value)
            yield metric
