"""Admission in a whole server: quotas, waiting, cuts and hung engines, over HTTP."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.gateway.identity import hash_key
from forebay.generation.tokenizing import MESSAGE_TOKENS
from forebay.testing.engine_server import EngineServer
from forebay.testing.tiny_model import write_tiny_model
from tests.integration.support import LEXICAL, Served

KEY = "fb-test-key"
HEADERS = {"authorization": f"Bearer {KEY}"}
MESSAGES = [{"role": "user", "content": "How long is the spillway?"}]
CONFIG = """
[generation]
backend = "openai"
[generation.engine]
first_token_timeout_s = 60.0
warm_timeout_s = {warm_s}
[[generation.pools]]
name = "short"
base_urls = [{urls}]
model = "sim"
tokenizer = "{tokenizer}"
[admission]
passage_tokens = 20
prompt_tokens = 40
[admission.pools.short.gate.limit]
initial = {slots}
most = {slots}
[admission.pools.short.gate.queue]
max_waiting = 1
[admission.pools.short.gate.ejection]
stalled_s = {stalled_s}
rest_s = 30.0
[[tenants]]
name = "shop"
knowledge = "*"
plan = {{ tokens_per_minute = {per_minute}, burst_tokens = {burst} }}
keys = [{{ hash = "{hash}", admin = true, operator = true }}]
[knowledge.kb]
paths = ["docs"]
"""


class System:
    """A served folder in front of engines of this test."""

    def __init__(self, server: Served, engines: list[EngineServer]) -> None:
        self.server = server
        self.engines = engines
        self.client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}", headers=HEADERS, timeout=60
        )

    def body(self, **more: Any) -> dict[str, Any]:
        return {"model": "forebay/kb", "messages": MESSAGES, "max_tokens": 20, **more}

    async def ask(self, **more: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=self.body(**more))

    async def ask_about(self, number: int) -> httpx.Response:
        """A conversation of its own: equal ones go to the same engine."""
        question = f"How long is spillway {number}?"
        return await self.ask(messages=[{"role": "user", "content": question}])

    async def figure(self, name: str) -> float:
        text = (await self.client.get("/metrics")).text
        values = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
        return sum(map(float, values))

    async def wait_for(self, name: str, value: float) -> None:
        async with asyncio.timeout(30):
            while await self.figure(name) != value:
                await asyncio.sleep(0.02)


Open = Any


@pytest.fixture
async def open_system(tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def opened(
            engines: int = 1, burst: int = 100_000, slots: int = 4, **more: Any
        ) -> System:
            running = [await stack.enter_async_context(EngineServer()) for _ in range(engines)]
            (tmp_path / "docs").mkdir()
            text = "# Dam\n\nThe spillway is 120 metres long.\n"
            (tmp_path / "docs" / "dam.md").write_text(text, encoding="utf-8")
            urls = ", ".join(f'"{engine.base_url}"' for engine in running)
            config = CONFIG.format(
                urls=urls,
                slots=slots,
                burst=burst,
                tokenizer=more.get("tokenizer", ""),
                warm_s=more.get("warm_s", 0),
                per_minute=more.get("per_minute", 60_000),
                # An engine that is held back is given up for its silence where a test says so.
                stalled_s=more.get("stalled_s", 60.0),
                hash=hash_key(KEY),
            )
            server = Served(tmp_path, LEXICAL + config)
            stack.callback(server.stop)
            await asyncio.to_thread(server.wait_ready)
            system = System(server, running)
            stack.push_async_callback(system.client.aclose)
            return system

        yield opened


async def test_quotas_are_told_and_kept(open_system: Open) -> None:
    # What flows in while a busy machine takes its time is not worth a request.
    system = await open_system(burst=300, per_minute=60)
    first = await system.ask()
    assert first.status_code == 200, first.text
    assert first.headers["x-ratelimit-limit-tokens"] == "300"
    assert int(first.headers["x-ratelimit-remaining-tokens"]) < 300
    assert first.headers["x-ratelimit-reset-tokens"].endswith(("ms", "s"))
    big = await system.ask(messages=[{"role": "user", "content": "word " * 2000}])
    assert big.status_code == 400
    assert big.json()["error"]["code"] == "quota_too_small"
    system.engines[0].gate.clear()
    asked = [asyncio.create_task(system.ask()) for _ in range(3)]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop().result()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "tenant" in refused.json()["error"]["message"]
    system.engines[0].gate.set()
    statuses = [answer.status_code for answer in await asyncio.gather(*asked)]
    assert statuses.count(200) >= 1
    assert await system.figure('forebay_shed_total{reason="rate_limit_exceeded"}') >= 1


async def test_engines_are_warm_when_ready_and_prompts_counted_by_their_tokenizer(
    open_system: Open, tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path / "model")  # a token is a character, or a run of line ends
    system = await open_system(tokenizer=str(model / "tokenizer.json"), warm_s=5)
    [engine] = system.engines
    [warming] = engine.requests
    assert warming["max_tokens"] == 1
    assert await system.figure("forebay_requests_total{") == 0
    engine.usage = False
    answer = await system.ask()
    _, asked = engine.requests
    characters = sum(
        len(re.sub("\n+", "\n", one["content"])) + MESSAGE_TOKENS for one in asked["messages"]
    )
    assert answer.json()["usage"]["prompt_tokens"] == characters


async def test_what_cannot_wait_is_refused_and_a_cut_frees_its_place(open_system: Open) -> None:
    system = await open_system(slots=1)
    engine = system.engines[0]
    engine.gate.clear()
    running = asyncio.create_task(system.ask(stream=True))
    await system.wait_for("forebay_pool_in_flight{", 1)
    waiting = asyncio.create_task(system.ask())
    await system.wait_for("forebay_pool_waiting{", 1)
    refused = await system.ask()
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "overloaded_queue_full"
    assert int(refused.headers["retry-after"]) >= 1
    waiting.cancel()
    await system.wait_for("forebay_pool_waiting{", 0)
    running.cancel()
    async with asyncio.timeout(20):
        await engine.gone.wait()
    await system.wait_for("forebay_pool_in_flight{", 0)
    engine.gate.set()
    assert (await system.ask()).status_code == 200
    assert await system.figure("forebay_pool_in_flight_tokens{") == 0


async def test_one_hung_engine_of_three_is_found_and_left_alone(open_system: Open) -> None:
    system = await open_system(engines=3, stalled_s=0.5)
    hung = system.engines[1]
    hung.gate.clear()
    answers = await asyncio.gather(*(system.ask_about(number) for number in range(9)))
    # What hung before it was noticed went on to another engine.
    assert {answer.status_code for answer in answers} == {200}
    await system.wait_for("forebay_pool_ejected{", 1)
    seen = len(hung.requests)
    assert seen >= 1
    for number in range(20, 32):
        assert (await system.ask_about(number)).status_code == 200
    assert len(hung.requests) == seen, "nobody waits for it any more"


async def test_quotas_change_at_run_time_and_survive_a_restart(open_system: Open) -> None:
    system = await open_system()
    assert (await system.ask()).status_code == 200
    change = {"rules": [{"dimension": "tenant", "name": "shop", "deny": True}]}
    answer = await system.client.put("/v1/admission", json=change)
    assert answer.status_code == 200, answer.text
    assert answer.json()["overrides"]["rules"] == answer.json()["rules"]
    assert (await system.ask()).status_code == 403
    system.server.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(system.server.process.wait, 30)
    await asyncio.to_thread(system.server.restart)
    assert (await system.ask()).status_code == 403
    wrong: object
    for wrong in ({"windows": [{"start": "9", "end": "10:00", "factor": 1}]}, {"load": 1}, []):
        answer = await system.client.put("/v1/admission", json=wrong)
        assert answer.status_code == 400, answer.text
    assert (await system.client.delete("/v1/admission")).status_code == 200
    assert (await system.ask()).status_code == 200
