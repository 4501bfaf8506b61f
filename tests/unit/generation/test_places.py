"""Which places a text and a cell of a table name, and by what else they are called."""

from __future__ import annotations

import re

import pytest

from forebay.generation.places import around, in_other_words, listed, places_in


@pytest.mark.parametrize(
    ("cell", "places"),
    [
        ("江浙沪", "江苏 浙江 上海"),
        ("粤港澳", "广东 香港 澳门"),
        ("东北三省", "辽宁 吉林 黑龙江"),
        ("新疆西藏", "新疆 西藏"),
        ("云南省、贵州省", "云南 贵州"),
        ("沪", "上海"),
        ("germany, south africa", "德国 南非"),
        ("上海仓", ""),
        ("3-5天", ""),
        ("等", ""),
    ],
)
def test_a_cell_lists_places_or_says_something_else(cell: str, places: str) -> None:
    assert listed(cell) == frozenset(places.split())


def test_a_text_names_places_and_a_short_name_counts_beside_another() -> None:
    assert places_in("寄到广州要几天") == {"广州"}
    assert around(places_in("寄到广州要几天")) == {"广州", "广东"}
    assert places_in("发川渝要几天") == {"四川", "重庆"}
    assert places_in("新的蜀锦") == frozenset()
    assert places_in("shipping to the united states") == {"美国"}


def test_a_province_is_found_by_its_short_name_in_a_list() -> None:
    sichuan = re.compile(in_other_words("四川"))
    assert sichuan.search("川渝") and sichuan.search("云贵川")
    assert not sichuan.search("川菜馆")
    canton = re.compile(in_other_words("广州"))
    assert canton.search("地区 | 运费\n广东福建 | 8元")
    assert not canton.search("广东分公司在中山路8号。")
    assert in_other_words("水泵") == ""
