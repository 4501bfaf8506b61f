"""Lists and small tables are quoted whole where all of them is asked for, and only there."""

from __future__ import annotations

import re

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator, ExtractiveSettings
from forebay.kernel.documents import Hit
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked

FERRY = """# Aboard the ferry

The following may not come aboard:

- petrol in cans;
- stoves with gas;
- fireworks.

## Before departure

1. Count the passengers.
2. Close the bow door.
3. Report the departure by radio.

## Fares

- Adults: 12 euros
- Children: 6 euros

## Alarm signals

| Signal | Meaning | Response |
|---|---|---|
| Three short | Man overboard | Throw the ring |
| One long | Fire | Go to the muster station |

## Release 2.4.0

- Fixed: the map froze.
- Added a dark theme.
- Fixed: tickets came twice.
"""
WORKSHOP = """# 车间工具手册

下列工具不外借：

- 电焊机；
- 校准用的量具；
- 报修的手电钻。

## 空压机启动步骤

1、检查油位。
2、打开进气阀。
3、等待压力升到0.8兆帕。

## 租金

- 手推车：每天6元
- 梯子：每天4元

## 报警代码

| 代码 | 含义 | 处理 |
|---|---|---|
| E1 | 油温过高 | 停机冷却 |
| E2 | 电机过载 | 联系维修 |
"""


def quoted(question: str, *passages: str | Hit, **settings: int) -> str:
    language = "en" if question.isascii() else "zh"
    generator = ExtractiveGenerator(WordCounter(), ExtractiveSettings(**settings))  # type: ignore[arg-type]
    draft = generator.draft(asked(question, *passages, language=language))
    assert not draft.refused
    return "".join(draft.pieces).split("\n\n", 1)[1]


STEPS = """Before departure:
1. Count the passengers.
2. Close the bow door.
3. Report the departure by radio. [1]"""
ONE_LONG = "Signal: One long; Meaning: Fire; Response: Go to the muster station"
SIGNALS = f"""Alarm signals:
- Signal: Three short; Meaning: Man overboard; Response: Throw the ring
- {ONE_LONG} [1]"""


def lines(quotation: str) -> str:
    return "\n".join(f"> {line}" for line in quotation.splitlines())


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "What may not come aboard the ferry?",
            """Aboard the ferry: The following may not come aboard:
- petrol in cans;
- stoves with gas;
- fireworks. [1]""",
        ),
        (
            "工具外借有什么限制？",
            """车间工具手册：下列工具不外借：
- 电焊机；
- 校准用的量具；
- 报修的手电钻。 [1]""",
        ),
    ],
)
def test_a_lead_in_brings_its_items(question: str, text: str) -> None:
    document = FERRY if question.isascii() else WORKSHOP
    assert quoted(question, document, max_quotes=1) == lines(text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What are the steps before departure?", STEPS),
        ("What must be done before departure?", STEPS),
        ("Which alarm signals are there?", SIGNALS),
        ("What are the alarm signals?", SIGNALS),
        (
            "What was fixed in release 2.4.0?",
            "Release 2.4.0:\n- Fixed: the map froze.\n- Fixed: tickets came twice. [1]",
        ),
        (
            "怎么启动空压机？",
            "空压机启动步骤：\n1、检查油位。\n2、打开进气阀。\n3、等待压力升到0.8兆帕。 [1]",
        ),
        (
            "报警代码有哪些？",
            """报警代码：
- 代码：E1；含义：油温过高；处理：停机冷却
- 代码：E2；含义：电机过载；处理：联系维修 [1]""",
        ),
    ],
)
def test_what_is_asked_for_as_a_whole_is_one_quotation(question: str, text: str) -> None:
    document = FERRY if question.isascii() else WORKSHOP
    assert quoted(question, document) == lines(text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What do children pay?", "Fares: Children: 6 euros"),
        ("When is the bow door closed?", "Before departure: Close the bow door."),
        ("What does one long signal mean?", f"Alarm signals: {ONE_LONG}"),
        ("What was added in release 2.4.0?", "Release 2.4.0: Added a dark theme."),
        ("What are the fares for children?", "Fares: Children: 6 euros"),
        ("Which alarm signals mean fire?", f"Alarm signals: {ONE_LONG}"),
        ("梯子的租金有哪些规定？", "租金：梯子：每天4元"),
        ("梯子的租金是多少？", "租金：梯子：每天4元"),
        ("E2代码是什么含义？", "报警代码：代码：E2；含义：电机过载；处理：联系维修"),
        ("启动时压力要升到多少？", "空压机启动步骤：等待压力升到0.8兆帕。"),
    ],
)
def test_a_question_for_one_fact_gets_one_item(question: str, text: str) -> None:
    document = FERRY if question.isascii() else WORKSHOP
    assert quoted(question, document) == f"> {text} [1]"


@pytest.mark.parametrize(
    ("question", "header", "rows"),
    [
        (
            "Which pump faults mean level 3?",
            "Fault | Level",
            ("Leak at the pump | 3", "Pump fault unknown | 1", "Pump is hot | 3", "Noise | 2"),
        ),
        (
            "哪些水泵故障的级别是3级？",
            "故障 | 级别",
            ("水泵漏水 | 3级", "水泵故障不明 | 1级", "水泵过热 | 3级", "噪声 | 2级"),
        ),
    ],
)
def test_rows_that_lack_the_number_are_not_of_those_asked_for(
    question: str, header: str, rows: tuple[str, ...]
) -> None:
    table = "\n".join(f"| {row} |" for row in (header, "---|---", *rows))
    found = quoted(question, table)
    assert [row.split(" | ")[0] in found for row in rows] == [True, False, True, False]


@pytest.mark.parametrize(
    ("question", "characters", "more", "after"),
    [
        ("Which tools are not lent?", 120, "… (17 more)", "\nIt opens at nine."),
        ("哪些工具不外借？", 80, "……（还有 17 项）", "\n九点开门。"),
        # What comes next was not found.
        ("Which tools are not lent?", 120, "… (at least 17 more)", ""),
        ("哪些工具不外借？", 80, "……（至少还有 17 项）", ""),
    ],
)
def test_what_there_is_no_room_for_is_counted(
    question: str, characters: int, more: str, after: str
) -> None:
    english = question.isascii()
    lead = "The following tools are not lent:" if english else "下列工具不外借："
    item = "- a vice with jaws, number {}" if english else "- 大型台虎钳及其全部附件，编号为{}号"
    document = "\n".join([lead, "", *(item.format(number) for number in range(100, 120)), after])
    text = quoted(question, document, max_quote_characters=characters)
    *_, last, told = text.splitlines()
    assert (last[-3:], told) == ("[1]", f"> {more}")
    assert text.count("vice" if english else "台虎钳") == 3


def chunks_of(text: str, heading: str, *spans: tuple[int, int]) -> list[Hit]:
    whole = passage(text).chunk
    return [
        Hit(
            msgspec.structs.replace(
                whole, start=start, end=end, text=text[start:end], heading_path=(heading,)
            ),
            score=0.6,
        )
        for start, end in spans
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_a_list_that_two_chunks_share_is_quoted_in_its_order(first: int) -> None:
    """The second chunk repeats the end of the first one."""
    text = "## Crane start steps\n\n1. Lift it.\n2. Turn it.\n3. Pull it.\n4. Rest.\n"
    spans = (0, text.index("3.")), (text.index("2."), len(text))
    hits = chunks_of(text, "Crane start steps", *spans)
    found = quoted("What are the crane start steps?", hits[first], hits[1 - first])
    places = [found.index(f"> {number}.") for number in range(1, 5)]
    assert places == sorted(places) and found.count("Turn it") == 1
    assert found.endswith(f"4. Rest. [{2 - first}]") and f"[{first + 1}]" in found


@pytest.mark.parametrize("first", [0, 1])
def test_a_lead_in_at_the_end_of_a_chunk_brings_the_items_of_the_next(first: int) -> None:
    text = "## Depot\n\nIt is old. These tools are not lent:\n\n- drills\n- saws\n"
    spans = (0, text.index("\n\n- ")), (text.index("These"), len(text))
    hits = chunks_of(text, "Depot", *spans)
    found = quoted("Which tools are not lent?", hits[first], hits[1 - first], max_quotes=1)
    assert found.endswith(f"These tools are not lent:\n> - drills\n> - saws [{2 - first}]")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("room", [60, 900])
def test_a_list_that_three_chunks_share_is_quoted_or_counted_whole(
    order: tuple[int, ...], room: int
) -> None:
    text = "## Depot\n\nThese tools are not lent:\n\n" + "".join(f"- saw {n}\n" for n in range(30))
    text += "\nIt is old."
    a, b = text.index("- saw 10"), text.index("- saw 20")
    hits = chunks_of(text, "Depot", (0, a), (a, b), (b, len(text)))
    found = quoted(
        "Which tools are not lent?", *(hits[one] for one in order), max_quote_characters=room
    )
    counted = re.search(r"… \((\d+) more\)", found)
    assert found.count("> - saw") + (int(counted[1]) if counted else 0) == 30
    assert (room == 900) == (counted is None)


def test_commands_stay_with_their_steps() -> None:
    steps = ("1. Stop it:", "```\nctl stop\n```", "2. Start it:", "```\nctl start\n```")
    text = quoted("What are the restart steps?", "\n\n".join(("## Restart steps", *steps)))
    places = [text.index(each) for each in ("Stop it", "ctl stop", "Start it", "ctl start")]
    assert places == sorted(places)


def test_a_list_in_traditional_characters_is_quoted_as_it_is_written() -> None:
    steps = "1、檢查油位。\n2、打開進氣閥。\n3、等待壓力升高。"
    found = quoted("空壓機的啟動步驟有哪些？", f"## 空壓機啟動步驟\n\n{steps}")
    assert found == lines(f"空壓機啟動步驟：\n{steps} [1]")


@pytest.mark.parametrize("question", ["Who painted the ceiling?", "昨天的足球比赛谁赢了？"])
def test_a_list_makes_no_answer_of_a_refusal(question: str) -> None:
    language = "en" if question.isascii() else "zh"
    draft = ExtractiveGenerator(WordCounter()).draft(
        asked(question, FERRY, WORKSHOP, language=language, score=0.1)
    )
    assert draft.refused
