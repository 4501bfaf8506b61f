"""The probability that the best word hit is right, and when words answer alone."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from forebay.retrieval.fusion import QueryFeatures
from forebay.retrieval.relevance import RelevanceSettings, decide, probability

UNIT = st.floats(0.0, 1.0)
MODEL = RelevanceSettings()
SURE = QueryFeatures(1.0, share=0.6, coverage=1.0, margin=0.6, terms=8)
DOUBTFUL = QueryFeatures(0.9, share=0.3, coverage=0.5, margin=0.1, terms=8)
FEATURES = st.builds(
    QueryFeatures,
    UNIT,
    share=st.floats(0.01, 1.0),
    coverage=UNIT,
    margin=UNIT,
    terms=st.integers(1, 60),
)


@given(FEATURES, FEATURES)
def test_nothing_that_speaks_for_a_hit_makes_it_less_likely(
    one: QueryFeatures, other: QueryFeatures
) -> None:
    names = ("known", "share", "coverage", "margin")
    high = {name: max(getattr(one, name), getattr(other, name)) for name in names}
    low = {name: min(getattr(one, name), getattr(other, name)) for name in names}
    more, less = QueryFeatures(**high, terms=9), QueryFeatures(**low, terms=9)
    assert 0.0 < probability(less, MODEL) <= probability(more, MODEL) < 1.0


def test_a_query_that_found_nothing_is_not_sure() -> None:
    assert probability(QueryFeatures(1.0, terms=5), MODEL) == 0.0
    assert not decide(QueryFeatures(1.0, terms=5), MODEL, 1e-9, several=False).taken


def test_words_answer_alone_when_they_are_sure() -> None:
    assert probability(SURE, MODEL) > 0.92 > probability(DOUBTFUL, MODEL)
    assert decide(SURE, MODEL, 0.92, several=False).taken
    assert not decide(DOUBTFUL, MODEL, 0.92, several=False).taken


def test_a_question_that_wants_several_documents_is_never_sure_of_one() -> None:
    found = decide(SURE, MODEL, 0.92, several=True)
    assert not found.taken and found.leeway == math.inf
    assert decide(SURE, MODEL, 0.92, several=False).taken


def test_a_confidence_of_one_or_more_always_asks_for_vectors() -> None:
    for confidence in (1.0, 2.0):
        found = decide(SURE, MODEL, confidence, several=False)
        assert not found.taken and found.leeway == math.inf


@given(FEATURES, st.floats(0.5, 0.99), st.floats(-1.0, 1.0))
def test_within_its_leeway_no_decision_turns(
    features: QueryFeatures, confidence: float, way: float
) -> None:
    found = decide(features, MODEL, confidence, several=False)
    moved = QueryFeatures(
        **{
            name: getattr(features, name) + way * found.leeway * 0.999
            for name in ("known", "share", "coverage", "margin")
        },
        terms=features.terms,
    )
    if moved.share > 0.0:
        assert decide(moved, MODEL, confidence, several=False).taken == found.taken
