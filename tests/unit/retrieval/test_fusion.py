"""Fusion: one weight per query, monotone in each leg."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forebay.retrieval import FusionSettings
from forebay.retrieval.fusion import (
    QueryFeatures,
    compare_legs,
    credit_foreign,
    fuse,
    meaning_score,
    word_features,
    words_score,
    words_weight,
)

UNIT = st.floats(0.0, 1.0)


@given(UNIT, UNIT, UNIT, UNIT, UNIT)
def test_more_of_either_leg_never_scores_less(
    weight: float, words: float, more_words: float, meaning: float, more_meaning: float
) -> None:
    low = np.asarray([min(words, more_words), max(words, more_words)])
    high = np.asarray([min(meaning, more_meaning), max(meaning, more_meaning)])
    scores = fuse(low, high, weight)
    assert scores[0] <= scores[1] + 1e-12
    assert scores.min() >= -1e-12 and scores.max() <= 1.0 + 1e-12


@given(UNIT, UNIT, st.booleans())
def test_the_weight_is_a_share_and_follows_what_the_index_knows(
    known: float, overlap: float, agree: bool
) -> None:
    settings = FusionSettings()
    features = QueryFeatures(known, overlap=overlap, agree=agree)
    weight = words_weight(features, settings)
    assert 0.0 <= weight <= 1.0
    more = QueryFeatures(min(1.0, known + 0.1), overlap=overlap, agree=agree)
    assert words_weight(more, settings) >= weight


def test_agreement_of_the_legs_is_measured_on_their_first_ten() -> None:
    first = np.arange(20)
    features = compare_legs(QueryFeatures(1.0), first, first[5:])
    assert features.overlap == 0.5
    assert not features.agree
    assert compare_legs(QueryFeatures(1.0), first[:1], first[:1]).agree
    assert compare_legs(QueryFeatures(1.0), first[:0], first[:1]).overlap == 0.0


def test_a_query_the_index_does_not_know_goes_by_meaning() -> None:
    settings = FusionSettings()
    assert words_weight(QueryFeatures(0.0), settings) == 0.0
    assert words_weight(QueryFeatures(0.05), settings) < 0.15
    assert 0.4 < words_weight(QueryFeatures(1.0), settings) < 0.75


def test_a_chunk_without_a_vector_is_judged_by_its_words() -> None:
    scores = fuse(np.asarray([0.8, 0.4, 0.8]), np.asarray([0.6, 0.5, np.nan]), 0.5)
    assert scores[2] == scores[0]
    alone = fuse(np.asarray([0.8, 0.4]), np.asarray([np.nan, np.nan]), 0.5)
    assert alone[0] > alone[1]


@given(UNIT, UNIT, UNIT, UNIT, UNIT, st.booleans())
def test_credit_keeps_fusion_monotone_in_each_leg(
    weight: float, words: float, more_words: float, meaning: float, more_meaning: float, far: bool
) -> None:
    low = np.asarray([min(words, more_words), max(words, more_words)])
    high = np.asarray([min(meaning, more_meaning), max(meaning, more_meaning)])
    credited = credit_foreign(low, high, np.asarray([far, far]), 1.0)
    assert (credited >= low).all()
    scores = fuse(credited, high, weight)
    assert scores[0] <= scores[1] + 1e-12
    assert scores.min() >= -1e-12 and scores.max() <= 1.0 + 1e-12


def test_a_foreign_chunk_is_credited_with_words_it_cannot_hold() -> None:
    words, meaning = np.asarray([0.4, 0.0, 0.0]), np.asarray([0.2, 0.5, np.nan])
    credited = credit_foreign(words, meaning, np.asarray([False, True, True]), 1.0)
    assert credited.tolist() == [0.4, 0.5, 0.0]
    assert fuse(credited, meaning, 0.6).argmax() == 1
    assert fuse(words, meaning, 0.6).argmax() == 0


def test_scales() -> None:
    assert meaning_score(np.asarray([0.8, 1.0]), 0.8).tolist() == [0.0, 1.0]
    assert words_score(np.asarray([0.0, 3.0]), 6.0).tolist() == [0.0, 0.5]
    assert words_score(np.asarray([1.0]), 0.0).tolist() == [0.0]


class Weighed(NamedTuple):
    terms: tuple[str, ...]
    known: float
    ideal: float


def test_what_words_showed_is_read_off_the_two_best() -> None:
    query = Weighed(("a", "b"), 0.9, 20.0)
    found = word_features(query, np.asarray([10.0, 4.0, 1.0]), np.asarray([0.8, 0.4, 0.1]))
    assert found == QueryFeatures(0.9, share=0.5, coverage=0.8, margin=0.6, terms=2)
    alone = word_features(query, np.asarray([10.0]), np.asarray([0.8]))
    assert alone.margin == 1.0
    assert word_features(query, np.empty(0), np.empty(0)) == QueryFeatures(0.9, terms=2)


@given(UNIT, UNIT, st.floats(0.0, 2.0))
def test_a_kind_of_question_leans_on_words_more_or_less(
    known: float, overlap: float, factor: float
) -> None:
    features = QueryFeatures(known, overlap=overlap)
    plain, leaning = FusionSettings(), FusionSettings(kinds={"faq": factor})
    weight = words_weight(features, leaning, "faq")
    assert 0.0 <= weight <= 1.0
    usual = words_weight(features, plain)
    assert weight >= usual if factor >= 1.0 else weight <= usual
    for kind in (None, "fact"):
        assert words_weight(features, leaning, kind) == words_weight(features, plain)
