"""Carrying a retrieval over a change: each reason for and against, by hand-made numbers."""

from __future__ import annotations

import math

import msgspec
import pytest

from forebay.cache.carrying import CarryingSettings, carried
from forebay.kernel.caching import Arrival, Changes, Evidence, LegList

LIMIT = 15
WORDS = LegList(tuple(range(1, 16)), tuple(30.0 - i for i in range(15)), full=True)
VECTORS = LegList(tuple(range(6, 21)), tuple(0.9 - i / 100 for i in range(15)), full=True)
HITS = LegList((6, 1, 20), (0.8, 0.7, 0.6), full=True)
BOTH = Evidence(1000, WORDS, VECTORS, HITS, b"", LIMIT, lead=0.1)
ALONE = msgspec.structs.replace(BOTH, vectors=None, fused=LegList((1, 2, 3), (0.8, 0.7, 0.6), True))


def changes(
    *arrivals: Arrival, removed: tuple[int, ...] = (), altered: tuple[int, ...] = (), moved: int = 1
) -> Changes:
    return Changes(7, 1000, moved, frozenset(removed), frozenset(altered), arrivals)


def test_what_enters_no_list_changes_nothing_but_the_count() -> None:
    kept = carried(BOTH, changes(removed=(500,), altered=(600,), moved=3), 3)
    assert kept == msgspec.structs.replace(BOTH, moved=3)


@pytest.mark.parametrize("removed", [1, 3, 15, 20, 6])
def test_a_candidate_that_goes_away_touches(removed: int) -> None:
    assert carried(BOTH, changes(removed=(removed,)), 3) is None


@pytest.mark.parametrize("removed", [1, 9, 15])
def test_a_candidate_of_words_alone_that_goes_away_touches(removed: int) -> None:
    assert carried(ALONE, changes(removed=(removed,)), 3) is None
    assert carried(ALONE, changes(removed=(99,)), 3) is not None


@pytest.mark.parametrize("altered", [1, 6, 20])
def test_a_candidate_with_another_vector_touches(altered: int) -> None:
    assert carried(BOTH, changes(altered=(altered,)), 3) is None
    assert carried(ALONE, changes(altered=(altered,)), 3) is not None


def test_a_word_candidate_that_gets_its_vector_is_judged_as_new() -> None:
    late = Arrival(4, 27.0, 0.1, 0.59)
    kept = carried(BOTH, changes(late, altered=(4,)), 3)
    assert kept is not None and kept.words == WORDS
    assert carried(BOTH, changes(late), 3) is None
    assert carried(BOTH, changes(Arrival(4, 27.0, 0.1, 0.61), altered=(4,)), 3) is None


def test_an_arrival_takes_its_place_and_pushes_off_the_last() -> None:
    inside = msgspec.structs.replace(BOTH, fused=LegList((6, 1, 19), (0.8, 0.7, 0.6), True))
    kept = carried(inside, changes(Arrival(99, 17.5, 0.785, 0.58)), 3)
    assert kept is not None and kept.vectors is not None
    assert kept.words.ids == (*range(1, 14), 99, 14)
    assert kept.vectors.ids == (*range(6, 18), 99, 18, 19)
    assert kept.vectors.scores[12] == 0.785
    assert kept.lead == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("arrival", "why"),
    [
        (Arrival(99, 17.5, None, 0.6), "as good as the last hit"),
        (Arrival(99, 17.5, None, 0.6 - 1e-6), "hardly worse"),
        (Arrival(99, 17.5, None, math.inf), "more than its own place"),
        (Arrival(99, 17.5, None, math.nan), "not to be judged"),
        (Arrival(99, 29.5, None, 0.1), "the second best by words"),
        (Arrival(99, 1.0, 0.95, 0.1), "the best by meaning"),
        (Arrival(99, 21.5, None, 0.1), "one less of the first ten is common"),
        (Arrival(99, 16.0, None, 0.1), "a tie in words"),
        (Arrival(99, 1.0, 0.77 + 5e-6, 0.1), "a near-tie in meaning"),
        (Arrival(99, 1.0, 0.765, 0.1), "a hit loses its only place"),
        (Arrival(10, 1.0, 0.865, 0.1), "it was a candidate before"),
    ],
)
def test_an_arrival_that_may_change_hits_touches(arrival: Arrival, why: str) -> None:
    assert carried(BOTH, changes(arrival), 3) is None, why


def test_words_alone_look_at_their_two_best() -> None:
    kept = carried(ALONE, changes(Arrival(99, 20.5, None, 0.5)), 3)
    assert kept is not None and kept.vectors is None and 99 in kept.words.ids
    assert carried(ALONE, changes(Arrival(99, 29.5, None, 0.5)), 3) is None


def test_with_fewer_hits_than_wanted_every_arrival_is_one() -> None:
    few = msgspec.structs.replace(BOTH, fused=LegList((6, 1), (0.8, 0.7), full=False))
    assert carried(few, changes(), 3) is not None
    assert carried(few, changes(Arrival(99, 17.5, None, 0.1)), 3) is None


def test_more_hits_than_were_found_cannot_be_given_and_fewer_can() -> None:
    assert carried(BOTH, changes(), 4) is None
    kept = carried(BOTH, changes(Arrival(99, 17.5, None, 0.65)), 2)
    assert kept is not None
    assert kept.fused == LegList((6, 1), (0.8, 0.7), full=True)
    assert kept.lead == pytest.approx(0.05)


def test_hits_chosen_from_more_rest_on_all_of_those() -> None:
    chosen = msgspec.structs.replace(BOTH, chosen_from=3)
    assert carried(BOTH, changes(removed=(20,)), 1) is None
    short = msgspec.structs.replace(BOTH, fused=LegList((6, 1), (0.8, 0.7), True))
    assert carried(short, changes(Arrival(99, 17.5, 0.785, 0.65)), 1) is not None
    assert carried(chosen, changes(Arrival(99, 17.5, 0.785, 0.65)), 1) is None
    kept = carried(chosen, changes(), 1)
    assert kept is not None and kept.fused == HITS


def test_a_list_with_room_grows() -> None:
    roomy = msgspec.structs.replace(
        ALONE, words=LegList((1, 2, 3), (9.0, 8.0, 7.0), full=False), limit=4
    )
    kept = carried(roomy, changes(Arrival(99, 1.0, None, 0.1)), 3)
    assert kept is not None and kept.words == LegList((1, 2, 3, 99), (9.0, 8.0, 7.0, 1.0), True)


def test_drift_adds_up_and_close_hits_are_trusted_less() -> None:
    settings = CarryingSettings(drift_max=0.05, lead_min=0.00005, lead_per_drift=0.02)
    kept: Evidence | None = BOTH
    for _ in range(5):
        assert kept is not None
        kept = carried(kept, changes(moved=10), 3, settings)
    assert kept is not None and kept.moved == 50 and kept.chunks == 1000
    assert carried(kept, changes(moved=1), 3, settings) is None
    close = msgspec.structs.replace(BOTH, lead=0.000251)
    assert carried(close, changes(moved=10), 3, settings) is not None
    assert carried(close, changes(moved=11), 3, settings) is None
    tied = msgspec.structs.replace(BOTH, lead=0.00004)
    assert carried(tied, changes(altered=(600,), moved=0), 3, settings) is not None
    assert carried(tied, changes(moved=1), 3, settings) is None


def test_shifts_of_words_add_up_and_close_hits_are_trusted_less() -> None:
    settings = CarryingSettings(
        drift_max=0.05, lead_min=0.0, lead_per_drift=0.0, lead_per_shift=0.5
    )
    close = msgspec.structs.replace(BOTH, lead=0.01)
    shifted = msgspec.structs.replace(changes(), shift=0.012)
    kept = carried(close, shifted, 3, settings)
    assert kept is not None and kept.shift == 0.012
    assert carried(kept, changes(), 3, settings) is not None
    assert carried(kept, shifted, 3, settings) is None
    far = carried(BOTH, shifted, 3, settings)
    assert far is not None and carried(far, shifted, 3, settings) is not None
