"""A whole server whose engines fail: quotations or a smaller model answer, and say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Answer, Gateway, gateway, until
from tests.stopwatch import watching

DEADLINE_MS = 3000
HEADERS = {"x-forebay-deadline-ms": str(DEADLINE_MS)}
MORE = """
[generation.engine]
warm_timeout_s = 0
connect_timeout_s = 0.5
[generation.ladder]
{ladder}
[admission.pools.big]
look_s = 0
[admission.pools.big.gate.shed]
max_wait_s = 0.5
[admission.limits.tenant]
rate_per_s = 0.001
burst = 1000000
[[cache.answers.rules]]
name = "all"
"""


@asynccontextmanager
async def line(
    folder: Path, ladder: str = "", *, small: bool = False
) -> AsyncIterator[tuple[Gateway, list[EngineServer]]]:
    """A pool of one engine, and a small one beside it."""
    async with AsyncExitStack() as stack:
        names = ("big", "small") if small else ("big",)
        engines = [await stack.enter_async_context(EngineServer()) for _ in names]
        config = '[generation]\nbackend = "openai"\n'
        for name, engine in zip(names, engines, strict=True):
            config += f'[[generation.pools]]\nname = "{name}"\nmodel = "{name}-model"\n'
            config += f'base_urls = ["{engine.base_url}"]\n'
        if small:
            ladder = 'small_pool = "small"\n' + ladder
        made = await stack.enter_async_context(gateway(folder, config + MORE.format(ladder=ladder)))
        yield made, engines


async def ask(made: Gateway, **more: Any) -> Answer:
    async with watching() as watch:
        answer = await made.ask(headers=dict(HEADERS), **more)
        assert watch.now() < DEADLINE_MS / 1000 + 0.2
    return answer


def quoted(answer: Answer) -> str:
    """Why an answer is made of quotations, after looking that it is one."""
    assert answer.status == 200, answer.body
    body = answer.json
    assert "120 metres" in body["choices"][0]["message"]["content"]
    assert body["citations"][0]["document_id"].endswith("dam.md")
    told = body["forebay"]
    assert told["model"] == "extractive" and told["rung"] == "bm25"
    [step] = told["degradations"]
    assert (step["stage"], step["rung"]) == ("generation", "extractive")
    assert answer.headers["x-forebay-degraded"] == f"generation=extractive ({step['reason']})"
    reason: str = step["reason"]
    return reason


async def test_engines_that_fail_are_left_for_quotations_and_come_back(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        whole = await ask(made)
        assert whole.json["forebay"]["model"] == "big-model"
        assert not whole.json["forebay"]["degradations"]
        engine.status = 500
        asked = len(engine.requests)
        reasons = [quoted(await ask(made, temperature=0.1 + n / 100)) for n in range(12)]
        assert reasons[0] == "engine_error"
        assert set(reasons) <= {"engine_error", "engines_out"}
        assert "engines_out" in reasons, "an engine that is known to be out is not asked"
        assert len(engine.requests) - asked < 12
        assert (await made.figures())[
            'forebay_degraded_total{rung="extractive",stage="generation"}'
        ] == 12
        await made.nothing_held()
        engine.status = 200

        async def back() -> bool:
            return bool((await ask(made, seed=1)).json["forebay"]["model"] == "big-model")

        async with asyncio.timeout(40):
            while not await back():
                await asyncio.sleep(0.2)


@pytest.mark.parametrize("question", ["備用泵的轉速是多少？", "备用泵的转速是多少？"])
async def test_quotations_are_found_in_either_script(tmp_path: Path, question: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "泵.md").write_text("# 备用泵\n\n备用泵的转速为每分钟1450转。\n", "utf-8")
    async with line(tmp_path) as (made, [engine]):
        engine.status = 500
        messages = [{"role": "user", "content": question}]
        answer = (await ask(made, messages=messages, max_tokens=60)).json
        assert answer["forebay"]["model"] == "extractive"
        assert not answer["forebay"]["refused"]
        assert "备用泵的转速为每分钟1450转。 [1]" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("said", ["Hello!", "你好"])
async def test_a_fixed_sentence_is_kept_for_nobody(tmp_path: Path, said: str) -> None:
    async with line(tmp_path) as (made, [engine]):
        for _ in range(2):
            answer = await ask(made, messages=[{"role": "user", "content": said}])
            assert "answer=miss" in answer.headers["x-forebay-cache"]
            assert answer.json["forebay"]["model"] == "rules"
            assert answer.json["forebay"]["refused"] is False and not answer.json["citations"]
        assert not engine.requests


async def test_a_hung_engine_is_left_in_time(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        engine.gate.clear()
        assert quoted(await ask(made)) == "first_token_timeout"
        await until(lambda: not engine.active)
        await made.nothing_held()


@pytest.mark.parametrize("small", [False, True])
async def test_a_hung_engine_that_is_alone_is_left_when_it_shows_no_life(
    tmp_path: Path, small: bool
) -> None:
    """Not as late as its time-out for first tokens, or the deadline, would let it."""
    ladder = "\n[admission.pools.big.gate.ejection]\nstalled_s = 0.4"
    async with line(tmp_path, ladder, small=small) as (made, engines):
        engines[0].gate.clear()
        async with watching() as watch:
            answer = await made.ask(headers={"x-forebay-deadline-ms": "30000"})
            assert watch.now() < 10.0
        model = "small-model" if small else "extractive"
        assert answer.json["forebay"]["model"] == model
        [step] = answer.json["forebay"]["degradations"]
        assert step["reason"] == "engine_error"
        await until(lambda: not engines[0].active)
        await made.nothing_held()


async def test_engines_that_are_not_there(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        await engine.__aexit__(None, None, None)
        assert quoted(await ask(made)) == "engine_error"


async def test_a_stream_is_flagged_with_its_first_token(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        engine.status = 503
        answer = await ask(made, stream=True)
        assert answer.status == 200
        assert answer.headers["x-forebay-degraded"].startswith("generation=extractive (")
        events = [
            json.loads(one.removeprefix(b"data: "))
            for one in answer.body.split(b"\n\n")
            if one.startswith(b"data: {")
        ]
        told = next(event["forebay"] for event in events if "forebay" in event)
        assert told["model"] == "extractive"
        assert b"[DONE]" in answer.body


async def test_a_stream_that_has_begun_is_never_switched(tmp_path: Path) -> None:
    async with line(tmp_path, small=True) as (made, [big, small]):
        big.break_after = 1
        answer = await ask(made, stream=True)
        assert answer.status == 200
        assert b'"content":"Hell' in answer.body and b'"error"' in answer.body
        assert b"120 metres" not in answer.body and b"[DONE]" not in answer.body
        assert not small.requests
        await made.nothing_held()


async def test_a_smaller_model_comes_before_quotations(tmp_path: Path) -> None:
    async with line(tmp_path, small=True) as (made, [big, small]):
        assert (await ask(made)).json["forebay"]["model"] == "big-model"
        assert not small.requests, "it is kept for when others fail"
        before = made.level()
        big.status = 500
        answer = await ask(made, seed=2)
        told = answer.json["forebay"]
        assert told["model"] == "small-model"
        assert [(s["rung"], s["reason"]) for s in told["degradations"]] == [
            ("small", "engine_error")
        ]
        usage = answer.json["usage"]["total_tokens"]
        assert before - made.level() == pytest.approx(usage, abs=usage / 2), "charged once"
        small.status = 500
        assert quoted(await ask(made, seed=3)) == "engine_error"
        await made.nothing_held()


async def test_what_is_degraded_is_kept_for_nobody(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        engine.status = 500
        for _ in range(2):
            answer = await ask(made, seed=4)
            quoted(answer)
            assert "answer=miss" in answer.headers["x-forebay-cache"]


async def test_a_request_that_the_engine_refuses_is_its_own(tmp_path: Path) -> None:
    async with line(tmp_path) as (made, [engine]):
        engine.status = 400
        assert (await ask(made)).status == 400
        engine.status = 401
        assert quoted(await ask(made, seed=5)) == "engine_refused"


@pytest.mark.parametrize("stream", [False, True])
async def test_who_wants_json_is_never_given_quotations(tmp_path: Path, stream: bool) -> None:
    form = {"response_format": {"type": "json_object"}, "stream": stream}
    async with line(tmp_path) as (made, [engine]):
        assert (await ask(made, **form)).status == 200
        assert engine.requests[-1]["response_format"] == {"type": "json_object"}
        engine.status = 500
        found = [await ask(made, **form, seed=n) for n in range(8)]
        assert {answer.status for answer in found} == {502, 503}
        assert found[-1].json["error"]["code"] == "overloaded_engines_out"
        assert int(found[-1].headers["retry-after"]) >= 1
        told = await ask(made, response_format={"type": "text"})
        assert quoted(told) in ("engine_error", "engines_out")
        await made.nothing_held()


async def test_who_wants_json_is_answered_by_the_small_model(tmp_path: Path) -> None:
    async with line(tmp_path, small=True) as (made, [big, small]):
        big.status = 500
        for seed in range(6):
            answer = await ask(made, response_format={"type": "json_object"}, seed=seed)
            assert answer.json["forebay"]["model"] == "small-model"
        small.status = 500
        answer = await ask(made, response_format={"type": "json_object"}, seed=9)
        assert answer.status in (502, 503)
        await made.nothing_held()


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with line(tmp_path, "enabled = false") as (made, [engine]):
        engine.status = 500
        assert (await ask(made)).status == 502


async def test_clients_that_leave_on_any_rung_hold_nothing(tmp_path: Path) -> None:
    async with line(tmp_path, small=True) as (made, engines):
        for engine in engines:
            engine.gate.clear()
        for wait_s in (0.05, 0.3, 0.9):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await made.ask(headers={"x-forebay-deadline-ms": "1500"}, seed=int(wait_s * 99))
            await made.nothing_held(1.0)
