"""Content terms of questions, and the units of passages."""

from __future__ import annotations

import pytest

from forebay.generation.passages import analyse, sentences
from forebay.generation.terms import (
    COMMON_WEIGHT,
    NAME_WEIGHT,
    NUMBER_WEIGHT,
    WORD_WEIGHT,
    question_terms,
    stem,
)


def weights(question: str) -> dict[str, float]:
    return {term.key: term.weight for term in question_terms(question)}


def test_names_and_numbers_weigh_more_and_glue_nothing() -> None:
    found = weights("How many people did the Broncos beat in 2015?")
    assert found["bronco"] == NAME_WEIGHT
    assert found["2015"] == NUMBER_WEIGHT
    assert found["beat"] == WORD_WEIGHT
    assert found["peopl"] == COMMON_WEIGHT
    assert not {"how", "many", "did", "the", "in"} & set(found)


def test_chinese_terms() -> None:
    found = weights("请问病假需要提交什么证明？")
    assert set(found) == {"病假", "提交", "证明"}
    assert "年假" in weights("没用掉的年假能留几天？")
    assert not question_terms("是什么？")
    assert weights("ＦＢ－２０４１多少钱")["fb-2041"] == NUMBER_WEIGHT


def test_compounds_are_whole_and_split() -> None:
    found = weights("What does BK-37 mean?")
    assert found["bk-37"] == NUMBER_WEIGHT
    assert found["bk"] < 1.0


@pytest.mark.parametrize(
    ("left", "right"),
    [("claims", "claim"), ("opened", "opening"), ("companies", "company"), ("running", "runs")],
)
def test_inflections_meet(left: str, right: str) -> None:
    assert stem(left) == stem(right)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Mr. Smith paid 3.5 % to Dr. Who.", ["Mr. Smith paid 3.5 % to Dr. Who."]),
        ("第一句。第二句！“第三句。”第四句", ["第一句。", "第二句！", "“第三句。”", "第四句"]),
        ("Version 1.2.3 is out. Install it.", ["Version 1.2.3 is out.", "Install it."]),
        ("It ended.[3] Then more.", ["It ended.[3]", "Then more."]),
        ("", []),
    ],
)
def test_sentences(line: str, found: list[str]) -> None:
    assert sentences(line) == found


def test_units_of_a_passage() -> None:
    text = (
        "# Leave\n\nTen days. More later.\n\nBring:\n- a form\n- a pen\n\n"
        "a | b\n1 | 2\n\n```\ncode here\n```\n"
    )
    passage = analyse(text, "", "Rules", ("HR",))
    assert [(unit.kind, unit.text) for unit in passage.units] == [
        ("heading", "Leave"),
        ("sentence", "Ten days."),
        ("sentence", "More later."),
        ("sentence", "Bring:"),
        ("item", "a form"),
        ("item", "a pen"),
        ("row", "1 | 2"),
        ("code", "code here"),
    ]
    assert passage.units[4].lead == "Bring:"
    assert passage.units[6].lead == "a | b"
    assert passage.head.text == "Rules HR"


def test_scripts_of_a_passage() -> None:
    assert analyse("年假十天，VPN 需要申请。", "", "", ()).mostly_han
    assert not analyse(
        "Ten days of leave for 张三 and for others who ask early.", "", "", ()
    ).has_han
