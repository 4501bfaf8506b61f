"""What is asked of a long text, and how long its parts may be."""

from __future__ import annotations

import pytest

from forebay.kernel.errors import ContextTooLong
from forebay.policy.splitting import SplittingSettings, is_chinese, part_sizes, task_of

ENGLISH = "# Report\n\nThe dam was built in 1961.\n\nIts spillway is 120 metres long."
CHINESE = "# 报告\n\n大坝建于 1961 年。\n\n溢洪道长 120 米。"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (ENGLISH, "When was the dam built?"),
        (ENGLISH, "Summarise this report in three sentences."),
        (ENGLISH, "Please list every length."),
        (CHINESE, "大坝是哪一年建的？"),
        (CHINESE, "请概括这份报告"),
        (CHINESE, "溢洪道长多少米"),
    ],
)
def test_the_question_stands_above_or_below_its_text(text: str, asked: str) -> None:
    for message in (f"{text}\n\n{asked}", f"{asked}\n\n{text}\n"):
        task = task_of(message)
        assert task.asked == asked
        assert message[task.start : task.end].strip() == text


def test_of_two_that_ask_the_plainer_one_is_taken_and_then_the_one_below() -> None:
    assert task_of(f"Read this:\n\n{ENGLISH}\n\nHow long is it?").asked == "How long is it?"
    assert task_of(f"How long is it?\n\n{ENGLISH}\n\nList of figures").asked == "How long is it?"
    assert task_of(f"What is it?\n\n{ENGLISH}\n\nWhere is it?").asked == "Where is it?"


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "one line without an end", "", "\n\n"])
def test_a_text_alone_asks_nothing(text: str) -> None:
    task = task_of(text)
    assert task.asked == ""
    assert text[task.start : task.end] == text


def test_a_paragraph_of_the_text_is_no_question_however_it_ends() -> None:
    long = "Why this matters is told at length. " * 30
    assert task_of(f"{ENGLISH}\n\n{long}?").asked == ""


def test_the_language_is_that_of_most_words() -> None:
    assert is_chinese("VPN 怎么连接")
    assert not is_chinese("The word 坝 means dam in Chinese")
    assert not is_chinese("")


def test_parts_leave_room_for_the_question_passages_and_all_notes() -> None:
    settings = SplittingSettings(max_parts=8, note_tokens=256)
    sizes = part_sizes(settings, room=4000, asked_tokens=200, text_tokens=10_000)
    assert sizes.text_tokens + 1000 + 200 <= 4000
    assert sizes.note_tokens == 256
    small = part_sizes(settings, room=1000, asked_tokens=100, text_tokens=3000)
    assert 8 * small.note_tokens <= small.text_tokens


def test_what_takes_too_many_parts_is_told_so() -> None:
    settings = SplittingSettings(max_parts=4)
    part = part_sizes(settings, room=4000, asked_tokens=100, text_tokens=1).text_tokens
    part_sizes(settings, room=4000, asked_tokens=100, text_tokens=4 * part)
    with pytest.raises(ContextTooLong, match="in 5 parts, of which at most 4"):
        part_sizes(settings, room=4000, asked_tokens=100, text_tokens=4 * part + 1)
    with pytest.raises(ContextTooLong, match="shorten the question"):
        part_sizes(settings, room=400, asked_tokens=300, text_tokens=1)
