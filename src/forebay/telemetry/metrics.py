"""Prometheus metrics under the names of the outside contract.

Label children are bound once: looking one up costs as much again as observing. Buckets follow
the stages' own scales: queries take milliseconds, generation seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay.kernel.context import SHARED_HIT, RequestContext
from forebay.telemetry.breakers import BreakerCollector
from forebay.telemetry.caches import CacheCollector
from forebay.telemetry.fragility import FragilityCollector
from forebay.telemetry.guard import GuardCollector
from forebay.telemetry.merging import Page, page_of, text_of
from forebay.telemetry.report import OUTCOMES, RequestOutcome, RequestReport
from forebay.telemetry.reranking import RerankCollector
from forebay.telemetry.times import LabelledTimes, Times

STAGES = (
    "query.parse", "query.rewrite", "query.hyde", "embedding", "search.lexical", "search.vector",
    "fusion", "retrieval", "rerank", "prompt", "generation",
)  # fmt: skip
TOKEN_KINDS = ("prompt", "completion")
_STAGE_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5,
    0.8, 1.2, 2.0, 3.0, 5.0, 10.0, 30.0,
)  # fmt: skip
_REQUEST_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.42, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0,
    15.0, 30.0, 60.0, 120.0,
)  # fmt: skip
_ITL_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
_LAG_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5,
)  # fmt: skip
_OTHER = "other"


class Metrics:
    """Every figure of this process, in a registry of its own or one passed in."""

    def __init__(
        self, registry: CollectorRegistry | None = None, *, max_tenants: int = 100
    ) -> None:
        self.registry = registry or CollectorRegistry()
        # Registered first, so that the counters are up to date when they are collected.
        self.registry.register(_BeforeOthers(self._book))
        self._tally: dict[_Kind, _Sum] = {}
        self._stage = self._stages("forebay_stage_seconds", "Working time of a stage.")
        self._wait = self._stages("forebay_stage_wait_seconds", "Waiting time before a stage.")
        self._request = self._times(
            "forebay_request_seconds", "Whole requests, refused ones too.", _REQUEST_BUCKETS
        )
        self._ttft = self._times(
            "forebay_ttft_seconds", "From request to first answer text.", _REQUEST_BUCKETS
        )
        self._itl = self._times(
            "forebay_itl_seconds", "Between two pieces of a streamed answer.", _ITL_BUCKETS
        )
        self.itl = self._itl.observe
        """A pause between two pieces of a streamed answer, in seconds: once for every token."""
        self._lag = self._histogram(
            "forebay_loop_lag_seconds", "How late the event loop runs.", _LAG_BUCKETS
        )
        self._requests = self._counter("forebay_requests", "Requests by outcome.", "outcome")
        self._tokens = self._counter("forebay_tokens", "Tokens by kind.", "kind")
        self._cache = self._counter("forebay_cache", "Cache look-ups.", "tier", "result")
        self._shed = self._counter("forebay_shed", "Requests refused at the door.", "reason")
        self._degraded = self._counter(
            "forebay_degraded", "Answers with a step down the ladder.", "stage", "rung"
        )
        self._scenes = self._counter("forebay_scene_requests", "Requests by scene.", "scene")
        self._tenant_requests = self._counter(
            "forebay_tenant_requests", "Requests by tenant and outcome.", "tenant", "outcome"
        )
        self._tenant_tokens = self._counter(
            "forebay_tenant_tokens", "Tokens by tenant and kind.", "tenant", "kind"
        )
        self._in_flight = self._gauge("forebay_requests_in_flight", "Requests being served.")
        self._in_flight_limit = self._gauge("forebay_requests_in_flight_limit", "Bound on them.")
        self._sentences = self._gauge(
            "forebay_sentences_under_way", "Knowledge bases whose sentences get vectors."
        )
        self._max_tenants = max_tenants
        self._tenants: set[str] = set()
        self._children: dict[tuple[Counter, tuple[str, ...]], Callable[..., None]] = {}
        self._observe_stage = {name: self._stage.child(name).observe for name in STAGES}
        self._observe_wait = {name: self._wait.child(name).observe for name in STAGES}
        self._count_outcome = {name: self._requests.labels(name).inc for name in OUTCOMES}
        self._count_tokens = {kind: self._tokens.labels(kind).inc for kind in TOKEN_KINDS}

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def _times(self, name: str, text: str, buckets: tuple[float, ...]) -> Times:
        """A histogram of what every request, or every piece of an answer, adds to."""
        times = Times(name, text, buckets)
        self.registry.register(times)
        return times

    def _stages(self, name: str, text: str) -> LabelledTimes:
        """A histogram by stage; a request has a handful of them."""
        times = LabelledTimes(name, text, "stage", _STAGE_BUCKETS)
        self.registry.register(times)
        return times

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def render(self) -> bytes:
        """Every figure of this process in the Prometheus text format."""
        return text_of(self.page(), missing=0)

    def page(self) -> Page:
        """Every figure of this process, to be added to those of others."""
        return page_of(self.registry.collect())

    def loop_lag(self, seconds: float) -> None:
        """How late the event loop ran just now."""
        self._lag.observe(seconds)

    def shed(self, reason: str) -> None:
        """A request refused at the door; ``reason`` is one of a few words."""
        self._bound(self._shed, reason)()

    def watch_in_flight(self, requests: Callable[[], float], limit: int) -> None:
        """Show how many requests are being served, read when somebody scrapes."""
        self._in_flight.set_function(requests)
        self._in_flight_limit.set(limit)

    def watch_sentences(self, under_way: Callable[[], float]) -> None:
        """Show of how many knowledge bases the sentences lack vectors, read when scraped."""
        self._sentences.set_function(under_way)

    def watch_pools(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        """Show figures of engine pools, read when somebody scrapes: pool to figure to value."""
        self.registry.register(_Pools(statistics))

    def watch_quotas(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        """Show figures of quotas shared between processes, read when somebody scrapes."""
        self.registry.register(_Quotas(statistics))

    def watch_breakers(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        """Show what answers do without, read when somebody scrapes: part to figure to value."""
        self.registry.register(BreakerCollector(statistics))

    def watch_reranking(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        """Show who ordered hits and what failed, read when somebody scrapes."""
        self.registry.register(RerankCollector(statistics))

    def watch_guard(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        """Show figures of the guard before the record, read when somebody scrapes."""
        self.registry.register(GuardCollector(statistics))

    def watch_fragility(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        """Show signs of fragile retrieval, read when somebody scrapes: kb to figure to value."""
        self.registry.register(FragilityCollector(statistics))

    def watch_caches(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        """Show figures of cache tiers, read when somebody scrapes: tier to figure to value."""
        self.registry.register(CacheCollector(statistics))

    def finished(self, report: RequestReport) -> None:
        """Count a finished request with its stages, tokens and caches."""
        self._request.observe(report.duration_s)
        if report.ttft_s is not None:
            self._ttft.observe(report.ttft_s)
        ctx = report.ctx
        kind = _Kind(
            report.outcome,
            None if ctx is None else self._tenant(ctx.principal.tenant),
            () if ctx is None else tuple(ctx.cache.items()),
            "" if ctx is None else ctx.scene.name,
        )
        total = self._tally.get(kind)
        if total is None:
            total = self._tally[kind] = _Sum()
        total.requests += 1
        total.prompt_tokens += report.prompt_tokens
        total.completion_tokens += report.completion_tokens
        if ctx is not None and (ctx.stages or ctx.degradations):
            self._of_context(ctx)

    def _book(self) -> None:
        """Add up what was tallied: eight counters a request cost more than a hit's other work."""
        tally, self._tally = self._tally, {}
        for kind, total in tally.items():
            self._count_outcome[kind.outcome](total.requests)
            tokens = {"prompt": total.prompt_tokens, "completion": total.completion_tokens}
            for name, count in tokens.items():
                if count:
                    self._count_tokens[name](count)
            for tier, result in kind.cache:
                if result != "off":
                    # The tier's own figures: whoever asked before, the work was spared.
                    counted = "hit" if result == SHARED_HIT else result
                    self._bound(self._cache, tier, counted)(total.requests)
            if kind.scene:
                self._bound(self._scenes, kind.scene)(total.requests)
            if kind.tenant is None:
                continue
            self._bound(self._tenant_requests, kind.tenant, kind.outcome)(total.requests)
            if any(tokens.values()):
                for name, count in tokens.items():
                    self._bound(self._tenant_tokens, kind.tenant, name)(count)

    def _of_context(self, ctx: RequestContext) -> None:
        for record in ctx.stages:
            if record.name not in self._observe_stage:
                # Stages are named in code, so there are only as many as someone wrote.
                self._observe_stage[record.name] = self._stage.child(record.name).observe
                self._observe_wait[record.name] = self._wait.child(record.name).observe
            self._observe_stage[record.name](record.worked_s)
            if record.waited_s:
                self._observe_wait[record.name](record.waited_s)
        for step in ctx.degradations:
            self._bound(self._degraded, step.stage, step.rung)()

    def _bound(self, counter: Counter, *labels: str) -> Callable[..., None]:
        """The child's ``inc``, looked up once; labels here are bounded by those who call."""
        found = self._children.get((counter, labels))
        if found is None:
            found = self._children[counter, labels] = counter.labels(*labels).inc
        return found

    def _tenant(self, name: str) -> str:
        if name in self._tenants:
            return name
        if len(self._tenants) >= self._max_tenants:
            return _OTHER
        self._tenants.add(name)
        return name


class _Kind(NamedTuple):
    """Requests that the same counters count; of each part there are few."""

    outcome: RequestOutcome
    tenant: str | None
    cache: tuple[tuple[str, str], ...]
    scene: str


class _Sum:
    """What requests of one kind add up to since counters were last read."""

    __slots__ = ("completion_tokens", "prompt_tokens", "requests")

    def __init__(self) -> None:
        self.requests = self.prompt_tokens = self.completion_tokens = 0


class _BeforeOthers(Collector):
    """Collects nothing; does something before others are collected."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def collect(self) -> Iterable[Metric]:
        self._act()
        return ()

    def describe(self) -> Iterable[Metric]:
        """Nothing, told without the act."""
        return ()


_POOL_FIGURES = {
    "queue_waiting": ("forebay_pool_waiting", "Requests waiting for a pool."),
    "queue_cost": ("forebay_pool_waiting_tokens", "Their cost."),
    "in_flight": ("forebay_pool_in_flight", "Requests in work in a pool."),
    "in_flight_cost": ("forebay_pool_in_flight_tokens", "Their cost."),
    "limit": ("forebay_pool_limit", "Requests let into each replica of a pool."),
    "ejected": ("forebay_pool_ejected", "Replicas left alone for a while."),
    "rate": ("forebay_pool_tokens_per_second", "Cost worked off while requests wait."),
    "tail_ratio": ("forebay_pool_tail_ratio", "P99 over P50 of normalised latency."),
    "connections": ("forebay_pool_connections", "Connections to engines in use."),
    "connections_kept": (
        "forebay_pool_connections_kept",
        "Connections to engines worth keeping at the rates of late.",
    ),
    "level": ("forebay_pool_alert_level", "Tail watch: 0 normal, 1 warn, 2 severe."),
}


_HEDGES = "hedges_"


class _Pools(Collector):
    def __init__(self, statistics: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        families = {
            figure: GaugeMetricFamily(name, text, labels=["pool"])
            for figure, (name, text) in _POOL_FIGURES.items()
        }
        hedges = CounterMetricFamily(
            "forebay_pool_hedges", "Second replicas asked, by outcome.", labels=["pool", "outcome"]
        )
        statistics = self._statistics()
        factor = statistics.get("quota", {}).get("load_factor")
        if factor is not None:
            yield GaugeMetricFamily(
                "forebay_quota_load_factor",
                "What the refill of quotas is multiplied by under the load of the pools.",
                value=factor,
            )
        for pool, figures in statistics.items():
            for figure, family in families.items():
                if figure in figures:
                    family.add_metric([pool], figures[figure])
            for figure, count in figures.items():
                if figure.startswith(_HEDGES):
                    hedges.add_metric([pool, figure.removeprefix(_HEDGES)], count)
        yield from families.values()
        yield hedges


_QUOTA_DECISIONS = {"lease": "decided_on_lease", "keeper": "asked", "alone": "decided_alone"}


class _Quotas(Collector):
    def __init__(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        figures = self._statistics()
        decisions = CounterMetricFamily(
            "forebay_quota_decisions", "Reservations, by who decided.", labels=["by"]
        )
        for by, figure in _QUOTA_DECISIONS.items():
            decisions.add_metric([by], figures[figure])
        yield decisions
        yield CounterMetricFamily(
            "forebay_quota_calls", "Calls to the keeper of the quotas.", value=figures["calls"]
        )
        yield CounterMetricFamily(
            "forebay_quota_lost_tokens",
            "Tokens in calls that failed, which only the refill brings back.",
            value=figures["lost"],
        )
        yield GaugeMetricFamily(
            "forebay_quota_alone",
            "Processes that decide alone, on a share.",
            value=figures["alone"],
        )
