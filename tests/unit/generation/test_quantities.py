"""Values are the same whatever their notation and language, and other values are told apart."""

from __future__ import annotations

import pytest

from forebay.generation.quantities import agree, differ, quantities


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It closes at 18:00.", "下午六点关闭。"),
        ("It opens at half past six.", "早上六点半开门。"),
        ("It takes 1.5 h.", "需要90分钟。"),
        ("需要一个半小时。", "It takes 90 minutes."),
        ("up to 2 t", "2000公斤以下"),
        ("a discount of 20 %", "打八折"),
        ("优惠15%", "打八五折"),
        ("on 12 March 2023", "2023年3月12日"),
        ("March 12, 2023", "2023-03-12"),
        ("twelve months", "一年"),
        ("1,500,000 litres", "150万升"),
        ("on the second floor", "在二楼"),
        ("every Tuesday", "每周二"),
        ("costs 24 EUR", "costs €24"),
        ("1 TB", "1024 GB"),
        ("百分之九十", "90 %"),
        ("half a year", "六个月"),
        ("within five working days", "5个工作日"),
        ("30日以内", "30 days"),
    ],
)
def test_one_value_in_two_notations(one: str, other: str) -> None:
    mine, theirs = quantities(one), quantities(other)
    assert agree(mine, theirs), (mine, theirs)
    assert not differ(mine, theirs, {})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("18:00关闭", "五点半关闭"),
        ("closes at 18:00", "closes at 5:30 pm"),
        ("2吨以下", "up to 2500 kg"),
        ("2023年3月12日", "on 2023-05-04"),
        ("4周", "35 days"),
        ("打八折", "a discount of 15 percent"),
        ("星期二", "on Friday"),
        ("six devices", "8 devices"),
        ("六台", "8台"),
        ("in 1964", "1967年"),
        ("640 kg", "641 kg"),
        ("二楼", "on the fourth floor"),
        ("乘坐一等座", "乘坐二等座"),
    ],
)
def test_two_values(one: str, other: str) -> None:
    assert differ(quantities(one), quantities(other), {})


def test_a_day_of_a_month_is_no_duration() -> None:
    assert "duration" not in quantities("7月13日那周")


def test_a_value_of_the_question_is_no_difference() -> None:
    asked = quantities("Is 40 kg allowed?")
    assert not differ(quantities("40 kg is allowed."), quantities("50 kg is allowed."), asked)
    assert not differ(quantities("3 days"), quantities("40 kg"), {})
