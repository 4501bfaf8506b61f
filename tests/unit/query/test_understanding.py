"""Reading, judging and naming senses together."""

from __future__ import annotations

import time

import msgspec
import numpy as np
import pytest

from forebay.kernel.documents import Vectors
from forebay.kernel.stages import Likeness, Message
from forebay.query import KindClassifier, QuerySettings, RuleReader
from forebay.query.classifier import KINDS
from forebay.query.understanding import says_enough
from forebay.testing.generation import passage

WEAK, STRONG = (passage("x", score=0.1),), (passage("x", score=0.9),)


def reader(classifier: KindClassifier | None = None, **settings: object) -> RuleReader:
    return RuleReader(msgspec.convert(settings, QuerySettings), classifier)


def said(*turns: str) -> tuple[Message, ...]:
    """A conversation that the user begins."""
    return tuple(Message("assistant" if at % 2 else "user", turn) for at, turn in enumerate(turns))


def sure_of(kind: str) -> KindClassifier:
    """A classifier that says the same of every vector."""
    weights = np.zeros((3, len(KINDS)), np.float32)
    weights[-1, KINDS.index(kind)] = 20.0
    return KindClassifier("f", weights)


VECTOR = Vectors((0,), 2, np.ones(2, "<f4").tobytes())


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Hello!", "Hello"),
        ("Thank you", "You are welcome"),
        ("goodbye", "Goodbye"),
        ("你好", "您好"),
        ("谢谢", "不客气"),
        ("謝謝", "不客氣"),
        ("再見", "再見"),
    ],
)
def test_small_talk_gets_a_sentence_in_its_language(text: str, begins: str) -> None:
    read = reader().read(said(text))
    assert read.kind == "chat"
    assert read.reply.startswith(begins)


def test_who_brings_rules_of_their_own_is_left_to_the_generator() -> None:
    messages = (Message("system", "You are a pirate."), *said("Hello!"))
    assert reader().read(messages).reply == ""
    assert reader(chat_replies=False).read(said("Hello!")).reply == ""


def test_a_follow_up_is_rewritten_and_says_so() -> None:
    read = reader().read(said("What is the notice period?", "Three months [1].", "Is it paid?"))
    assert (read.question, read.rewritten) == ("Is the notice period paid?", True)
    off = reader(rewriting=False)
    assert not off.read(said("What is the notice period?", "-", "Is it paid?")).rewritten


def test_small_talk_is_no_topic() -> None:
    read = reader().read(said("年假有几天？", "7天", "谢谢", "不客气。", "可以结转吗？"))
    assert read.question == "年假可以结转吗？"
    assert not reader().read(said("你好", "您好", "可以结转吗？")).rewritten


def test_the_answer_to_a_question_that_was_asked_back() -> None:
    senses = Likeness(((100.0, 99.5, 10.0), (99.5, 100.0, 10.0), (10.0, 10.0, 100.0)))
    hits = [passage("苹果" * number, number=number) for number in (1, 2, 3)]
    hits = [
        msgspec.structs.replace(one, chunk=msgspec.structs.replace(one.chunk, title=title))
        for one, title in zip(hits, ("设备", "设备", "水果"), strict=True)
    ]
    asking = reader(ambiguity="ask")
    read = asking.read(said("苹果"))
    assert read.unclear
    back = asking.senses(read, hits, senses)
    assert [sense.name for sense in back.senses] == ["设备", "水果"]
    assert "- 设备 [1]" in back.reply and "- 水果 [2]" in back.reply
    answered = asking.read(said("苹果", back.reply, "水果"))
    assert (answered.question, answered.rewritten) == ("苹果 水果", True)
    assert reader(ambiguity="tell").senses(read, hits, senses).reply == ""
    assert reader(ambiguity="each").senses(read, hits, senses).each
    assert not reader(ambiguity="off").read(said("苹果")).unclear


def test_things_of_one_name_are_asked_back_unless_one_was_asked_about() -> None:
    hits = [
        msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, title=title))
        for hit, title in zip(
            (passage("one", number=1), passage("two", number=2)),
            ("Atlas forklift", "Atlas project"),
            strict=True,
        )
    ]
    asking = reader(ambiguity="ask")
    asked = "Who is responsible for Atlas?"
    back = asking.judge(asking.read(said(asked)), None, hits)
    assert [sense.name for sense in back.senses] == ["Atlas forklift", "Atlas project"]
    assert "- Atlas forklift [1]" in back.reply and not back.unclear
    told = asking.read(said("What does the Atlas forklift cost?", "31,000 [1].", asked))
    assert asking.judge(told, None, hits).senses == ()
    both = asking.read(said(asked, back.reply, "both"))
    assert asking.judge(both, None, hits).senses == ()
    off = reader(ambiguity="off")
    assert off.judge(off.read(said(asked)), None, hits).senses == ()


@pytest.mark.parametrize(
    ("earlier", "asked", "question"),
    [
        ("What is the warranty of pumps?", "What about valves?", "What is the warranty of valves?"),
        ("Which pumps are there?", "How long do they last?",
         "Which pumps are there? How long do they last?"),
        ("年假有多少天？", "病假呢？", "病假有多少天？"),
        ("年假有多少天？", "合同工呢？", "年假有多少天？合同工呢？"),
        ("年假有多少天？", "那怎么申请？", "年假怎么申请？"),
    ],
)  # fmt: skip
def test_the_earlier_question_is_no_part_of_a_follow_up(
    earlier: str, asked: str, question: str
) -> None:
    read = reader().read(said(earlier, "-", asked))
    assert (read.question, read.rewritten, read.parts) == (question, True, ())


def test_a_follow_up_that_is_several_questions_has_parts() -> None:
    several = reader().read(
        said("What is the warranty?", "-", "How long is it and who pays for it?")
    )
    assert several.parts == ("How long is the warranty", "Who pays for the warranty?")
    sides = reader().read(said("Compare the A-2 with the B-3 on power.", "-", "And on weight?"))
    assert sides.parts == ("the A-2 weight", "the B-3 weight")
    front = reader().read(
        said("Which pumps are there?", "-", "How long do they last and who sells them?")
    )
    assert front.question.startswith("Which pumps are there?")
    assert [part.rpartition("? ")[2] for part in front.parts] == [
        "How long do they last",
        "Who sells them?",
    ]
    assert "Which pumps are there" not in front.parts


def test_parts_can_be_switched_off() -> None:
    text = "年假和病假有什么区别？"
    assert reader().read(said(text)).parts == ("年假", "病假")
    assert reader(splitting=False).read(said(text)).parts == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("How do I lose ten pounds in a month?", "I can only answer from the documents"),
        ("一个月怎么瘦十斤？", "我只能根据本知识库的文档回答"),
        ("一個月怎麼瘦十斤？", "我只能根據本知識庫的文件回答"),
    ],
)
def test_what_no_document_answers_is_refused(text: str, sentence: str) -> None:
    judge = reader(sure_of("out_of_scope"))
    read = judge.read(said(text))
    judged = judge.judge(read, VECTOR, WEAK)
    assert judged.kind == "out_of_scope"
    assert judged.reply.startswith(sentence)


def test_what_the_search_found_is_never_out_of_scope() -> None:
    judge = reader(sure_of("out_of_scope"))
    read = judge.read(said("How do I set an alarm on the console?"))
    judged = judge.judge(read, VECTOR, STRONG)
    assert (judged.reply, judged.kind) == ("", "faq")
    weather = judge.read(said("明天天气怎么样？"))
    assert weather.kind == "out_of_scope"
    assert judge.judge(weather, VECTOR, STRONG).kind == "fact"
    assert reader().judge(weather, None, STRONG).kind == "fact"
    off = reader(sure_of("out_of_scope"), out_of_scope=False)
    assert off.judge(read, VECTOR, WEAK).reply == ""


def test_the_classifier_decides_where_no_word_does() -> None:
    judge = reader(sure_of("relation"))
    unsure = judge.read(said("tungsten carbide tooling suppliers"))
    assert unsure.kind == "fact"
    assert judge.judge(unsure, VECTOR, STRONG).kind == "relation"
    sure = judge.read(said("When was the dam built?"))
    assert judge.judge(sure, VECTOR, STRONG).kind == "fact"
    assert judge.judge(unsure, None, STRONG).kind == "fact"


@pytest.mark.parametrize("text", ["apple", "苹果", "VPN address"])
def test_a_name_alone_has_no_kind(text: str) -> None:
    assert not says_enough(text)
    judge = reader(sure_of("out_of_scope"))
    read = judge.read(said(text))
    assert judge.judge(read, VECTOR, WEAK) == read


def test_reading_takes_microseconds() -> None:
    """The bound is far above what it takes (benchmarks/query), so that a busy machine may pass."""
    asking = reader()
    turns = said("What is the notice period?", "Three months [1].", "Is it paid for contractors?")
    began = time.process_time()
    for _ in range(100):
        asking.read(turns)
    assert (time.process_time() - began) / 100 < 0.002
