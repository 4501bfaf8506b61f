"""Senses: groups of hits that have nothing in common."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.documents import Hit
from forebay.kernel.stages import Likeness, Sense
from forebay.query.ambiguity import may_be_ambiguous, senses_of
from forebay.testing.generation import passage


def hit(number: int, title: str, text: str, score: float = 0.6) -> Hit:
    found = passage(text, number=number, score=score)
    return msgspec.structs.replace(found, chunk=msgspec.structs.replace(found.chunk, title=title))


DEVICES = hit(1, "苹果设备管理", "苹果设备须登记。"), hit(2, "苹果设备管理", "苹果手机可收邮件。")
FRUIT = hit(3, "食堂", "周一的水果是苹果。")
HITS = (*DEVICES, FRUIT)


def likeness(*rows: tuple[float, ...]) -> Likeness:
    return Likeness(rows)


APART = likeness((100.0, 99.5, 80.0), (99.5, 100.0, 90.0), (80.0, 90.0, 100.0))


def found(
    question: str, hits: tuple[Hit, ...] = HITS, like: Likeness = APART, lone: float = 93.0
) -> tuple[Sense, ...]:
    return senses_of(question, hits, like, related=96.0, unrelated=93.0, lone=lone)


def test_two_groups_are_two_senses() -> None:
    assert found("苹果") == (Sense("苹果设备管理", (0, 1)), Sense("食堂", (2,)))
    assert found("蘋果是什麼？") == found("苹果")


def test_in_english() -> None:
    hits = (
        hit(1, "Java", "Java is an island."),
        hit(2, "Java", "The north of Java has volcanoes."),
        hit(3, "Languages", "Java runs on a virtual machine."),
    )
    senses = found("What is Java?", hits)
    assert [sense.hits for sense in senses] == [(0, 1), (2,)]


def test_groups_that_are_alike_on_average_are_one_sense() -> None:
    alike = likeness((100.0, 99.5, 99.0), (99.5, 100.0, 90.0), (99.0, 90.0, 100.0))
    assert found("苹果", like=alike) == ()


def test_one_pair_that_touches_joins_nothing() -> None:
    """They all name the same word: that alone makes some pair alike."""
    touching = likeness((100.0, 99.5, 95.0), (99.5, 100.0, 77.0), (95.0, 77.0, 100.0))
    assert len(found("苹果", like=touching)) == 2


def test_a_group_that_hardly_holds_together_is_no_sense() -> None:
    loose = likeness((100.0, 94.0, 80.0), (94.0, 100.0, 80.0), (80.0, 80.0, 100.0))
    assert found("苹果", like=loose) == ()


def test_a_single_hit_must_stand_further_apart_than_two() -> None:
    assert len(found("苹果", lone=85.0)) == 2, "85 on average"
    assert found("苹果", lone=84.0) == ()
    pairs = likeness(
        (100.0, 99.0, 88.0, 88.0),
        (99.0, 100.0, 88.0, 88.0),
        (88.0, 88.0, 100.0, 99.0),
        (88.0, 88.0, 99.0, 100.0),
    )
    more = (*HITS, hit(4, "果园", "苹果九月成熟。"))
    assert [sense.hits for sense in found("苹果", more, pairs, lone=80.0)] == [(0, 1), (2, 3)]


def test_single_hits_join_the_group_they_are_most_like() -> None:
    like = likeness(
        (100.0, 99.0, 70.0, 92.0),
        (99.0, 100.0, 70.0, 92.0),
        (70.0, 70.0, 100.0, 75.0),
        (92.0, 92.0, 75.0, 100.0),
    )
    more = (*HITS, hit(4, "苹果设备维修", "苹果屏幕由信息部修。"))
    told = senses_of("苹果", more, like, related=90.0, unrelated=93.0, lone=80.0)
    assert [sense.hits for sense in told] == [(0, 1, 3), (2,)]


def test_a_sense_names_what_was_asked_for() -> None:
    assert found("苹果", (*DEVICES, hit(3, "食堂", "周二是香蕉。"))) == ()


def test_a_weak_hit_is_no_sense() -> None:
    assert found("苹果", (*DEVICES, hit(3, "食堂", "周一是苹果。", score=0.1))) == ()


def test_hits_that_have_all_nothing_in_common_are_a_vague_question() -> None:
    apart = likeness((100.0, 10.0, 10.0), (10.0, 100.0, 10.0), (10.0, 10.0, 100.0))
    assert found("苹果", like=apart) == ()


@pytest.mark.parametrize(
    "question",
    ["苹果设备在登记之后多久可以领取", "How many apples may one employee take at lunch?", "", "?"],
)
def test_a_longer_question_says_what_it_means(question: str) -> None:
    assert not may_be_ambiguous(question)
    assert found(question) == ()


def test_too_few_rows_tell_nothing() -> None:
    assert found("苹果", like=likeness((100.0,))) == ()
    assert found("苹果", HITS[:1]) == ()
