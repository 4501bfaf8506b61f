"""What is quoted must say what is asked, and not only speak of the thing."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


def draft(question: str, *texts: str) -> tuple[str, bool]:
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *texts, language=language))
    return "".join(found.pieces), found.refused


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who repaired the north crane?", "The north crane lifts 40 tonnes."),
        ("When was the north crane built?", "The north crane works from 6:00 to 22:00."),
        ("Where is the north crane made?", "The north crane lifts 40 tonnes."),
        ("What colour is the north crane?", "The north crane lifts 40 tonnes."),
        ("二号吊车是谁修的？", "二号吊车最多能吊40吨。"),
        ("二号吊车是哪一年造的？", "二号吊车最多能吊40吨。"),
        ("二号吊车是什么颜色？", "二号吊车最多能吊40吨。"),
    ],
)
def test_another_fact_of_the_thing_is_no_answer(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert refused and "40" not in quoted


@pytest.mark.parametrize(
    ("question", "told", "sibling"),
    [
        (
            "How much does the second crane weigh?",
            "The second crane weighs 95 tonnes.",
            "The first crane weighs 80 tonnes.",
        ),
        ("夜班几点开始？", "夜班在22:00开始。", "白班在6:30开始。"),
    ],
)
def test_the_thing_asked_about_is_quoted_and_its_sibling_is_not(
    question: str, told: str, sibling: str
) -> None:
    quoted, refused = draft(question, sibling, told)
    assert not refused
    assert told in quoted and sibling not in quoted
    assert draft(question, sibling)[1]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How heavy is the north crane?", "The north crane weighs 95 tonnes."),
        ("Who guards the north crane?", "The north crane is guarded by Martin Weber."),
        ("二号吊车有多重？", "二号吊车重95吨。"),
        ("二号吊车由谁操作？", "二号吊车由王建国操作。"),
        ("Who may enter the server room?", "The server room is entered by our own team only."),
        ("How long must a password be?", "A password has at least 16 characters."),
        ("密码要多长？", "密码至少16位。"),
        ("What is the colour of a visitor's badge?", "Every visitor wears a yellow badge."),
        ("访客胸牌是什么颜色？", "访客佩戴黄色胸牌。"),
    ],
)
def test_what_shows_the_type_asked_for_is_an_answer(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert not refused and text in quoted


@pytest.mark.parametrize(
    ("question", "text", "refused"),
    [
        ("护手霜一天用几次？", "滴眼液一天用三次。", True),
        ("滴眼液一天用几次？", "滴眼液一天用三次。", False),
    ],
)
def test_all_that_is_asked_but_of_something_else_is_refused(
    question: str, text: str, refused: bool
) -> None:
    assert draft(question, text)[1] is refused


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How many guests are in the hotel?", "The hotel has 120 visitors."),
        ("酒店有多少客人？", "酒店有120位访客。"),
    ],
)
def test_words_that_share_a_translation_stand_for_each_other(question: str, text: str) -> None:
    quoted, refused = draft(question, text)
    assert not refused and "120" in quoted


@pytest.mark.parametrize(
    ("question", "text", "refused"),
    [
        ("What fuse has the FX-210?", "The FX-210 weighs 12 kg.", True),
        ("FX-210用什么保险丝？", "FX-210重12千克。", True),
        ("What fuse has the FX-210?", "The FX-210 has a fuse of 10 A.", False),
        ("How heavy is the FX-210?", "The FX-210 weighs 12 kg.", False),
        ("FX-210有多重？", "FX-210重12千克。", False),
    ],
)
def test_a_code_and_its_parts_do_not_make_up_for_what_is_asked(
    question: str, text: str, refused: bool
) -> None:
    assert draft(question, text)[1] is refused


@pytest.mark.parametrize(
    ("question", "title", "text"),
    [
        ("Who is the CEO of Larkspur?", "Travel policy of Larkspur", "Owner: Finance."),
        ("What is the per diem for France?", "Per diem", "In Zurich the limit is 210 EUR."),
    ],
)
def test_a_title_answers_for_no_name_that_is_nowhere(question: str, title: str, text: str) -> None:
    hit = passage(text)
    hit = msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, title=title))
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, hit))
    assert found.refused


@pytest.mark.parametrize(("place", "told"), [("上海", True), ("广州", False)])
def test_a_row_of_another_place_is_no_answer(place: str, *, told: bool) -> None:
    table = "网点 | 电话\n上海服务中心 | 021-5588\n成都维修站 | 028-8123"
    request = asked(f"{place}服务中心的电话是多少？", table, language="zh", score=0.5)
    found = ExtractiveGenerator(WordCounter()).draft(request)
    assert found.refused != told
    assert ("021-5588" in "".join(found.pieces)) == told


PRICES = """model | name | range | price_eur | warranty_months
LK-200 | Pressure gauge | 0-16 bar | 480 | 24
LK-350 | Flow meter | 2-200 l/min | 1850 | 36
LK-360 | Flow meter | 10-900 l/min | 2640 | 36
TX-9 | Temperature probe | -40 to 180 °C | 210 | 12"""


@pytest.mark.parametrize(
    ("question", "table", "told"),
    [
        ("How much does the LK-350 cost?", "Model | Price (EUR)\nLK-350 | 420\nLK-90 | 75", "420"),
        ("How much does the LK-370 cost?", "Model | Price (EUR)\nLK-350 | 420\nLK-90 | 75", None),
        ("How much does the LK-370 cost?", PRICES, None),
        ("How much does the LK-360 cost?", PRICES, "2640"),
        ("LK-370多少钱？", PRICES, None),
        ("LK-360多少钱？", PRICES, "2640"),
        ("LK-350多少钱？", "型号 | 价格（元）\nLK-350 | 3200\nLK-90 | 580", "3200"),
        ("LK-370多少钱？", "型号 | 价格（元）\nLK-350 | 3200\nLK-90 | 580", None),
    ],
)
def test_a_row_of_another_code_is_no_answer(question: str, table: str, told: str | None) -> None:
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, table, language=language))
    assert found.refused == (told is None)
    assert told is None or told in "".join(found.pieces)


APPROVAL = (
    "单笔5,000元以下由部门经理审批，5,000元至30,000元由财务总监审批，30,000元以上由总经理审批。"
    "报销款在审批后5个工作日内打入工资卡。"
)
APPROVAL_EN = (
    "| Amount (EUR) | Approved by |\n| up to 5,000 | team lead |\n| 5,001 to 30,000 | treasurer |\n"
    "| over 30,000 | board |"
)
LEAVE = (
    "| Years of service | Days of annual leave |\n| under 5 years | 8 |\n"
    "| 5 to under 15 years | 12 |\n| 15 years and more | 15 |"
)
LEAVE_HAN = "| 工龄 | 年假天数 |\n| 不满5年 | 8天 |\n| 满5年不满15年 | 12天 |\n| 满15年 | 15天 |"


@pytest.mark.parametrize(
    ("question", "text", "told", "others"),
    [
        ("两万元的报销由谁审批？", APPROVAL, "财务总监", ()),
        ("Who approves a purchase of 20,000?", APPROVAL_EN, "treasurer", ("lead", "board")),
        ("How many days of annual leave after seven years?", LEAVE, "12", ("8", "15 years and")),
        ("工龄七年有几天年假？", LEAVE_HAN, "12天", ("8天", "满15年;")),
    ],
)
def test_an_amount_is_found_by_its_range(
    question: str, text: str, told: str, others: tuple[str, ...]
) -> None:
    quoted, refused = draft(question, text)
    assert not refused and told in quoted
    assert not any(other in quoted for other in others)


@pytest.mark.parametrize(
    ("question", "text", "refused"),
    [
        ("产假有多少天？", "转正后每周可以远程办公两天。加班每月不得超过36小时。", True),
        ("How many days does the crating take?", "Staff may work from home two days.", True),
        ("税号是多少？", "发票抬头：云杉有限公司，税号 91320500MA。", False),
        ("What is the VAT number?", "Heading: Larch Ltd, VAT number GB 443 02.", False),
    ],
)
def test_one_common_word_is_too_little_and_all_words_are_enough(
    question: str, text: str, *, refused: bool
) -> None:
    request = asked(question, text, language="en" if question.isascii() else "zh", score=0.19)
    assert ExtractiveGenerator(WordCounter()).draft(request).refused is refused


@pytest.mark.parametrize(
    ("question", "table"),
    [
        ("What is the per diem for France?", "country | full day\nGermany | 28 EUR"),
        ("What is the daily rate of Okafor?", "who | rate a day\nLind | 300 EUR"),
    ],
)
def test_a_row_under_a_heading_answers_for_no_name_that_is_nowhere(
    question: str, table: str
) -> None:
    hit = passage(table)
    chunk = msgspec.structs.replace(hit.chunk, title="Travel", heading_path=("Per diem",))
    request = asked(question, msgspec.structs.replace(hit, chunk=chunk))
    assert ExtractiveGenerator(WordCounter()).draft(request).refused


@pytest.mark.parametrize(
    ("question", "heading", "text"),
    [
        ("What is the reason when nobody can log in to the ERP?", "Nobody can log in to the ERP",
         "The clock of the identity server has drifted."),
        ("ERP登录不了是什么原因？", "ERP登录不了", "身份服务器的时钟走偏了。"),
    ],
)  # fmt: skip
def test_a_heading_asks_what_its_statements_answer(question: str, heading: str, text: str) -> None:
    hit = passage(text)
    hit = msgspec.structs.replace(
        hit, chunk=msgspec.structs.replace(hit.chunk, heading_path=(heading,))
    )
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, hit, language=language))
    assert not found.refused and text[:8] in "".join(found.pieces)


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        (
            "买了几天内可以退？",
            "# 七天无理由退货\n\n退货的运费由买家承担，商品须完好。\n\n签收之日起7天内可以退。",
            "签收之日起7天内",
        ),
        (
            "For how many days can I return it?",
            "# 30 days to return\n\nWho returns it pays the postage.\n\nReturn it within 30 days.",
            "within 30 days",
        ),
    ],
)
def test_what_shows_a_measure_itself_is_before_what_stands_under_one(
    question: str, text: str, told: str
) -> None:
    assert told in draft(question, text)[0]


def test_how_much_is_cut_from_the_words_beside_it() -> None:
    quoted, refused = draft("满多少钱包邮？", "全场订单满88元包邮，未满的收运费8元。")
    assert not refused and "88元" in quoted
