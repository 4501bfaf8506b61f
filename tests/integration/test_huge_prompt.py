"""A prompt of two megabytes without a space, beside a hundred light calls a second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from tests.integration.support import LEXICAL, served

RATE_PER_S, SECONDS = 100, 8
MOVED_S, HEALTH_S = 0.020, 0.050
ATTEMPTS = 4
"""What a busy machine adds, it does not add each time; a huge prompt that holds the loop does."""
DOCUMENT = "# Dam\n\nThe spillway is 120 metres long.\n"


class Load:
    """Light calls, looks at /healthz and huge prompts; seconds each took."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.light: list[float] = []
        self.health: list[float] = []
        self.huge: list[int] = []

    async def timed(self, method: str, path: str, data: bytes | None) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        async with self._session.request(method, path, data=data) as answer:
            await answer.read()
            return answer.status, loop.time() - began_at

    async def call(self) -> None:
        status, took_s = await self.timed("POST", "/v1/chat/completions", question("spillway?"))
        assert status == 200
        self.light.append(took_s)

    async def look(self) -> None:
        status, took_s = await self.timed("GET", "/healthz", None)
        assert status == 200
        self.health.append(took_s)

    async def huge_prompt(self, data: bytes) -> None:
        status, _ = await self.timed("POST", "/v1/chat/completions", data)
        self.huge.append(status)


def question(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "forebay/kb", "messages": messages}).encode()


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


async def offer(port: int, huge: bytes | None) -> Load:
    base = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base, connector=connector) as session:
        load = Load(session)
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(RATE_PER_S * SECONDS):
                await asyncio.sleep(started_at + number / RATE_PER_S - loop.time())
                group.create_task(load.call())
                if number % 5 == 0:
                    group.create_task(load.look())
                if huge is not None and number % (2 * RATE_PER_S) == RATE_PER_S:
                    group.create_task(load.huge_prompt(huge))
        return load


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["x", "水"])
async def test_light_calls_and_health_hardly_notice_it(tmp_path: Path, letter: str) -> None:
    huge = question(letter * (2_000_000 // len(letter.encode())))
    with served(tmp_path, LEXICAL) as server:
        server.ask.put("kb", "dam.md", DOCUMENT)
        await offer(server.port, None)  # what is done for the first time
        for _ in range(ATTEMPTS):
            alone, beside = await offer(server.port, None), await offer(server.port, huge)
            assert len(beside.huge) == SECONDS // 2
            moved_s = p99(beside.light) - p99(alone.light)
            if moved_s < MOVED_S and max(beside.health) < HEALTH_S:
                break
    assert moved_s < MOVED_S, (p99(alone.light), p99(beside.light))
    assert max(beside.health) < HEALTH_S, sorted(beside.health)[-5:]
