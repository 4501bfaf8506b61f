"""Who may use only a short pool is answered from it, whatever longer pools others have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.gateway.identity import hash_key
from forebay.ingest import EstimatedTokenCounter
from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Answer, Gateway, gateway

NARROW = 900
CONFIG = """
[generation]
backend = "openai"
[generation.engine]
warm_timeout_s = 0
[[generation.pools]]
name = "short"
base_urls = ["{short}"]
model = "sim"
max_input_tokens = 900
max_output_tokens = 64
[[generation.pools]]
name = "long"
base_urls = ["{long}"]
model = "sim"
max_input_tokens = 6000
max_output_tokens = 64
[admission.pools.short]
[admission.pools.long]
{kept}
"""
TENANTS = """
[[tenants]]
name = "bank"
knowledge = "*"
keys = [{{ hash = "{bank}", priority = "high" }}]
[[tenants]]
name = "shop"
knowledge = "*"
keys = [{{ hash = "{shop}" }}]
"""
BANK, SHOP = "fb-bank", "fb-shop"
QUESTIONS = ("How long is the spillway?", "溢洪道有多长？")


class Place:
    """A gateway, and what its two pools were asked."""

    def __init__(self, made: Gateway, short: EngineServer, long: EngineServer) -> None:
        self.made, self.short, self.long = made, short, long

    async def ask(self, key: str, *turns: str) -> Answer:
        roles = ("user", "assistant")
        messages = [
            {"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)
        ]
        return await self.made.ask(messages=messages, headers={"authorization": f"Bearer {key}"})


@pytest.fixture(params=['tenants = ["bank"]', 'priorities = ["high"]'])
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    documents = tmp_path / "docs"
    documents.mkdir()
    for number in range(6):
        filling = f"The spillway of dam {number} is long. 溢洪道很长。" * 10
        (documents / f"{number}.md").write_text(f"# Dam {number}\n\n{filling}\n", encoding="utf-8")
    async with EngineServer() as short, EngineServer() as long:
        config = CONFIG.format(short=short.base_url, long=long.base_url, kept=request.param)
        keys = TENANTS.format(bank=hash_key(BANK), shop=hash_key(SHOP))
        async with gateway(tmp_path, config + keys) as made:
            yield Place(made, short, long)


def tokens(engine: EngineServer) -> int:
    """What the last prompt has, as the gateway estimates it."""
    counter = EstimatedTokenCounter()
    return sum(counter.count(one["content"]) for one in engine.requests[-1]["messages"])


async def test_what_their_pool_does_not_take_is_left_out_or_answered_in_parts(
    place: Place,
) -> None:
    for question in QUESTIONS:
        wide = await place.ask(BANK, question)
        assert wide.status == 200
        assert tokens(place.long) > NARROW
        narrow = await place.ask(SHOP, question)
        assert narrow.status == 200, narrow.body
        assert NARROW / 2 < tokens(place.short) <= NARROW
        told = "The gate was open. 闸门开着。 " * 12
        narrow = await place.ask(SHOP, *[f"{question} {told}"] * 4, question)
        assert narrow.status == 200, narrow.body
        assert tokens(place.short) <= NARROW
    for task in QUESTIONS:
        text = "\n\n".join(
            f"Day {day}: the level was {day} metres. 水位正常。" for day in range(90)
        )
        place.long.requests.clear()
        wide = await place.ask(BANK, f"{task}\n\n{text}")
        assert wide.status == 200
        assert len(place.long.requests) == 1
        place.short.requests.clear()
        narrow = await place.ask(SHOP, f"{task}\n\n{text}")
        assert narrow.status == 200, narrow.body
        steps = [(one["stage"], one["rung"]) for one in narrow.json["forebay"]["degradations"]]
        assert ("generation", "split") in steps
        assert len(place.short.requests) > 2
        counter = EstimatedTokenCounter()
        for asked in place.short.requests:
            assert sum(counter.count(one["content"]) for one in asked["messages"]) <= NARROW
