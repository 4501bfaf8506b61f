"""A server is asked over HTTP; what it does wrong is told in a sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from forebay.kernel.errors import EngineError, EngineRefused, NotFound, Unavailable
from forebay.lab.evaluate.datasets import Document, Question
from forebay.lab.evaluate.remote import Endpoint, RemoteTarget, open_remote
from tests.unit.lab.evaluate.scripted import Scripted

QUESTION = Question("1", "水闸几点打开？", "zh", groups=("crew",))
CITATION = {"index": 1, "document_id": "水闸", "text": "…八点…", "score": 0.5, "title": ""}


def answers(path: str) -> dict[str, Any]:
    if path.endswith("/search"):
        return {"hits": [{"document_id": "水闸", "text": "…", "score": 0.5}], "rung": "bm25"}
    return {
        "choices": [{"message": {"role": "assistant", "content": "八点[1]"}}],
        "citations": [CITATION],
        "forebay": {"refused": False, "rung": "bm25"},
    }


@asynccontextmanager
async def asking(server: Scripted) -> AsyncIterator[RemoteTarget]:
    async with open_remote(Endpoint(url=server.url, kb="boats")) as target:
        yield target


async def test_a_server_is_searched_and_asked() -> None:
    async with Scripted(lambda path, _: answers(path)) as server:
        endpoint = Endpoint(url=f"{server.url}/v1", kb="boats", api_key="k")
        async with open_remote(endpoint) as target:
            found = await target.search(QUESTION, 7)
            said = await target.answer(QUESTION)
    assert [hit.document_id for hit in found.hits] == ["水闸"] and found.rung == "bm25"
    assert said.text == "八点[1]" and said.citations[0].text == "…八点…" and not said.refused
    search, chat = server.requests
    assert search.body == {"query": QUESTION.text, "top_k": 7, "kb": "boats"}
    assert chat.body["model"] == "forebay/boats"
    for one in (search, chat):
        assert one.headers["authorization"] == "Bearer k"
        assert one.headers["x-forebay-groups"] == "crew"
        assert one.headers["x-forebay-no-cache"] == "1"


async def test_a_document_is_put_under_its_own_id() -> None:
    async with Scripted(lambda *_: {"kb_version": 1}) as server, asking(server) as target:
        await target.put(Document("港/水闸?1", "正文", "标题"))
    (one,) = server.requests
    assert one.method == "PUT" and one.raw_path.startswith("/v1/kb/boats/documents/%E6%B8%AF%2F")
    assert one.raw_path.endswith("%3F1?title=%E6%A0%87%E9%A2%98")


@pytest.mark.parametrize(
    ("reply", "error", "told"),
    [
        (web.json_response({"error": {"message": "no"}}, status=404), EngineRefused, "404: no$"),
        (web.Response(text="<p>no", status=502), EngineRefused, "502: <p>no$"),
        (web.Response(text="<html>"), EngineError, "cannot be read"),
        (web.json_response({"hits": 3}), EngineError, "cannot be read"),
    ],
)
async def test_what_a_server_does_wrong_is_told(
    reply: web.Response, error: type[Exception], told: str
) -> None:
    async with Scripted(lambda *_: reply) as server, asking(server) as target:
        with pytest.raises(error, match=told):
            await target.search(QUESTION, 5)


async def test_an_answer_without_a_choice_is_none() -> None:
    async with Scripted(lambda *_: {"choices": []}) as server, asking(server) as target:
        with pytest.raises(EngineError, match="no choice"):
            await target.answer(QUESTION)


async def test_nobody_there(free_port: int) -> None:
    async with open_remote(Endpoint(url=f"http://127.0.0.1:{free_port}", kb="boats")) as target:
        for asked in (target.search(QUESTION, 5), target.reach()):
            with pytest.raises(Unavailable, match=r"nothing answers at .*: Connection refused\.$"):
                await asked


async def test_a_server_is_reached_whatever_it_answers() -> None:
    async with Scripted(lambda *_: web.Response(status=503)) as server, asking(server) as target:
        await target.reach()
    [asked] = server.requests
    assert (asked.method, asked.raw_path) == ("GET", "/healthz")


def answering(**by_path: int) -> Scripted:
    """A server that answers these statuses to paths by their last part."""

    def status(path: str, _: object) -> web.Response:
        return web.json_response({}, status=by_path.get(path.rsplit("/", 1)[-1], 200))

    return Scripted(status)


async def test_a_knowledge_base_that_is_not_there_is_told_before_any_question() -> None:
    async with answering(boats=404) as server, asking(server) as target:
        with pytest.raises(NotFound, match=r"no knowledge base 'boats' at http"):
            await target.confirm_kb()
    assert [one.raw_path for one in server.requests] == ["/v1/kb/boats", "/v1/kb"]


@pytest.mark.parametrize(
    "statuses", [{}, {"boats": 404, "kb": 404}, {"boats": 405}, {"boats": 500}]
)
async def test_a_server_that_does_not_list_them_is_asked_all_the_same(
    statuses: dict[str, int],
) -> None:
    async with answering(**statuses) as server, asking(server) as target:
        await target.confirm_kb()


async def test_a_key_that_is_not_taken_is_told_before_any_question() -> None:
    async with answering(boats=401) as server, asking(server) as target:
        with pytest.raises(EngineRefused, match="401"):
            await target.confirm_kb()
