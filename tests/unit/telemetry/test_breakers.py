"""Figures of breakers on the page of metrics."""

from __future__ import annotations

from forebay.policy.breaker import Breaker, BreakerSettings, Use
from forebay.telemetry.metrics import Metrics


def test_what_is_left_and_how_often_can_be_read() -> None:
    words, vectors = Breaker(BreakerSettings()), Breaker(BreakerSettings(max_in_flight=1))
    used = vectors.enter(1.0)
    assert isinstance(used, Use)
    assert vectors.enter(1.0) == "load"
    used.timed_out(2.0, 1.0)
    assert isinstance(words.enter(2.0), Use)
    metrics = Metrics()
    metrics.watch_breakers(lambda: {"bm25": words.statistics(), "vector": vectors.statistics()})
    page = metrics.render().decode()
    for line in (
        'forebay_breaker_left{part="bm25"} 0.0',
        'forebay_breaker_left{part="vector"} 1.0',
        'forebay_breaker_in_flight{part="bm25"} 1.0',
        'forebay_breaker_openings_total{part="vector"} 1.0',
        'forebay_breaker_probes_total{part="vector"} 0.0',
        'forebay_breaker_turned_away_total{part="vector"} 1.0',
    ):
        assert line in page, line
