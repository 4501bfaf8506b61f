"""Kinds by words."""

from __future__ import annotations

import pytest

from forebay.query.kinds import kind_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("When was the dam built?", "fact"),
        ("大坝是哪年建成的？", "fact"),
        ("大壩是哪年建成的？", "fact"),
        ("Why did the pump stop?", "relation"),
        ("水泵为什么停了？", "relation"),
        ("Which services depend on the gateway?", "relation"),
        ("What is the difference between the two gates?", "comparison"),
        ("两种闸门有什么区别？", "comparison"),
        ("兩種閘門有什麼區別？", "comparison"),
        ("Is the north gate heavier than the south gate?", "comparison"),
        ("How do I reset my password?", "faq"),
        ("怎么重置密码？", "faq"),
        ("Can I carry over vacation days?", "faq"),
        ("年假可以结转吗？", "faq"),
        ("Hello there!", "chat"),
        ("thank you so much", "chat"),
        ("你好", "chat"),
        ("謝謝", "chat"),
        ("您好，谢谢！", "chat"),
        ("What will the weather be like tomorrow?", "out_of_scope"),
        ("what's the weather like today", "out_of_scope"),
        ("明天天气怎么样？", "out_of_scope"),
        ("Tell me a joke", "out_of_scope"),
        ("讲个笑话", "out_of_scope"),
    ],
)
def test_kind_of(text: str, kind: str) -> None:
    assert kind_of(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "Hello, how do I reset my password?",
        "你好，年假有几天？",
        "thanks, and what about contractors?",
        "Who are you supposed to call at night?",
        "How does the alarm work?",
        "What does the hello command print?",
        "谢谢你们的客服电话是多少",
        "天气传感器的精度是多少？",
        "闹钟功能怎么设置？",
    ],
)
def test_a_question_in_it_is_a_question(text: str) -> None:
    assert kind_of(text).kind not in ("chat", "out_of_scope")


def test_a_long_text_takes_no_time() -> None:
    """Only its beginning is read, whatever its words would do to the expressions."""
    for text in ("hi " * 100_000, "which is more " * 50_000, "比" * 500_000, "how " * 100_000):
        kind_of(text)


def test_a_guess_without_a_word_for_it_is_not_sure() -> None:
    assert not kind_of("tungsten carbide tooling").sure
    assert kind_of("Why is tungsten hard?").sure
