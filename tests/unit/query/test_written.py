"""What an engine writes is searched only where it is about what was asked."""

from __future__ import annotations

import pytest

from forebay.query.written import may_answer, may_stand_for

IPAD = ("Who may claim an iPad?", "Field service engineers may claim one iPad [1].")
IPAD_ZH = ("谁可以申领 iPad？", "现场服务工程师可以申领 iPad 一台 [1]。")
LEAVE = ("How many days of annual leave do employees get?", "25 days [1].")
LEAVE_ZH = ("年假有几天？", "员工每年有 15 天年假 [1]。")


@pytest.mark.parametrize(
    ("asked", "before", "alone"),
    [
        ("How long does the approval take?", IPAD, "How long does approval of an iPad take?"),
        ("How long until it is approved?", IPAD, "How long does the approval of the iPad take?"),
        ("And for contractors?", LEAVE, "How many days of annual leave do contractors get?"),
        ("Why?", LEAVE, "Why do employees get 25 days of annual leave?"),
        ("审批需要多久？", IPAD_ZH, "申领 iPad 的审批需要多久？"),
        ("可以结转吗？", LEAVE_ZH, "员工的年假可以结转吗？"),
        ("可以結轉嗎？", LEAVE_ZH, "年假可以结转吗？"),
        ("合同工呢？", LEAVE_ZH, "合同工每年有几天年假？"),
    ],
)
def test_a_question_that_keeps_what_was_asked_stands_for_it(
    asked: str, before: tuple[str, ...], alone: str
) -> None:
    assert may_stand_for(alone, asked, before)


@pytest.mark.parametrize(
    ("asked", "before", "alone"),
    [
        ("审批需要多久？", IPAD_ZH, "你可以申领 [1]。"),
        ("审批需要多久？", IPAD_ZH, "谁可以申领 iPad？"),
        ("审批需要多久？", IPAD_ZH, "How long does the approval of an iPad take?"),
        ("为什么？", LEAVE_ZH, "年假有几天？"),
        ("可以结转吗？", LEAVE_ZH, "你可以结转吗？"),
        ("Can they be carried over?", LEAVE, "Can you carry them over?"),
        ("合同工呢？", LEAVE_ZH, "天气怎么样？合同工都喜欢晴天和蓝色的大海。"),
        ("How long does the approval take?", IPAD, "Who may claim an iPad?"),
        ("How long does the approval take?", IPAD, "The approval takes 3 days [2]."),
        ("How long does the approval take?", IPAD, "Field service engineers may claim an iPad."),
        ("And for contractors?", LEAVE, "Contractors build houses, bridges and tunnels."),
    ],
)
def test_what_answers_repeats_or_invents_does_not(
    asked: str, before: tuple[str, ...], alone: str
) -> None:
    assert not may_stand_for(alone, asked, before)


def test_a_passage_that_might_answer_names_what_is_asked() -> None:
    question, zh = "What is the notice period of a contractor?", "合同工的通知期多长？"
    assert may_answer("Contractors have a notice period of two weeks.", question)
    assert not may_answer("Ctenophora\nCtenophora\nCtenophora", question)
    assert may_answer("合同工的通知期为两周。", zh)
    assert not may_answer("栉水母有一个共同祖先。", zh)
    assert may_answer("Anything", "Why?")
