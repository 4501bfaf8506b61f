"""The judge on runs that were made up."""

from __future__ import annotations

import numpy as np
import pytest

from forebay.lab.mixes.judge import Offered, Reference, fits, judge, safety, sizes
from forebay.lab.mixes.outcome import Flags

SMALL, BIG = 0, 1
SECONDS, A_SECOND = 20, 100


def offered(work_s: tuple[float, float] = (0.001, 1.0), a_second: int = A_SECOND) -> Offered:
    """So many small ones each second, and one big one."""
    small = np.repeat(np.arange(SECONDS, dtype=float), a_second) + 0.5
    big = np.arange(SECONDS, dtype=float) + 0.5
    kind = np.repeat(np.array([SMALL, BIG]), [len(small), len(big)])
    return Offered(np.concatenate([small, big]), kind, np.array(work_s)[kind], ("small", "big"))


def good(asked: Offered, *, small: Flags | bool = True, big: Flags | bool = True) -> Flags:
    found = np.ones(len(asked.at_s), np.bool_)
    found[asked.kind == SMALL] = small
    found[asked.kind == BIG] = big
    return found


def reference(asked: Offered, straight: Flags, clairvoyant: Flags) -> Reference:
    return Reference((SMALL,), good(asked, big=False), straight, clairvoyant)


def lost(asked: Offered, count: int, at_s: int) -> Flags:
    """All small ones but so many of one second."""
    small = np.ones(int((asked.kind == SMALL).sum()), np.bool_)
    first = at_s * len(small) // SECONDS
    small[first : first + count] = False
    return small


def test_kinds_of_about_one_size_are_in_one_set() -> None:
    assert sizes(offered()) == [(SMALL,), (SMALL, BIG)]
    assert sizes(offered((1.0, 0.4))) == [(BIG,), (BIG, SMALL)]
    assert sizes(offered((0.6, 1.0))) == [(SMALL, BIG)]


def test_what_is_answered_nearly_whole_fits_alone() -> None:
    asked = offered()
    assert fits(asked, [SMALL], good(asked, small=lost(asked, 60, 0)))
    assert not fits(asked, [SMALL], good(asked, small=lost(asked, 61, 0)))
    # One is never a fault, however few there are.
    assert fits(asked, [BIG], good(asked, big=np.arange(SECONDS) > 0))
    assert not fits(asked, [BIG], good(asked, big=np.arange(SECONDS) > 1))


@pytest.mark.parametrize(
    ("count", "second", "safe"),
    [(0, 5, True), (10, 5, True), (11, 5, False), (100, 0, False), (60, 0, True), (61, 19, False)],
)
def test_small_ones_are_safe_in_all_and_in_every_second(
    count: int, second: int, *, safe: bool
) -> None:
    asked = offered()
    run = good(asked, small=lost(asked, count, second))
    found = safety(asked, SMALL, run, good(asked, big=False))
    assert found.safe is safe
    assert found.share == pytest.approx(1 - count / (SECONDS * A_SECOND))
    if second >= 2:
        assert found.worst_second == pytest.approx(1 - count / A_SECOND)
        assert count == 0 or found.worst_at_s == second


def test_seconds_with_few_requests_are_joined() -> None:
    asked = offered(a_second=10)
    assert safety(asked, SMALL, good(asked, small=lost(asked, 4, 7)), good(asked)).safe
    found = safety(asked, SMALL, good(asked, small=lost(asked, 6, 7)), good(asked))
    assert found.worst_second == pytest.approx(1 - 6 / 50)
    assert not found.safe


def test_work_is_compared_with_the_clairvoyant_and_with_sending_straight_on() -> None:
    asked = offered()
    everything, half = good(asked), good(asked, big=np.arange(SECONDS) < 10)
    verdict = judge(asked, reference(asked, half, everything), half)
    assert verdict.safe
    assert not verdict.used
    assert verdict.of_clairvoyant == pytest.approx(12 / 22)
    assert verdict.of_straight == 1.0
    assert judge(asked, reference(asked, half, half), half).passed
    # One of the largest is within the grace.
    most = good(asked, big=np.arange(SECONDS) < 17)
    assert judge(asked, reference(asked, half, everything), most).used
    assert not judge(asked, reference(asked, everything, half), half).used


def test_sending_straight_on_counts_less_where_small_ones_pay_for_it() -> None:
    asked = offered()
    straight = good(asked, small=False)
    half = good(asked, big=np.arange(SECONDS) < 10)
    verdict = judge(asked, reference(asked, straight, half), half)
    assert not verdict.straight_safe
    assert verdict.passed
    assert verdict.shares == {"small": 1.0, "big": 0.5}
