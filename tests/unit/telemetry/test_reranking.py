"""Figures of rerankers on the page of metrics."""

from __future__ import annotations

from forebay.pipeline.rerank_tally import FAILING_AFTER, RerankTally
from forebay.telemetry.metrics import Metrics


def test_who_ordered_what_was_saved_and_what_failed_can_be_read() -> None:
    tally, metrics = RerankTally(), Metrics()
    tally.ordered("dear")
    tally.ordered("light")
    tally.texts(3, of=10)
    tally.busy()
    for _ in range(FAILING_AFTER):
        tally.failed("dear", "timeout")
    metrics.watch_reranking(tally.statistics)
    page = metrics.render().decode()
    for line in (
        'forebay_rerank_searches_total{by="dear"} 1.0',
        'forebay_rerank_searches_total{by="light"} 1.0',
        'forebay_rerank_searches_total{by="search"} 0.0',
        'forebay_rerank_texts_total{outcome="asked"} 3.0',
        'forebay_rerank_texts_total{outcome="spared"} 7.0',
        'forebay_rerank_failures_total{reranker="busy"} 1.0',
        'forebay_rerank_failures_total{reranker="dear"} 3.0',
        'forebay_rerank_failing{reranker="dear"} 1.0',
        'forebay_rerank_failing{reranker="light"} 0.0',
    ):
        assert line in page, line


def test_where_nothing_is_ordered_anew_there_are_no_figures() -> None:
    metrics = Metrics()
    metrics.watch_reranking(dict)
    assert "forebay_rerank_searches_total{" not in metrics.render().decode()
