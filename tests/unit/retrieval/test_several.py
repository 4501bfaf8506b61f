"""Questions that want more than one document are known by their words."""

from __future__ import annotations

import pytest

from forebay.retrieval.several import wants_several

BRIDGING = [
    "Who directed the film that was shot in or around Leland?",
    "In which city was the engineer who designed the spillway gates born?",
    "What is the phone number of the company which supplies the valves?",
    "When was the book written by the former plant manager published?",
    "执导《活着》的导演是哪里人？",
    "收购了远山科技的公司总部在哪里？",
    "发明该阀门的工程师的上级是谁？",
    "2号机组供应商的母公司成立于哪一年？",
    "設計這座橋的建築師出生於何時？",
]
PLAIN = [
    "Who directed the film?",
    "How many days do I have to return a parcel?",
    "When does the night shift begin?",
    "What is the capacity of the reservoir?",
    "Why did the pump stop on Monday?",
    "《边城》的作者是谁？",
    "这家公司的总部在哪里？",
    "夜班几点开始？",
    "打印机的密码是多少？",
    "水庫的容量是多少？",
]


@pytest.mark.parametrize("question", BRIDGING)
def test_a_thing_described_by_another_wants_both_documents(question: str) -> None:
    assert wants_several(question, None) and wants_several(question, "fact")


@pytest.mark.parametrize("question", PLAIN)
def test_a_plain_question_wants_one(question: str) -> None:
    assert not wants_several(question, None)
    for kind in ("fact", "relation", "faq"):
        assert not wants_several(question, kind)


@pytest.mark.parametrize("question", PLAIN)
def test_a_comparison_wants_both_sides(question: str) -> None:
    assert wants_several(question, "comparison")


def test_long_texts_are_read_in_part() -> None:
    assert not wants_several("x " * 400 + "the film that was shot", None)
