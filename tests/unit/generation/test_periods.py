"""Days of a question are found in the periods of a statement that hold them, and in no others."""

from __future__ import annotations

import pytest

from forebay.generation.passages import Unit, analyse
from forebay.generation.periods import asked_days, periods, without_dates
from forebay.generation.terms import fold


def unit(text: str, *, heading: str = "", table: bool = False) -> Unit:
    whole = f"| a | b | c |\n| {text} |" if table else text
    return analyse(f"# {heading}\n{whole}" if heading else whole, "", "", ()).units[-1]


def state(question: str, there: Unit) -> str:
    _, days = asked_days(fold(question))
    assert days is not None
    return "in" if days.within(there) else "out" if days.without(there) else ""


@pytest.mark.parametrize(
    "day",
    [
        "12月10日",
        "12月10号",
        "十二月十日",
        "12.10",
        "12/10",
        "2026-12-10",
        "2026年12月10日",
        "10日",
        "10 December",
        "Dec 10",
        "December 10th",
        "10th of December 2026",
        "in December",
    ],
)
@pytest.mark.parametrize(
    ("holding", "other"),
    [
        ("12月7日–12月13日", "12月14日–12月20日"),
        ("12.7-12.13", "12.14-12.20"),
        ("12/7~12/13", "12/14~12/20"),
        ("12月7日至13日", "12月14日到20日"),
        ("十二月七日至十三日", "十二月十四日至二十日"),
        ("2026-12-07至2026-12-13", "2026-12-14至2026-12-20"),
        ("12月7日（周一）至12月13日（周日）", "12月14日（周一）至12月20日（周日）"),
        ("7–13 December", "14–20 December"),
        ("Dec 7 to 13", "Dec 14 to 20"),
        ("from 7 until 13 December 2026", "14 through 20 December 2026"),
        ("Monday, 7 December - Sunday, 13 December", "14 December — 20 December"),
        ("2026-12-07 22:00 – 2026-12-13 04:00", "2026-12-14 22:00 – 2026-12-20 04:00"),
    ],
)
def test_a_day_in_every_notation(day: str, holding: str, other: str) -> None:
    question = f"Who is on call {day}?" if day.isascii() else f"{day}谁值班"
    assert state(question, unit(holding)) == "in"
    assert state(question, unit(f"3 | {holding} | Ada", table=True)) == "in"
    assert state(question, unit(other)) == ("in" if day.startswith("in ") else "out")


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("1月2日谁值班", "12月28日–1月3日", "in"),
        ("1月5日谁值班", "12月28日–1月3日", "out"),
        ("price on 2 January 2027", "28 December 2026 - 3 January 2027", "in"),
        ("price on 2 January 2028", "28 December 2026 - 3 January 2027", "out"),
        ("price on 2 January 2027", "28 December - 3 January 2027", "in"),
        ("3月5日多少钱", "11月1日至次年3月31日25元", "in"),
        ("price on 5 May", "from 1 March", "in"),
        ("price on 5 February", "from 1 March", "out"),
        ("price on 5 May 2026", "since 1 March 2027", "out"),
        ("price on 5 February 2028", "since 1 March 2027", "in"),
        ("price on 5 May", "until 30 June", "in"),
        ("price on 5 July", "until 30 June", "out"),
        ("5月5日多少钱", "自3月1日起", "in"),
        ("2月5日多少钱", "自3月1日起", "out"),
        ("7月5日多少钱", "截至6月30日", "out"),
        ("7月5日多少钱", "6月30日之前", "out"),
        ("7月5日多少钱", "6月30日以后", "in"),
        ("price in June", "between 20 May and 5 June", "in"),
        ("price in June", "May to August", "in"),
        ("price in October", "May to August", "out"),
        ("10月3日多少钱", "7至9月", "out"),
        ("price from 4 to 6 May", "5 May until 9 May", "in"),
        ("on 12/07/2027", "10 July 2027 to 14 July 2027", "in"),
        ("周三开吗，几点开门", "周一至周五", "in"),
        ("周六几点开门", "周一至周五", "out"),
        ("周六几点开门", "周末10点开门", "in"),
        ("周日几点开门", "工作日9点开门", "out"),
        ("when does it open on Wednesday", "Mon–Fri 9:00", "in"),
        ("when does it open on Sunday", "Monday to Friday 9:00", "out"),
        ("when does it open at weekends", "Saturday 10:00", "in"),
        # Another day than one that is told alone may be as well.
        ("price on 5 May", "The price of 12 May is 3 euros.", ""),
        ("when does it open on Wednesday", "Closed on Mondays.", ""),
        ("price on 5 May", "Monday to Friday", ""),
        # Whether it is open beyond its season, its season tells.
        ("When must leave on 5 August be asked for?", "Leave in summer: by 30 June.", ""),
        ("Is it open on 5 October?", "The pool is open from 1 May to 30 September.", ""),
    ],
)
def test_what_holds_a_day_and_what_leaves_it_out(question: str, text: str, expected: str) -> None:
    assert state(question, unit(text)) == expected


def test_what_stands_above_says_of_which_days_it_is() -> None:
    question = "What does a room cost on 5 July?"
    below = "A room costs 80 euros a night, breakfast included."
    assert state(question, unit(below, heading="1 June to 31 August")) == "in"
    assert state(question, unit(below, heading="1 September to 31 May")) == "out"


@pytest.mark.parametrize(
    "text",
    ["5,001 to 50,000", "满5年不满15年", "1.5-2.5 mm", "3.1 to 3.4", "第10-12页", "3 to 5 people",
     "within 5 working days", "3个工作日内", "You may go.", "9:00–21:00"],
)  # fmt: skip
def test_other_numbers_are_no_days(text: str) -> None:
    assert not periods(text)


@pytest.mark.parametrize(
    "question",
    ["What about 3.5 kg?", "10号线几点开", "阿波罗1号载了谁", "5.05亿年前", "May I go?",
     "How many people were there in 1990?", "10日内能退吗"],
)  # fmt: skip
def test_a_question_without_a_day(question: str) -> None:
    folded = fold(question)
    assert asked_days(folded) == (folded, None)


def test_dates_are_taken_out() -> None:
    assert without_dates("from 3 march to 9 march over 50 euros").split() == [
        "from",
        "over",
        "50",
        "euros",
    ]
