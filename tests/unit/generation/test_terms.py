"""Content terms of questions, and the units of passages."""

from __future__ import annotations

import pytest

from forebay.generation.passages import Unit, analyse, sentences
from forebay.generation.terms import (
    COMMON_WEIGHT,
    NAME_WEIGHT,
    NUMBER_WEIGHT,
    WORD_WEIGHT,
    first_stem,
    fold,
    question_terms,
    stem,
    stems,
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


def test_a_compound_has_one_stem_whatever_the_order_of_its_parts() -> None:
    assert first_stem("News-Record") == first_stem("news-record") == "news-record"
    assert first_stem("gates") == "gat" and first_stem("Pump's") == "pump"
    assert first_stem(",") == "," and first_stem("水泵") == "水泵" and first_stem("") == ""


def test_long_words_are_read_as_short_ones_are() -> None:
    long = "a" * 40
    assert stems(f"{long}s") == {first_stem(f"{long}s")} == {long}
    [term] = question_terms(f"{long}-b7")[:1]
    assert term.key == f"{long}-b7"


def test_what_is_found_in_a_unit_is_found_once_and_is_no_part_of_it() -> None:
    [unit] = analyse("The pump is red.", "", "", ()).units
    asked: list[str] = []

    def length(one: Unit) -> int:
        asked.append(one.text)
        return len(one.text)

    assert unit.known(length) == unit.known(length) == 16 and asked == ["The pump is red."]
    assert [unit] == list(analyse("The pump is red.", "", "", ()).units)


def test_units_know_their_script() -> None:
    [english] = analyse("The pump is red.", "", "", ()).units
    assert not english.has_han and not english.in_han
    [cell] = analyse("| 名 | value |\n| pump | red |", "", "", ()).units
    assert not cell.has_han and cell.in_han


@pytest.mark.parametrize(
    ("one", "other"),
    [("held", "holds"), ("kept", "keep"), ("paid", "pays"), ("used", "use"), ("children", "child")],
)
def test_irregular_forms_meet(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_a_form_that_is_another_word_is_left_alone() -> None:
    assert stem("left") != stem("leave") and stem("saw") != stem("see")


def test_both_scripts_of_chinese_have_the_same_terms() -> None:
    written = question_terms("離島門市的營業時間是什麼？")
    assert written == question_terms("离岛门市的营业时间是什么？")
    assert fold("離島ＡＢ１") == "离岛ab1"
