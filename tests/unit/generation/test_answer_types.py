"""Whether a sentence shows the type of thing a question asks for."""

from __future__ import annotations

import pytest

from forebay.generation.answer_types import AnswerType
from forebay.generation.passages import analyse


def shown(question: str, text: str) -> bool:
    return AnswerType(question).shown(analyse(text, "", "", ()).units[0])


@pytest.mark.parametrize(
    ("question", "shows", "lacks"),
    [
        ("Who guards the gate?", "It is guarded by Martin Weber.", "The gate closes at 20:00."),
        ("Who approves it?", "The director approves it.", "It takes two weeks."),
        ("闸门由谁看守？", "闸门由王建国看守。", "闸门20:00关闭。"),
        ("When was it built?", "It was built in 1904.", "It closes at 20:00."),
        ("Where is it sold?", "It is sold at the main hall.", "It costs 9 euros per month."),
        ("在哪里出售？", "在主厅出售。", "售价9元。"),
        ("How heavy is it?", "It weighs 2 kg.", "The speed is 2800 rpm."),
        ("有多重？", "重2千克。", "转速是2800转。"),
        ("几点开门？", "9:00开门。", "有24个工位。"),
        ("What colour is it?", "It is red.", "It weighs 2 kg."),
        ("打几折？", "打八折。", "转速是1200转。"),
        (
            "Within what time is the quarterly report due?",
            "It is due in ten days.",
            "Hand it in at the office.",
        ),
        ("When does the weekend shift start?", "It starts at seven.", "It is led by Maria Lopez."),
        (
            "When does the weekend shift start?",
            "The weekend shift starts on 3 May.",
            "The weekend shift is led by Maria Lopez.",
        ),
        ("晚班几点开始？", "晚班19:00开始。", "晚班由王建国带领。"),
        ("年会什么时候举行？", "年会三月五日举行。", "年会由王建国主持。"),
        ("Who leads the night shift?", "It is led by Maria Lopez.", "It has six operators."),
        ("Who leads the shift?", "The shift's operators lead it.", "It has 12 trained operators."),
        ("额定功率是多少？", "额定功率75千瓦。", "额定流量每小时300立方米。"),
        ("额定流量是多少？", "额定流量每小时300立方米。", "额定功率75千瓦。"),
        ("What is its rated power?", "Its rated power is 75 kW.", "Its rated flow is 300."),
        ("功率因数是多少？", "功率因数为0.9。", "由王建国测量。"),
        ("On which floor is it?", "It is on the second floor.", "It has 24 places."),
    ],
)
def test_the_type_asked_for(question: str, shows: str, lacks: str) -> None:
    assert shown(question, shows)
    assert not shown(question, lacks)


def test_without_a_type_anything_may_answer() -> None:
    kind = AnswerType("What is a penstock?")
    assert kind.asked == "" and not kind.is_measure
    assert shown("What is a penstock?", "A pipe that leads water to a turbine.")
    assert AnswerType("How heavy is it?").is_measure


@pytest.mark.parametrize(
    ("question", "text", "said"),
    [
        ("How many days of leave are there?", "每年8天。", True),
        ("How many days of leave are there?", "自2026年1月1日起。", False),
        ("How many working days does it take?", "检验需5天。", True),
        ("保修几个月？", "The warranty is 24 months.", True),
        ("保修几个月？", "It was made in 2024, two years ago.", False),
        ("多少小时？", "It takes three hours.", True),
        ("How long is it?", "每年8天。", False),
    ],
)
def test_the_unit_asked_for(question: str, text: str, *, said: bool) -> None:
    assert AnswerType(question).in_unit(analyse(text, "", "", ()).units[0]) == said


@pytest.mark.parametrize("question", ["Can the fee be refunded?", "年费可以退吗？"])
def test_a_question_for_yes_or_no_asks_for_no_type(question: str) -> None:
    assert AnswerType(question).asked == ""
    assert AnswerType("Can you tell what the fee is?").asked == "money"
    assert AnswerType("年费是多少钱，能说吗？").asked == "money"
