"""The guard: what does not exist is stopped, what exists never is, and an insert ends emptiness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.guard import BloomFilter, Empties, KnownDocuments, filter_of
from forebay.kernel.clock import VirtualClock

DOCUMENTS = 20_000


def known(ids: list[str]) -> KnownDocuments:
    guard = KnownDocuments()
    guard.finish("kb", guard.begin("kb"), filter_of(ids, len(ids)))
    return guard


@pytest.mark.parametrize("shape", ["{}", "docs/2024/{:06}.md", "文档-{}"])
def test_of_bogus_ids_992_in_a_thousand_are_stopped_and_no_true_one(shape: str) -> None:
    ids = [shape.format(number) for number in range(DOCUMENTS)]
    full = BloomFilter(DOCUMENTS)
    for one in ids:
        full.add(one)
    guard = KnownDocuments()
    guard.finish("kb", guard.begin("kb"), full)
    assert all(guard.may_exist("kb", one) for one in ids)
    bogus = [shape.format(number) for number in range(DOCUMENTS, 3 * DOCUMENTS)]
    bogus += [one + "x" for one in ids]
    stopped = sum(not guard.may_exist("kb", one) for one in bogus)
    assert stopped >= 0.998 * len(bogus)
    found = guard.statistics()
    assert (found["stopped"], found["passed"]) == (stopped, DOCUMENTS + len(bogus) - stopped)


@pytest.mark.parametrize("rate", [0.05, 0.008, 0.0005])
def test_the_rate_at_capacity_is_the_one_asked_for(rate: float) -> None:
    full = BloomFilter(5000, rate)
    for number in range(5000):
        full.add(f"d{number}")
    wrong = sum(f"b{number}" in full for number in range(100_000)) / 100_000
    assert wrong <= 1.3 * rate + 0.0001
    assert full.size_bytes <= 5000 * 17 / 8


@settings(deadline=None)
@given(st.lists(st.text()), st.lists(st.text()))
def test_no_known_id_is_ever_stopped(before: list[str], later: list[str]) -> None:
    guard = known(before)
    guard.add("kb", later)
    assert all(guard.may_exist("kb", one) for one in before + later)


def test_an_unknown_knowledge_base_may_hold_anything() -> None:
    guard = known(["a"])
    assert guard.may_exist("other", "x") and not guard.may_exist("kb", "x")
    guard.drop("kb")
    assert guard.may_exist("kb", "x")


def test_what_is_added_while_a_filter_is_built_is_in_it() -> None:
    guard = known(["old"])
    one, other = guard.begin("kb"), guard.begin("kb")
    guard.add("kb", ["new"])
    guard.finish("kb", one, filter_of([], 0))
    assert guard.may_exist("kb", "new") and not guard.may_exist("kb", "old")
    guard.add("kb", ["newer"])
    guard.give_up("kb", other)
    assert guard.may_exist("kb", "newer")
    other = guard.begin("kb")
    guard.add("kb", ["newest"])
    guard.finish("kb", other, filter_of(["a"], 1))
    assert [guard.may_exist("kb", name) for name in ("newest", "a", "new")] == [True, True, False]
    assert guard._building == {}


def test_a_filter_over_its_capacity_says_so() -> None:
    guard = KnownDocuments()
    assert guard.crowded("kb")
    guard.finish("kb", guard.begin("kb"), filter_of((), 0))
    guard.add("kb", map(str, range(1000)))
    assert not guard.crowded("kb")
    guard.add("kb", map(str, range(1000)))
    assert not guard.crowded("kb")
    guard.add("kb", map(str, range(1000, 1100)))
    assert guard.crowded("kb")


@pytest.mark.parametrize(("capacity", "rate"), [(0, 0.1), (1, 0.0), (1, 1.0)])
def test_a_filter_of_nothing_is_refused(capacity: int, rate: float) -> None:
    with pytest.raises(ValueError, match="filter"):
        BloomFilter(capacity, rate)


# --- what found nothing -------------------------------------------------------------------------


def test_emptiness_lasts_five_minutes() -> None:
    clock = VirtualClock()
    empties: Empties[str] = Empties(clock)
    assert not empties.found("kb", b"q")
    assert empties.hold("kb", b"q", 1, "x")
    clock.advance(299.9)
    assert empties.found("kb", b"q") and not empties.found("other", b"q")
    clock.advance(0.1)
    assert not empties.found("kb", b"q")
    assert empties.statistics() == {"entries": 0, "hits": 1, "filled": 0}


def test_an_insert_ends_what_it_could_fill_and_nothing_else() -> None:
    empties: Empties[str] = Empties(VirtualClock())
    for kb, key, wanted in (("kb", b"1", "dam"), ("kb", b"2", "lake"), ("other", b"1", "dam")):
        empties.hold(kb, key, 1, wanted)
    assert empties.inserted("kb", 2, lambda wanted: wanted in "a new dam") == 1
    assert [empties.found("kb", key) for key in (b"1", b"2")] == [False, True]
    assert empties.found("other", b"1")
    assert empties.inserted("kb", 3) == 1
    assert not empties.found("kb", b"2")


def test_emptiness_seen_before_an_insert_is_not_held_after_it() -> None:
    empties: Empties[str] = Empties(VirtualClock())
    empties.inserted("kb", 7)
    assert not empties.hold("kb", b"q", 6, "x") and not empties.found("kb", b"q")
    assert empties.hold("kb", b"q", 7, "x") and empties.found("kb", b"q")
    empties.inserted("kb", 5, lambda _: False)
    assert not empties.hold("kb", b"r", 6, "x")
    empties.drop("kb")
    assert not empties.found("kb", b"q") and empties.hold("kb", b"q", 1, "x")


def test_only_so_many_are_held() -> None:
    clock = VirtualClock()
    empties: Empties[int] = Empties(clock, most=3)
    for number in range(5):
        empties.hold("kb", bytes([number]), 1, number)
        clock.advance(1.0)
    empties.hold("kb", b"\2", 1, 2)
    empties.hold("kb", b"\5", 1, 5)
    held = [number for number in range(6) if empties.found("kb", bytes([number]))]
    assert held == [2, 4, 5]
