"""Questions where vectors decide: several senses, the other language, what no document answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.support import ROOT, Client, served, until
from tests.integration.test_questions import ask, sources, text_of


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("meaning")
    handbook = ROOT / "examples" / "handbook"
    paths = ", ".join(f'"{handbook / name}"' for name in ("it", "life", "hr"))
    config = f'[knowledge.kb]\npaths = [{paths}]\n\n[query]\nambiguity = "ask"\n'
    with served(folder, config) as server:

        def embedded() -> bool:
            info = server.ask("GET", "/v1/kb/kb").json
            return bool(info["chunks"]) and info["embedded_chunks"] == info["chunks"]

        until(embedded, within_s=90.0, every_s=0.2)
        yield server.ask


def test_a_word_of_two_senses_is_asked_back_and_the_reply_is_understood(client: Client) -> None:
    back = ask(client, "苹果")
    senses = back["forebay"]["query"]["senses"]
    assert len(senses) == 2 and back["forebay"]["refused"]
    assert sources(back) == {"苹果设备管理.md", "食堂.html"}
    answer = ask(client, "苹果", text_of(back), "水果")
    assert answer["forebay"]["query"]["question"] == "苹果 水果"
    assert "周一" in text_of(answer) and sources(answer) == {"食堂.html"}


def test_a_question_that_says_which_is_answered(client: Client) -> None:
    answer = ask(client, "苹果设备丢失后要在几小时内报告？")
    assert "4小时" in text_of(answer)
    assert "senses" not in answer["forebay"]["query"]


@pytest.mark.parametrize(
    ("turns", "source", "says"),
    [
        (("How are apples handed out at lunch?", "-", "苹果存放不超过几天？"), "食堂.html", "9天"),
        (
            ("苹果设备有哪些规定？", "-", "蘋果設備丟失後要在幾小時內報告？"),
            "苹果设备管理.md",
            "4小时",
        ),
    ],
)
def test_the_language_may_change_in_a_conversation(
    client: Client, turns: tuple[str, ...], source: str, says: str
) -> None:
    answer = ask(client, *turns)
    assert source in sources(answer) and says in text_of(answer)


@pytest.mark.parametrize(
    "question", ["Book me a flight to Rome next Friday", "帮我订下周五去罗马的机票"]
)
def test_the_classifier_tells_what_no_document_answers(client: Client, question: str) -> None:
    answer = ask(client, question)
    assert answer["forebay"]["refused"] and answer["citations"] == []
    assert answer["forebay"]["query"]["kind"] == "out_of_scope"
