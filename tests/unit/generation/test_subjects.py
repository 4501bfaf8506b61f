"""A statement about another thing of the kind is told from one about what is asked."""

from __future__ import annotations

import pytest

from forebay.generation.passages import Passage, analyse
from forebay.generation.subjects import Subject, continues
from forebay.generation.support import others
from forebay.generation.terms import question_terms


def read(text: str, title: str = "") -> Passage:
    return analyse(text, "", title, ())


def is_another(question: str, statement: str, title: str = "") -> bool:
    passage = read(statement, title)
    return Subject(question, question_terms(question)).is_another(passage.units[0], passage.head)


@pytest.mark.parametrize(
    ("question", "another", "same"),
    [
        ("How heavy is boiler 3?", "Boiler 1 weighs 5 t.", "Boiler 3 weighs 5 t."),
        (
            "Who runs the toy department?",
            "The book department is run by Ann Lee.",
            "The toy department is run by Ann Lee.",
        ),
        (
            "When does the spring fair begin?",
            "The autumn fair begins on 5 May.",
            "The spring fair begins on 5 May.",
        ),
        (
            "How long does the A9 phone last?",
            "The battery of the A8 phone lasts 5 hours.",
            "The battery of the A9 phone lasts 5 hours.",
        ),
        (
            "What is the flow of the second pump?",
            "The flow of the first pump is 40 litres per second.",
            "The second pump's flow is 40 litres.",
        ),
        (
            "How far is platform B from the lift?",
            "Platform A is 20 m from the lift.",
            "Platform B is 20 m from the lift.",
        ),
        ("3号锅炉的压力是多少？", "1号锅炉的压力是2兆帕。", "3号锅炉的压力是2兆帕。"),
        ("第三台风机的转速是多少？", "第一台风机的转速是900转。", "第三台风机的转速是900转。"),
        ("二期工程什么时候完工？", "一期工程2020年完工。", "二期工程2020年完工。"),
        ("下游站有多深？", "上游站深12米。", "下游站深12米。"),
        ("小学组有多少人？", "中学组有40人。", "小学组有40人。"),
        ("后门几点关？", "前门20:00关闭。", "后门20:00关闭。"),
        ("木工班学费是多少？", "电工班学费是800元。", "木工班学费是800元。"),
        ("A9手机多少钱？", "A8手机售价3000元。", "A9手机售价3000元。"),
        # Across languages, by codes and marks alone.
        ("二号水泵有多重？", "The first pump weighs 640 kg.", "The second pump weighs 640 kg."),
        ("When does the south gate close?", "北门20:00关闭。", "南门20:00关闭。"),
        ("A9手机多少钱？", "The A8 phone costs 300 euros.", "The A9 phone costs 300 euros."),
    ],
)
def test_another_of_the_kind(question: str, another: str, same: str) -> None:
    assert is_another(question, another)
    assert not is_another(question, same)


def test_what_the_title_says_is_said_of_each_sentence() -> None:
    statement = "The first pump weighs 640 kg."
    assert not is_another("What does the second pump weigh?", statement, "Second pump, part A")


def test_a_long_sentence_tells_of_several_things() -> None:
    statement = (
        "The autumn fair begins on 5 May, and as in every year since the war the town, the guild "
        "of bakers and the school take part with stalls, music and a procession to the river."
    )
    assert not is_another("When does the spring fair begin?", statement)


def test_what_goes_on_about_another_thing_is_about_it_too() -> None:
    question = "What does the second pump weigh?"
    passage = read("The first pump is red. It weighs 640 kg. The second pump is blue.")
    assert others(passage, Subject(question, question_terms(question))) == [True, True, False]
    assert continues("它重640千克。") and not continues("Item 4 is blue.")


@pytest.mark.parametrize(
    ("question", "statement", "another"),
    [
        ("Where is valve number 7?", "Valve number 92 stands in hall 3.", True),
        ("Where is valve no. 7?", "Valve 92 stands in hall 3.", True),
        ("Where is valve number 7?", "Valve no. 7 stands in hall 3.", False),
        ("Where is valve 7?", "Valve number 7 stands in hall 3.", False),
    ],
)
def test_a_thing_may_be_numbered_by_a_word(question: str, statement: str, another: bool) -> None:
    assert is_another(question, statement) is another


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "How many clerks does the railway office employ today?",
            "Today the harbour office employs 11 clerks.",
        ),
        (
            "What must visitors of the harbour office bring along?",
            "Visitors of the airport office must bring along a passport.",
        ),
        (
            "Since when has the Kassel branch sold bread?",
            "The Bremen branch has sold bread since 1998.",
        ),
        (
            "How many stops are served by bus line 48?",
            "29 stops are served by bus line 35.",
        ),
        ("公交48路一共停几站？", "公交35路一共停29站。"),
        ("七年级什么时候出发？", "八年级6月12日出发。"),
    ],
)
def test_things_before_their_verb_and_numbers_along_a_way(question: str, text: str) -> None:
    assert is_another(question, text)


def test_what_a_chinese_question_begins_with_is_what_it_is_about() -> None:
    question = "不来梅分店有多少平方米？"
    terms = question_terms(question)
    [unit] = read("不来梅分店去年赚了200万元。").units
    subject = Subject(question, terms)
    held = [unit.holds(term) for term in terms]
    asked = [terms[at].key for at in subject.asked_of(terms, held, [unit])]
    assert "分店" not in asked and "平方米" in asked
    assert subject.begins([unit])
    assert not subject.begins(read("德累斯顿分店去年赚了75万元。").units)


@pytest.mark.parametrize(
    ("question", "statement", "title"),
    [
        ("How often is the LK-370 cleaned?", "Clean the housing every month.", "LK-350 manual"),
        ("LK-370多久清洁一次？", "外壳每月清洁一次。", "LK-350使用手册"),
    ],
)
def test_what_stands_under_the_title_of_another_model_is_about_that_one(
    question: str, statement: str, title: str
) -> None:
    assert is_another(question, statement, title)
    assert not is_another(question, statement, title.replace("350", "370"))
    assert not is_another(question, statement, "RX-9")
