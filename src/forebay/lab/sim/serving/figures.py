"""Figures of one replica under vLLM's names (V1), in the Prometheus text format.

Counting costs an index and an addition: the Prometheus client is asked only when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.figures import EngineStatistics

# The bounds are vLLM's own, so that its dashboards and queries fit.
_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
REASONS = ("stop", "length", "abort", "error")


class Histogram:
    """Counts of values up to each bound."""

    __slots__ = ("bounds", "counts", "name", "text", "total")

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.text = text
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` as often as said."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def family(self, labels: Sequence[str]) -> HistogramMetricFamily:
        """An empty family of this name."""
        return HistogramMetricFamily(self.name, self.text, labels=labels)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as the client wants them."""
        found: list[tuple[str, float]] = []
        reached = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            reached += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), reached))
        return found


class Figures:
    """What one replica counts of its requests; all times in real seconds."""

    def __init__(self, max_model_len: int) -> None:
        tokens = _one_two_five(max_model_len)
        self.finished = dict.fromkeys(REASONS, 0)
        self.prompt_tokens = Histogram(
            "vllm:request_prompt_tokens", "Number of prefill tokens processed.", tokens
        )
        self.generation_tokens = Histogram(
            "vllm:request_generation_tokens", "Number of generation tokens processed.", tokens
        )
        self.max_tokens = Histogram(
            "vllm:request_params_max_tokens",
            "Histogram of the max_tokens request parameter.",
            tokens,
        )
        self.first_token = _seconds("time_to_first_token", "time to first token", _FIRST_TOKEN_S)
        self.inter_token = _seconds("inter_token_latency", "inter-token latency", _TOKEN_S)
        self.per_token = _seconds(
            "request_time_per_output_token", "time per output token of a request", _TOKEN_S
        )
        self.whole = _seconds("e2e_request_latency", "e2e request latency", _REQUEST_S)
        self.queue = _seconds("request_queue_time", "time spent in WAITING phase", _REQUEST_S)
        self.inference = _seconds(
            "request_inference_time", "time spent in RUNNING phase", _REQUEST_S
        )
        self.prefill = _seconds("request_prefill_time", "time spent in PREFILL phase", _REQUEST_S)
        self.decode = _seconds("request_decode_time", "time spent in DECODE phase", _REQUEST_S)

    def histograms(self) -> tuple[Histogram, ...]:
        """All of them, in the order in which they are shown."""
        return (
            self.prompt_tokens,
            self.generation_tokens,
            self.max_tokens,
            self.first_token,
            self.inter_token,
            self.per_token,
            self.whole,
            self.queue,
            self.inference,
            self.prefill,
            self.decode,
        )


class Scraped:
    """One replica at the moment of a scrape."""

    __slots__ = ("config", "engine", "figures", "model", "statistics")

    def __init__(
        self,
        model: str,
        engine: int,
        config: EngineConfig,
        figures: Figures,
        statistics: EngineStatistics,
    ) -> None:
        self.model = model
        self.engine = engine
        self.config = config
        self.figures = figures
        self.statistics = statistics


_GAUGES = (
    ("num_requests_running", "Number of requests in model execution batches.", "running"),
    ("num_requests_waiting", "Number of requests waiting to be processed.", "waiting"),
    ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "kv_use"),
)
_COUNTERS = (
    ("prefix_cache_queries", "Prefix cache queries, in tokens.", "prefix_query_tokens"),
    ("prefix_cache_hits", "Prefix cache hits, in cached tokens.", "prefix_hit_tokens"),
    ("num_preemptions", "Cumulative number of preemptions from the engine.", "preemptions"),
    ("prompt_tokens", "Number of prefill tokens processed.", "prompt_tokens"),
    ("generation_tokens", "Number of generation tokens processed.", "generation_tokens"),
)
_LABELS = ("model_name", "engine")


class _Replicas(Collector):
    def __init__(self, scraped: Sequence[Scraped]) -> None:
        self._scraped = scraped

    def collect(self) -> Iterator[Metric]:
        labelled = [((item.model, str(item.engine)), item) for item in self._scraped]
        for name, text, attribute in _GAUGES:
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            for labels, item in labelled:
                gauge.add_metric(labels, getattr(item.statistics, attribute))
            yield gauge
        for name, text, attribute in _COUNTERS:
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            for labels, item in labelled:
                counter.add_metric(labels, getattr(item.statistics, attribute))
            yield counter
        ended = CounterMetricFamily(
            "vllm:request_success",
            "Count of finished requests.",
            labels=(*_LABELS, "finished_reason"),
        )
        for labels, item in labelled:
            for reason, count in item.figures.finished.items():
                ended.add_metric((*labels, reason), count)
        yield ended
        for same in zip(*(item.figures.histograms() for item in self._scraped), strict=True):
            family = same[0].family(_LABELS)
            for (labels, _), histogram in zip(labelled, same, strict=True):
                family.add_metric(labels, histogram.buckets(), histogram.total)
            yield family
        yield self._cache_config()

    def _cache_config(self) -> Metric:
        names = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine")
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=names
        )
        for item in self._scraped:
            values = (
                item.config.block_tokens,
                item.statistics.blocks_total,
                item.config.prefix_caching,
                item.engine,
            )
            family.add_metric([str(value) for value in values], 1)
        return family


def render(scraped: Sequence[Scraped]) -> bytes:
    """The figures of these replicas as Prometheus text."""
    registry = CollectorRegistry()
    registry.register(_Replicas(scraped))
    return generate_latest(registry)


def _seconds(name: str, text: str, bounds: Sequence[float]) -> Histogram:
    return Histogram(f"vllm:{name}_seconds", f"Histogram of {text} in seconds.", bounds)


def _one_two_five(most: int) -> list[float]:
    """1, 2, 5, 10, 20 … up to ``most``."""
    bounds: list[float] = []
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power > most:
                return bounds
            bounds.append(factor * power)
        power *= 10
