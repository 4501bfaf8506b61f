"""Figures of rerankers, read when somebody scrapes: who ordered, what was saved, what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class RerankCollector(Collector):
    """``statistics`` answers figure to value; nothing where nothing is ordered anew."""

    def __init__(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        figures = self._statistics()
        searches = CounterMetricFamily(
            "forebay_rerank_searches", "Searches, by whose order they got.", labels=["by"]
        )
        texts = CounterMetricFamily(
            "forebay_rerank_texts",
            "Candidates that the dear reranker was given, or was spared.",
            labels=["outcome"],
        )
        failures = CounterMetricFamily(
            "forebay_rerank_failures",
            "Orders that failed or took too long, and searches that found no room.",
            labels=["reranker"],
        )
        failing = GaugeMetricFamily(
            "forebay_rerank_failing", "Processes whose reranker keeps failing.", labels=["reranker"]
        )
        if figures:
            for by in ("dear", "light", "search"):
                searches.add_metric([by], figures[f"by_{by}"])
            for outcome in ("asked", "spared"):
                texts.add_metric([outcome], figures[f"texts_{outcome}"])
            failures.add_metric(["busy"], figures["busy"])
            for model in ("light", "dear"):
                failures.add_metric([model], figures[f"{model}_failures"])
                failing.add_metric([model], figures[f"{model}_failing"])
        return (searches, texts, failures, failing)
