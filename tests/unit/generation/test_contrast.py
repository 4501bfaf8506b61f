"""Statements that are alike but for a word tell of different things, whatever the word means."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.generation.contrast import places
from forebay.generation.passages import Unit, analyse
from forebay.kernel.sentences import checksum
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


def unit(text: str) -> Unit:
    return analyse(text, "", "", ()).units[0]


def draft(question: str, *texts: str) -> tuple[str, bool]:
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *texts, language=language))
    return "".join(found.pieces), found.refused


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("Brine freezes at -18 degrees.", "Glycol freezes at -13 degrees.", ["brine|glycol"]),
        ("盐水在18度结冰。", "乙二醇在13度结冰。", ["盐水|乙二醇"]),
        (
            "The badges of drivers are signed by the dispatcher.",
            "The badges of packers are signed by the foreman.",
            ["drivers|packers", "dispatcher|foreman"],
        ),
        ("司机的胸牌由调度员签发。", "包装工的胸牌由工长签发。", ["司机|包装工", "调度员|工长"]),
        ("Brine freezes at -18 degrees.", "Glycol is kept in the yard.", []),
        ("盐水在18度结冰。", "乙二醇存放在院子里。", []),
        ("Brine freezes at -18 degrees.", "盐水在18度结冰。", []),
    ],
)
def test_places_in_which_two_statements_differ(one: str, other: str, found: list[str]) -> None:
    joint = " " if one.isascii() else ""
    pairs = [(joint.join(a), joint.join(b)) for a, b in places(unit(one), unit(other))]
    assert ["|".join(pair) for pair in pairs if "\0" not in "".join(pair)] == found


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (
            "At how many degrees does methanol freeze?",
            "Brine freezes at 18 degrees.",
            "Glycol freezes at 13 degrees.",
        ),
        ("甲醇在多少度结冰？", "盐水在18度结冰。", "乙二醇在13度结冰。"),
        (
            "Who signs the badges of welders?",
            "The badges of drivers are signed by the dispatcher.",
            "The badges of packers are signed by the foreman.",
        ),
        ("焊工的胸牌由谁签发？", "司机的胸牌由调度员签发。", "包装工的胸牌由工长签发。"),
    ],
)
def test_a_third_thing_is_answered_by_none_of_two(question: str, one: str, other: str) -> None:
    assert draft(question, one, other)[1]


@pytest.mark.parametrize(
    ("question", "texts", "told"),
    [
        (
            "At how many degrees does glycol freeze?",
            ("Brine freezes at 18 degrees.", "Glycol freezes at 13 degrees."),
            "13",
        ),
        ("乙二醇在多少度结冰？", ("盐水在18度结冰。", "乙二醇在13度结冰。"), "13"),
        # What two documents say differently of one thing is no sign of two things.
        (
            "Who heads the print shop today?",
            ("The print shop is led by Ada Holm.", "The print shop is led by Per Lund."),
            "Holm",
        ),
        ("印刷厂现在由谁主管？", ("印刷厂由陈明负责。", "印刷厂由李霞负责。"), "陈明"),
    ],
)
def test_the_thing_asked_about_is_told(question: str, texts: tuple[str, ...], told: str) -> None:
    quoted, refused = draft(question, *texts)
    assert not refused and told in quoted


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "How soon must packers return the scanner?",
            (
                "Drivers work 38 hours. Packers work 40 hours. "
                "Drivers must return the scanner within 2 days."
            ),
        ),
        (
            "包装工须在几天内归还扫码枪？",
            "司机每周工作38小时。包装工每周工作40小时。司机须在2天内归还扫码枪。",
        ),
    ],
)
def test_a_word_in_the_place_of_another_elsewhere_is_its_sibling(question: str, text: str) -> None:
    assert draft(question, text)[1]
    names = {"Drivers must": "Packers must", "司机须": "包装工须"}
    for other, own in names.items():
        text = text.replace(other, own)
    quoted, refused = draft(question, text)
    assert not refused and "2" in quoted


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "What notice period does the river plan have?",
            "The river plan costs 24 euros a month. The river plan may be used on 8 devices.",
        ),
        ("河流套餐的退订期限是多久？", "河流套餐每月24元。河流套餐每年送两张票。"),
    ],
)
def test_statements_that_say_nothing_of_what_is_asked_are_no_answer(
    question: str, text: str
) -> None:
    assert draft(question, text)[1]


@pytest.mark.parametrize(
    ("question", "titles", "told"),
    [
        ("How many unused days may be carried over in 2031?", ("Leave 2030", "Leave 2031"), "5"),
        ("2031年没休完的假可以结转几天？", ("休假制度2030", "休假制度2031"), "5"),
    ],
)
def test_two_editions_are_told_apart_by_their_titles(
    question: str, titles: tuple[str, str], told: str
) -> None:
    texts = (
        ("Up to 3 days may be carried over to March.", "Up to 5 days may be carried over to June.")
        if question.isascii()
        else ("可以结转3天到三月。", "可以结转5天到六月。")
    )
    hits = []
    for number, (title, text) in enumerate(zip(titles, texts, strict=True), 1):
        hit = passage(text, number=number)
        chunk = msgspec.structs.replace(hit.chunk, title=title)
        hits.append(msgspec.structs.replace(hit, chunk=chunk))
    language = "en" if question.isascii() else "zh"
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *hits, language=language))
    assert not found.refused and told in "".join(found.pieces)


ENGLISH = (
    "Brine freezes at 18 degrees.",
    "Glycol freezes at 13 degrees.",
    "Glycol is kept in F-1.",
    "Brine is kept in C-4.",
)
HAN = ("盐水在18度结冰。", "乙二醇在13度结冰。", "乙二醇存放在F-1柜。", "盐水存放在C-4柜。")


@pytest.mark.parametrize(
    ("question", "texts", "near", "told"),
    [
        ("盐水在多少度结冰？", ENGLISH, (6.0, 5.0, 1.0, 2.0), "18"),
        ("甲醇在多少度结冰？", ENGLISH, (6.0, 5.9, 2.0, 1.9), None),
        # Nearer to the one's temperature, but to the other's place: the thing is the other.
        ("乙二醇存放在哪个柜？", ENGLISH[:2] + ENGLISH[3:], (3.0, 4.5, 6.0), None),
        ("At how many degrees does brine freeze?", HAN, (6.0, 5.0, 1.0, 2.0), "18"),
        ("At how many degrees does methanol freeze?", HAN, (6.0, 5.9, 2.0, 1.9), None),
        ("In which cabinet is glycol kept?", HAN[:2] + HAN[3:], (3.0, 4.5, 6.0), None),
    ],
)
def test_across_languages_the_nearer_of_two_alike_is_asked_about(
    question: str, texts: tuple[str, ...], near: tuple[float, ...], told: str | None
) -> None:
    hit = msgspec.structs.replace(passage(" ".join(texts)), cosine=0.9, around=0.3)
    sentences = {checksum(text): value for text, value in zip(texts, near, strict=True)}
    language = "en" if question.isascii() else "zh"
    request = msgspec.structs.replace(asked(question, hit, language=language), sentences=sentences)
    found = ExtractiveGenerator(WordCounter()).draft(request)
    assert found.refused == (told is None)
    assert told is None or told in "".join(found.pieces)


@pytest.mark.parametrize(
    ("question", "texts", "told"),
    [
        (
            "泵房里最多可以放多少升机油？",
            ("Up to 5 litres of oil may stand in the pump house.",
             "Up to 9 litres of paint may stand in the pump house.", "泵房在八点打扫。"),
            "5 litres",
        ),
        (
            "How many litres of oil may stand in the pump house?",
            ("泵房里最多可以放5升机油。", "泵房里最多可以放9升油漆。",
             "The pump house is swept at eight."),
            "5升",
        ),
    ],
)  # fmt: skip
def test_words_that_a_statement_in_another_language_cannot_have_are_not_lacking(
    question: str, texts: tuple[str, ...], told: str
) -> None:
    quoted, refused = draft(question, *texts)
    assert refused or told in quoted
    assert not refused


ANNUAL_LEAVE = """# Annual leave

Every employee has 12 days of annual leave a year. Unused days of annual leave may be carried over
until the end of March.
"""
SICK_LEAVE = """# Sick leave

Sick leave is paid for 30 days. A certificate is needed from the third day of sick leave.
"""


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        (
            "What is the difference between annual leave and sick leave?",
            (ANNUAL_LEAVE, SICK_LEAVE),
        ),
        (
            "年假和病假有什么区别？",
            ("# 年假\n\n每位员工每年有12天年假。没有休完的年假可以结转到次年三月底。",
             "# 病假\n\n病假带薪30天。病假从第三天起需要医院证明。"),
        ),
    ],
)  # fmt: skip
def test_a_statement_about_one_of_the_things_compared_may_lack_the_other(
    question: str, texts: tuple[str, ...]
) -> None:
    hits = [passage(text, number=at, score=0.9) for at, text in enumerate(texts, 1)]
    language = "en" if question.isascii() else "zh"
    request = msgspec.structs.replace(asked(question, language=language), passages=tuple(hits))
    assert not ExtractiveGenerator(WordCounter()).draft(request).refused
