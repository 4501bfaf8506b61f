"""Counts of rerankers, and who keeps failing."""

from __future__ import annotations

from forebay.pipeline.rerank_tally import FAILING_AFTER, RerankTally


def test_a_requests_own_short_deadline_says_nothing_of_the_model() -> None:
    tally = RerankTally()
    for _ in range(2 * FAILING_AFTER):
        tally.failed("dear", "timeout", had_its_time=False)
    assert tally.statistics()["dear_failures"] == 2 * FAILING_AFTER
    assert not tally.statistics()["dear_failing"] and not tally.shortcomings()


def test_each_model_fails_for_itself() -> None:
    tally = RerankTally()
    for _ in range(FAILING_AFTER):
        tally.failed("light", "reranker_error")
        tally.failed("dear", "timeout")
        tally.worked("dear")
    [told] = tally.shortcomings()
    assert told.startswith("the light reranker") and "the search's order" in told
    assert tally.statistics()["light_failing"] == 1 and not tally.statistics()["dear_failing"]
