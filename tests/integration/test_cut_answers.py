"""Over HTTP: an answer that a bound of the service cut says so in its last sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.pipeline.cut_notice import NOTICES
from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Gateway, engine_config, gateway

ENGLISH = ("The spillway ", "is 120 ", "metres long ", "[1].", " It ", "was ", "built ", "in 1950.")
CHINESE = ("溢洪道", "长", "120 米", " [1]。", "它", "建于", "1950", "年。")
ASKED = {"en": "How long is the spillway?", "zh": "溢洪道有多长？"}
CACHED = '[[cache.answers.rules]]\nname = "all"\nlife_s = 60\n'


@pytest.fixture
async def engine() -> AsyncIterator[EngineServer]:
    async with EngineServer() as found:
        yield found


async def ask(made: Gateway, question: str, **more: Any) -> Any:
    answer = await made.ask(messages=[{"role": "user", "content": question}], **more)
    assert answer.status == 200, answer.body
    return answer


def streamed(body: bytes) -> tuple[str, dict[str, Any], str]:
    """The text of a stream, its last chunk with content, and why it ended."""
    events = [
        json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")
    ]
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in events)
    last = next(one for one in events if "forebay" in one)
    return text, last, events[-1]["choices"][0]["finish_reason"]


@pytest.mark.parametrize(("language", "pieces"), [("en", ENGLISH), ("zh", CHINESE)])
async def test_it_says_so_streamed_or_whole(
    tmp_path: Path, engine: EngineServer, language: str, pieces: tuple[str, ...]
) -> None:
    engine.pieces = pieces
    documents = tmp_path / "docs"
    documents.mkdir()
    (documents / "zh.md").write_text("# 水库\n\n溢洪道长 120 米。\n", encoding="utf-8")
    config = engine_config(engine.base_url, max_input_tokens=4000, max_output_tokens=6)
    async with gateway(tmp_path, config) as made:
        whole = (await ask(made, ASKED[language])).json
        text = whole["choices"][0]["message"]["content"]
        assert text == "".join(pieces[:6]) + "…\n\n" + NOTICES[language]
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["usage"]["completion_tokens"] == 6
        assert [one["rung"] for one in whole["forebay"]["degradations"]] == ["truncated"]
        assert [one["index"] for one in whole["citations"]] == [1]

        told, last, reason = streamed((await ask(made, ASKED[language], stream=True)).body)
        assert told == text
        assert reason == "length"
        assert last["citations"] == whole["citations"]


async def test_the_clients_own_bound_and_forms_are_left_alone(
    tmp_path: Path, engine: EngineServer
) -> None:
    engine.pieces = ENGLISH
    config = engine_config(engine.base_url, max_input_tokens=4000, max_output_tokens=6)
    async with gateway(tmp_path, config) as made:
        own = (await ask(made, ASKED["en"], max_tokens=6)).json
        assert own["choices"][0]["finish_reason"] == "length"
        assert NOTICES["en"] not in own["choices"][0]["message"]["content"]
        formed = await ask(made, ASKED["en"], response_format={"type": "json_object"})
        assert formed.json["choices"][0]["finish_reason"] == "length"
        assert NOTICES["en"] not in formed.json["choices"][0]["message"]["content"]
        engine.pieces = ("Short.",)
        short = (await ask(made, ASKED["en"])).json
        assert short["choices"][0]["message"]["content"] == "Short."


async def test_a_cut_answer_is_not_kept(tmp_path: Path, engine: EngineServer) -> None:
    engine.pieces = ENGLISH
    config = engine_config(engine.base_url, max_input_tokens=4000, max_output_tokens=6)
    async with gateway(tmp_path, config + CACHED) as made:
        engine.requests.clear()
        for _ in range(2):
            answer = await ask(made, ASKED["en"])
            assert "answer=miss" in answer.headers["x-forebay-cache"]
            assert NOTICES["en"] in answer.json["choices"][0]["message"]["content"]
        assert len(engine.requests) == 2
