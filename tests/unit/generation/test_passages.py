"""Whether words of a question can stand in a passage, told as its analysis tells it."""

from __future__ import annotations

import pytest

from forebay.generation.passages import analyse, in_other_script

TEXTS = (
    "The gate closes at nine.",
    "大门九点关闭。",
    "大门在每天晚上九点关闭，值班人员负责巡查，第二天早上六点以前任何人不得打开，除非值班经理同意并在登记簿上签字为证，之后再由保安复核一遍，确认无误方可离开岗位，交接班时另行登记并存档备查。"
    * 2,
    "Bring the form 申请表 to the office before you leave, and have it signed there by a clerk.",
    "请在 VPN 客户端里选择 office 线路。",
    "",
)


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_what_the_analysis_says(text: str) -> None:
    passage = analyse(text, "", "", ())
    assert in_other_script(text, han=True) == (not passage.has_han)
    assert in_other_script(text, han=False) == (passage.mostly_han and bool(text))


def test_chinese_and_english_are_apart() -> None:
    assert in_other_script(TEXTS[0], han=True) and not in_other_script(TEXTS[0], han=False)
    assert in_other_script(TEXTS[2], han=False) and not in_other_script(TEXTS[2], han=True)


@pytest.mark.parametrize("text", ["3.5 m is the height of the gate.", "4.1 服务水平不低于九成。"])
def test_a_number_with_a_fraction_begins_no_list(text: str) -> None:
    assert [(one.kind, one.text) for one in analyse(text, "", "", ()).units] == [("sentence", text)]


@pytest.mark.parametrize(
    ("text", "marker"),
    [("2. Close it.", "2."), ("二、…", ""), ("（二）关门。", "（二）"), ("- It", "")],
)
def test_an_item_of_a_numbered_list_keeps_its_number(text: str, marker: str) -> None:
    assert [one.marker for one in analyse(text, "", "", ()).units] == [marker]


def test_what_a_unit_says_by_itself_stands_under_its_title_and_heading() -> None:
    table = "| Service | Days |\n|---|---|\n| new | 8 |"
    text = f"In force from May.\n\n# Leave\n\n{table}\n\n- Sick: none"
    said = [unit.said for unit in analyse(text, "", "Staff_rules", ("Terms",)).units]
    assert said == [
        "Staff rules. Terms: In force from May.",
        "Leave",
        "Staff rules. Leave: Service: new; Days: 8",
        "Staff rules. Leave: Sick: none",
    ]
    # A heading that names the document, a question that is a heading, and neither.
    assert analyse("It is.", "", "Rules", ("Rules of May",)).units[0].said == "Rules of May: It is."
    asked = analyse("# Is it so?\n\nIt is.", "", "", ()).units
    assert asked[1].said == "Is it so?: It is."
    assert analyse("It is.", "", "", ()).units[0].said == "It is."


def test_a_unit_is_read_in_simplified_characters_and_kept_as_it_is_written() -> None:
    text = "# 會員\n\n| 等級 | 年費 |\n|---|---|\n| 銀卡 | 300元 |\n\n請於10日內繳費。"
    heading, row, sentence = analyse(text, "", "俱樂部指南", ()).units
    assert (row.lead, row.text, row.above, row.section) == (
        "| 等级 | 年费 |",
        "| 银卡 | 300元 |",
        "俱乐部指南. 会员",
        "会员",
    )
    assert row.as_written.text == "| 銀卡 | 300元 |"
    assert row.said == "俱樂部指南. 會員: 等級: 銀卡; 年費: 300元"
    assert (heading.text, sentence.text) == ("会员", "请于10日内缴费。")
    plain = analyse("请于10日内缴费。", "", "指南", ()).units[0]
    assert plain.as_written is plain


def test_a_line_that_lists_is_no_heading_of_what_follows() -> None:
    text = "Our depot\n\nPresent: Clark, Weber\n\nThe belt is late.\n\nHours\n\nIt opens at six."
    units = {unit.text: unit.section for unit in analyse(text, "", "Our depot", ()).units}
    assert units["The belt is late."] == ""
    assert units["It opens at six."] == "Hours"
