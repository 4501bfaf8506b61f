"""Marks of closed classes are the same in both languages."""

from __future__ import annotations

import pytest

from forebay.generation.marks import groups_of, han_number, mark_of, marks


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("second", "二号"),
        ("3rd", "第三"),
        ("north", "北"),
        ("red", "红色"),
        ("night", "夜班"),
        ("weekend", "周末"),
        ("monthly", "月度"),
        ("upstream", "上游"),
        ("tuesday", "星期二"),
    ],
)
def test_words_of_both_languages_are_one_mark(english: str, chinese: str) -> None:
    assert mark_of(english) == mark_of(chinese) is not None


def test_marks_of_a_text_by_group() -> None:
    assert marks("the second red gate") == {"ordinal": {"#2"}, "colour": {"red"}}
    assert marks("二号红色闸门") == {"ordinal": {"#2"}, "colour": {"red"}}
    assert marks("the gate weighs 40 t") == {}
    assert mark_of("pump") is None and groups_of("#2") == {"ordinal"}


@pytest.mark.parametrize(("written", "value"), [("十二", 12), ("两百零五", 205), ("三万", 30_000)])
def test_chinese_numbers(written: str, value: int) -> None:
    assert han_number(written) == value
