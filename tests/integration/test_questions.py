"""Questions through a whole server: understood, searched, answered and told, in both languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import LEXICAL, Client, served

DOCUMENTS = {
    "leave.md": "# Annual leave\n\nEvery employee has 12 days of annual leave a year. Unused days "
    "of annual leave may be carried over until the end of March.\n",
    "sick.md": "# Sick leave\n\nSick leave is paid for 30 days. A certificate is needed from the "
    "third day of sick leave.\n",
    "年假.md": "# 年假\n\n每位员工每年有12天年假。没有休完的年假可以结转到次年三月底。\n",
    "病假.md": "# 病假\n\n病假带薪30天。病假从第三天起需要医院证明。\n",
    "north.md": "# Gate of the north dam\n\nThe north gate weighs 45 tonnes.\n",
    "north-old.md": "# Gate of the north dam, survey of 1998\n\nThe north gate weighs 38 tonnes.\n",
    "北闸.md": "# 北坝闸门\n\n北闸门重45吨。\n",
    "pumps.md": "# Pumps\n\nThe warranty of pumps is 24 months.\n",
    "valves.md": "# Valves\n\nThe warranty of valves is 36 months.\n",
    "备用泵.md": "# 备用泵\n\n备用泵的转速为每分钟1450转。\n",
    "北闸旧.md": "# 北坝闸门（1998年测量）\n\n北闸门重38吨。\n",
    "falcon-saw.md": "# Falcon saw\n\nThe Falcon saw runs on 230 volts.\n",
    "falcon-drill.md": "# Falcon drill\n\nThe Falcon drill runs on 18 volts.\n",
    "麒麟叉车.md": "# 麒麟叉车\n\n麒麟叉车由赵倩负责。\n",
    "麒麟项目.md": "# 麒麟项目\n\n麒麟项目由孙宁负责。\n",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("questions")
    docs = folder / "docs"
    docs.mkdir()
    for name, text in DOCUMENTS.items():
        (docs / name).write_text(text, encoding="utf-8")
    knowledge = f'[knowledge.kb]\npaths = ["{docs}"]\n'
    with served(folder, LEXICAL + knowledge) as server:
        yield server.ask


def ask(client: Client, *turns: str, stream: bool = False) -> dict[str, Any]:
    messages = [
        {"role": "assistant" if at % 2 else "user", "content": turn}
        for at, turn in enumerate(turns)
    ]
    body = {"model": "forebay/kb", "messages": messages, "stream": stream}
    reply = client("POST", "/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    if not stream:
        answer: dict[str, Any] = reply.json
        return answer
    chunks = [
        json.loads(line[6:])
        for line in reply.body.decode().splitlines()
        if line.startswith("data: {")
    ]
    last = next(one for one in chunks if "forebay" in one)
    text = "".join(
        one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"]
    )
    return {**last, "choices": [{"message": {"content": text}}]}


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def sources(answer: dict[str, Any]) -> set[str]:
    return {Path(one["source"]).name for one in answer["citations"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("turns", "question", "says"),
    [
        (("How many days of annual leave are there?", "12 [1].", "Can it be carried over?"),
         "annual leave", "March"),
        (("年假有多少天？", "12天 [1]。", "可以结转吗？"), "年假可以结转吗？", "三月底"),
        (("年假有多少天？", "12天 [1]。", "可以結轉嗎？"), "年假可以結轉嗎？", "三月底"),
    ],
)  # fmt: skip
def test_a_follow_up_is_answered_and_shown(
    client: Client, turns: tuple[str, ...], question: str, says: str, stream: bool
) -> None:
    answer = ask(client, *turns, stream=stream)
    read = answer["forebay"]["query"]
    assert read["rewritten"] is True and question in read["question"]
    assert says in text_of(answer)
    assert answer["citations"]


def test_a_first_question_is_told_as_it_is(client: Client) -> None:
    answer = ask(client, "How many days of annual leave are there?")
    assert answer["forebay"]["query"] == {
        "language": "en",
        "kind": "fact",
        "question": "How many days of annual leave are there?",
    }


@pytest.mark.parametrize(
    ("question", "parts", "both"),
    [
        ("What is the difference between annual leave and sick leave?",
         ["annual leave", "sick leave"], {"leave.md", "sick.md"}),
        ("年假和病假有什么区别？", ["年假", "病假"], {"年假.md", "病假.md"}),
    ],
)  # fmt: skip
def test_both_sides_of_a_comparison_are_found(
    client: Client, question: str, parts: list[str], both: set[str]
) -> None:
    body = {"model": "forebay/kb", "messages": [{"role": "user", "content": question}],
            "forebay": {"top_k": 3}}  # fmt: skip
    answer = client("POST", "/v1/chat/completions", body).json
    assert answer["forebay"]["query"]["parts"] == parts
    assert answer["forebay"]["query"]["kind"] == "comparison"
    assert sources(answer) & both


@pytest.mark.parametrize("asked", ["What about valves?", "And valves?"])
def test_a_follow_up_about_another_case_leaves_the_first_alone(client: Client, asked: str) -> None:
    answer = ask(client, "What is the warranty of pumps?", "24 months [1].", asked)
    assert answer["forebay"]["query"]["question"] == "What is the warranty of valves?"
    assert "parts" not in answer["forebay"]["query"]
    assert "36 months" in text_of(answer) and "24 months" not in text_of(answer)
    assert {one["document_id"].rpartition("/")[2] for one in answer["citations"]} == {"valves.md"}


@pytest.mark.parametrize(
    ("question", "names", "clear"),
    [
        ("How many volts does the Falcon run on?", ["Falcon drill", "Falcon saw"],
         "How many volts does the Falcon saw run on?"),
        ("麒麟由谁负责？", ["麒麟叉车", "麒麟项目"], "麒麟叉车由谁负责？"),
    ],
)  # fmt: skip
def test_things_of_one_name_are_told_apart_by_their_titles(
    client: Client, question: str, names: list[str], clear: str
) -> None:
    senses = ask(client, question)["forebay"]["query"]["senses"]
    assert sorted(senses) == names
    assert "senses" not in ask(client, clear)["forebay"]["query"]
    # Whoever asked about one of them is not asked which.
    assert "senses" not in ask(client, clear, "-", question)["forebay"]["query"]


@pytest.mark.parametrize(
    ("earlier", "asked", "source", "says"),
    [
        ("年假可以结转吗？", "那病假呢？需要医院证明吗？", "病假.md", "第三天"),
        ("What is the warranty of pumps?", "No, I meant valves", "valves.md", "36 months"),
    ],
)
def test_another_case_is_asked_in_the_place_of_the_first(
    client: Client, earlier: str, asked: str, source: str, says: str
) -> None:
    answer = ask(client, earlier, "-", asked)
    assert says in text_of(answer)
    assert sources(answer) == {source}


@pytest.mark.parametrize(
    ("question", "begins"),
    [("備用泵的轉速是多少？", "根據文件："), ("火星基地的食堂幾點開門？", "在現有文件中沒有找到")],
)
def test_a_traditional_question_is_answered_in_its_own_characters(
    client: Client, question: str, begins: str
) -> None:
    assert text_of(ask(client, question)).startswith(begins)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("said", "begins"), [("Hello!", "Hello"), ("你好", "您好"), ("謝謝！", "不客氣")]
)
def test_small_talk_is_answered_without_a_search(
    client: Client, said: str, begins: str, stream: bool
) -> None:
    answer = ask(client, said, stream=stream)
    assert text_of(answer).startswith(begins)
    forebay = answer["forebay"]
    assert (forebay["rung"], forebay["model"], answer["citations"]) == ("none", "rules", [])
    assert forebay["query"]["kind"] == "chat" and forebay["refused"] is False
    assert "retrieval" not in {one["stage"] for one in forebay["timings"]}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Play some jazz music", "I can only answer from the documents"),
        ("放一首爵士乐", "我只能根据本知识库的文档回答"),
        ("放一首爵士樂", "我只能根據本知識庫的文件回答"),
    ],
)
def test_what_no_document_answers_is_refused(client: Client, said: str, sentence: str) -> None:
    answer = ask(client, said)
    assert text_of(answer).startswith(sentence)
    assert answer["forebay"]["refused"] is True and answer["citations"] == []


@pytest.mark.parametrize(
    "question",
    [
        "Which airline flies to Reykjavik?",
        "Who is the captain of the submarine?",
        "潜艇的艇长是谁？",
        "火星基地的食堂几点开门？",
    ],
)
def test_without_an_answer_there_is_a_refusal_and_never_an_invention(
    client: Client, question: str
) -> None:
    answer = ask(client, question)
    assert answer["forebay"]["refused"] is True, text_of(answer)
    assert answer["citations"] == []


@pytest.mark.parametrize(
    ("question", "figures", "unit"),
    [
        ("How much does the north gate weigh?", ("45", "38"), "tonnes"),
        ("北闸门有多重？", ("45", "38"), "吨"),
    ],
)
def test_documents_that_contradict_each_other_are_both_quoted(
    client: Client, question: str, figures: tuple[str, str], unit: str
) -> None:
    answer = ask(client, question)
    text = text_of(answer)
    assert all(f"{figure}{'' if unit == '吨' else ' '}{unit}" in text for figure in figures), text
    assert len(sources(answer)) == 2


def test_a_search_says_kind_and_language_and_searches_what_it_was_given(client: Client) -> None:
    reply = client("POST", "/v1/search", {"kb": "kb", "query": "年假和病假有什麼區別？"}).json
    assert reply["query"] == {
        "language": "zh-Hant",
        "kind": "comparison",
        "question": "年假和病假有什麼區別？",
    }


def test_equal_follow_ups_hit_the_retrieval_cache(client: Client) -> None:
    turns = ("年假有多少天？", "12天 [1]。", "可以结转吗？")
    ask(client, *turns)
    assert ask(client, *turns)["forebay"]["cache"]["retrieval"] == "hit"
    # The rewritten question is the key, however one came to it.
    assert ask(client, "年假可以结转吗？")["forebay"]["cache"]["retrieval"] == "hit"
