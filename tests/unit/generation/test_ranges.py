"""An amount in a question is found in the range of a statement that holds it."""

from __future__ import annotations

import math

import pytest

from forebay.generation.passages import analyse
from forebay.generation.quantities import Counted
from forebay.generation.ranges import (
    admitted,
    amounts,
    by_range,
    excluded,
    is_of_other_days,
    ranges,
)
from forebay.generation.terms import Term, question_terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5 to under 15 years | 12", [(5, 15)]),
        ("five to under fifteen years", [(5, 15)]),
        ("under 5 years | 8", [(-math.inf, 5)]),
        ("15 years and more | 15", [(15, math.inf)]),
        ("满5年不满15年的,12天;满15年的,15天。", [(5, 15), (15, math.inf)]),
        ("工龄不满五年的员工有8天。", [(-math.inf, 5)]),
        ("A crew of 9 works for 38 days.", []),
        ("九人一组,工期38天。", []),
    ],
)
def test_bounds_of_years(text: str, found: list[tuple[float, float]]) -> None:
    year = 31557600.0
    years = [bound / year for one in ranges(text) for bound in (one.low, one.high)]
    assert years == pytest.approx([bound for bounds in found for bound in bounds])


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("5,001 to 50,000 | department manager | 2", 5001, 50000),
        ("between 28 and 74 parts", 28, 74),
        ("over 400,000 | tender committee", 400000, math.inf),
        ("up to CNY 20,000 by telephone", -math.inf, 20000),
        ("单笔5,000元以下由组长批准。", -math.inf, 5000),
        ("三万元以上由总经理批准。", 30000, math.inf),
    ],
)
def test_bounds_of_sums(text: str, low: float, high: float) -> None:
    [found] = ranges(text)
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize(
    ("question", "key", "number"),
    [
        ("两万元的报销由谁审批？", "两万元", 20000),
        ("How many quotes for a purchase of 30,000?", "30000", 30000),
        ("How many days after five years?", "fiv", 5 * 31557600),
        ("工龄7年有几天年假？", "7", 7 * 31557600),
    ],
)
def test_amounts_of_a_question(question: str, key: str, number: float) -> None:
    found = amounts(question, question_terms(question))[key]
    assert isinstance(found, Counted)
    assert found.number == number


@pytest.mark.parametrize(
    "question",
    ["What does the FX-210 cost?", "2027年放几天假？", "Who leads the team?", "谁带队？"],
)
def test_codes_and_years_are_no_amounts(question: str) -> None:
    assert not amounts(question, question_terms(question))


@pytest.mark.parametrize(
    ("question", "rows", "held"),
    [
        ("Who approves 30,000?", "| up to 5,000 | lead |\n| 5,001 to 50,000 | manager |", [0, 1]),
        ("三万元由谁批准？", "| 5000元以下 | 组长 |\n| 5000元至50000元 | 经理 |", [0, 1]),
    ],
)
def test_a_row_whose_range_holds_the_amount_has_it(
    question: str, rows: str, held: list[float]
) -> None:
    units = analyse("| sum | by |\n" + rows, "", "", ()).units
    known = amounts(question, question_terms(question))
    [key] = known
    term = Term(key, 1.0, han=not key.isascii())
    [found] = admitted([term], units, known, [[0.0, 0.0]])
    assert list(found) == held
    if not key.isascii():
        assert [excluded(unit, known) for unit in units] == [not one for one in held]


ROTA = """| week | days | on call | deputy |
| 31 | 29 July – 4 August | Mai Tran | Ove Lund |
| 32 | 5–11 August | Ove Lund | Sol Vega |
"""


def test_a_row_has_the_day_that_lies_in_its_period() -> None:
    question = "Who is on call on 2 August?"
    terms = question_terms(question)
    units = analyse(ROTA, "", "Rota", ()).units
    known = amounts(question, terms)
    assert list(known) == [term.key for term in terms[-2:]]
    held = admitted(terms, units, known, [[1.0, 1.0] for _ in terms])
    day = [term.key for term in terms].index("2")
    assert held[day] == [1.0, 0.0]
    assert [excluded(unit, known) for unit in units] == [False, True]
    assert by_range(known, units[:1])
    assert not by_range(known, units[1:])


def test_a_day_alone_admits_nothing() -> None:
    question = "Who is on call on 2 August?"
    terms = question_terms(question)
    known = amounts(question, terms)
    units = analyse("From 1 July to 31 August the pool opens at 9:00.", "", "", ()).units
    held = admitted(terms, units, known, [[0.0] for _ in terms])
    assert not any(map(any, held))


def test_what_is_said_of_other_days_is_no_answer() -> None:
    question = "Who is on call on 2 September?"
    terms = question_terms(question)
    known = amounts(question, terms)
    rota = analyse(ROTA, "", "Rota", ())
    [other] = analyse("Changes are agreed with Sol Vega.", "", "Rota", ()).units
    assert is_of_other_days(terms, known, [rota], [other])
    [told] = analyse("On call in September: Kim Bauer.", "", "Rota", ()).units
    assert not is_of_other_days(terms, known, [rota], [told])
    page = analyse("On call until 30 August: Mai. From 31 August: Sol.", "", "", ())
    assert not is_of_other_days(terms, known, [page], page.units[1:])


def test_a_day_is_no_number_of_a_range() -> None:
    [found] = ranges("From 3 March to 9 March orders over 50 euros ship free.")
    assert (found.kind, found.low) == ("euro", 50)
