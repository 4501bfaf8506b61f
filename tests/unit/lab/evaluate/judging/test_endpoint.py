"""An endpoint that fails, hangs or talks nonsense costs a bounded time and a sentence."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from forebay.kernel.errors import DeadlineExceeded, EngineError, EngineRefused, Unavailable
from forebay.kernel.stages import Message
from forebay.lab.evaluate.judging.endpoint import ChatEndpoint, JudgeEndpoint, open_endpoint
from forebay.lab.evaluate.judging.forms import order_form
from tests.unit.lab.evaluate.judging.judges import completion
from tests.unit.lab.evaluate.scripted import Script, Scripted

ASK = (Message("system", "judge"), Message("user", "裁判"))


@asynccontextmanager
async def asking(url: str, **how: Any) -> AsyncIterator[ChatEndpoint]:
    told = {"model": "m", "backoff_s": 0.001, "timeout_s": 5.0, **how}
    async with open_endpoint(JudgeEndpoint(url=url, **told), random.Random(1)) as chat:
        yield chat


@asynccontextmanager
async def scripted(script: Script, **how: Any) -> AsyncIterator[tuple[Scripted, ChatEndpoint]]:
    async with Scripted(script) as server, asking(f"{server.url}/v1/", **how) as chat:
        yield server, chat


async def test_a_chat_is_completed() -> None:
    async with scripted(lambda *_: completion("好"), api_key="k") as (server, chat):
        assert await chat.complete(ASK) == "好"
    (one,) = server.requests
    assert one.raw_path == "/v1/chat/completions" and one.headers["authorization"] == "Bearer k"
    assert one.body["model"] == "m" and one.body["temperature"] == 0
    assert one.body["messages"][1] == {"role": "user", "content": "裁判"}
    assert (chat.costs.calls, chat.costs.prompt_tokens, chat.costs.completion_tokens) == (
        1,
        100,
        10,
    )


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_failures_are_tried_again(status: int) -> None:
    replies = iter([web.Response(status=status), web.Response(status=status), completion("yes")])
    async with Scripted(lambda *_: next(replies)) as server, asking(server.url) as chat:
        assert await chat.complete(ASK) == "yes"
    assert chat.costs.calls == 3 and chat.costs.retries == 2


async def test_a_bounded_number_of_times() -> None:
    async with scripted(lambda *_: web.Response(status=503), retries=3) as (server, chat):
        with pytest.raises(EngineRefused, match="answers 503"):
            await chat.complete(ASK)
    assert len(server.requests) == 4


async def test_a_refusal_that_will_not_pass_is_not_tried_again() -> None:
    async with scripted(lambda *_: web.Response(status=401, text="no key")) as (server, chat):
        with pytest.raises(EngineRefused, match="401: no key"):
            await chat.complete(ASK)
    assert len(server.requests) == 1


async def test_one_that_hangs_is_left() -> None:
    hung = {"timeout_s": 0.05, "retries": 1}
    async with scripted(lambda *_: asyncio.Event().wait(), **hung) as (server, chat):
        with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s"):
            await chat.complete(ASK)
    assert len(server.requests) == 2


async def test_nobody_there(free_port: int) -> None:
    async with asking(f"http://127.0.0.1:{free_port}", retries=1) as chat:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await chat.complete(ASK)
    assert chat.costs.calls == 2


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("<html>", "does not speak the protocol"),
        ('{"choices": []}', "no choice"),
        ('{"choices": 3}', "does not speak the protocol"),
        ("\ufffd" * 3_000_000, "too long"),
    ],
)
async def test_nonsense_is_told_as_such(reply: str, told: str) -> None:
    async with Scripted(lambda *_: web.Response(text=reply)) as server, asking(server.url) as chat:
        with pytest.raises(EngineError, match=told):
            await chat.complete(ASK)


async def test_no_more_at_a_time_than_allowed() -> None:
    async def slow(*_: object) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return completion("ok")

    async with Scripted(slow) as server, asking(server.url, at_once=3) as chat:
        said = await asyncio.gather(*(chat.complete(ASK) for _ in range(12)))
    assert said == ["ok"] * 12 and server.most == 3


def formless(status: int) -> Script:
    """One that refuses structured output."""

    def script(_path: str, body: dict[str, Any]) -> Any:
        if "response_format" in body:
            return web.Response(status=status, text="whatever it says")
        return completion("plain")

    return script


async def test_a_form_is_asked_for() -> None:
    async with scripted(lambda *_: completion("ok")) as (server, chat):
        assert await chat.complete(ASK, order_form(2)) == "ok"
    (one,) = server.requests
    told = one.body["response_format"]
    assert told["type"] == "json_schema" and told["json_schema"]["strict"] is True
    assert told["json_schema"]["schema"]["properties"]["order"]["maxItems"] == 2
    assert chat.costs.structured


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_who_refuses_forms_is_asked_without_and_sent_no_other(status: int) -> None:
    async with scripted(formless(status)) as (server, chat):
        assert [await chat.complete(ASK, order_form(2)) for _ in range(3)] == ["plain"] * 3
    assert ["response_format" in one.body for one in server.requests] == [True] + [False] * 3
    assert not chat.costs.structured and chat.costs.retries == 0


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_request_that_is_refused_either_way_says_nothing_of_forms(status: int) -> None:
    replies = iter([web.Response(status=status), web.Response(status=status), completion("yes")])
    async with scripted(lambda *_: next(replies)) as (server, chat):
        with pytest.raises(EngineRefused, match=str(status)):
            await chat.complete(ASK, order_form(2))
        assert await chat.complete(ASK, order_form(2)) == "yes"
    assert "response_format" in server.requests[-1].body and chat.costs.structured


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_other_failures_are_no_refusal_of_a_form(status: int) -> None:
    async with scripted(formless(status), retries=1) as (server, chat):
        with pytest.raises(EngineRefused, match=str(status)):
            await chat.complete(ASK, order_form(2))
    assert all("response_format" in one.body for one in server.requests) and chat.costs.structured
