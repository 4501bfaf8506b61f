"""The same requests in real time over HTTP and in virtual time: equal totals, equal rates."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from forebay.lab.sim.engine import Engine, Sequence
from forebay.lab.sim.profiles import find_profile
from forebay.lab.workload.text import TextMaker
from tests.unit.lab.sim.serving.simulated import Client, simulated

PROFILE = "l4/8b"
SECONDS = 1.5
RATE = 16.0
ATTEMPTS = 8
"""Whoever asks or answers on a busy machine is late, never early: then it is measured again."""
ENGINE = {"max_num_seqs": 16, "kv_tokens": 8192}


class Asked(msgspec.Struct, frozen=True):
    at_s: float
    text: str
    input_tokens: int
    output_tokens: int


def workload(seed: int) -> list[Asked]:
    """Poisson arrivals of short and long requests, more than the engine takes at once."""
    rng, maker = random.Random(seed), TextMaker()
    asked: list[Asked] = []
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(RATE)) < SECONDS:
        tokens, output = rng.choice(((40, 10), (200, 30), (800, 20)))
        text = maker.text(rng.randrange(1 << 30), tokens)
        asked.append(Asked(at_s, text, tokens, output))
    return asked


def in_virtual_time(asked: list[Asked]) -> tuple[dict[str, int], float]:
    """Totals and the time of the last token, by the engine alone."""
    profile = find_profile(PROFILE)
    engine = Engine(profile.engine_config(**ENGINE), profile.step_model())
    for number, one in enumerate(asked):
        engine.submit(Sequence(number, one.input_tokens, one.output_tokens), one.at_s)
    ended_at = 0.0
    while (due := engine.next_event_at()) is not None:
        for sequence in engine.advance(due).finished:
            assert sequence.finished_at is not None
            ended_at = sequence.finished_at
    statistics = engine.statistics()
    totals = {
        "requests": statistics.finished,
        "prompt": statistics.prompt_tokens,
        "generation": statistics.generation_tokens,
    }
    return totals, ended_at


async def in_real_time(asked: list[Asked], client: Client) -> tuple[dict[str, int], float]:
    """The same, as the server's clients and its figures tell it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    usages: list[dict[str, Any]] = []

    async def ask(one: Asked) -> float:
        await asyncio.sleep(began + one.at_s - loop.time())
        options = {"include_usage": True}
        events = await client.stream(
            one.text, max_tokens=one.output_tokens, ignore_eos=True, stream_options=options
        )
        usages.append(events[-2]["usage"])
        return loop.time() - began

    ended_at = max(await asyncio.gather(*(ask(one) for one in asked)))
    figures = await client.figures()
    names = {
        "requests": 'vllm:request_success_total{engine="0",finished_reason="length"}',
        "prompt": 'vllm:prompt_tokens_total{engine="0"}',
        "generation": 'vllm:generation_tokens_total{engine="0"}',
    }
    totals = {key: int(figures[name]) for key, name in names.items()}
    assert totals["prompt"] == sum(usage["prompt_tokens"] for usage in usages)
    assert totals["generation"] == sum(usage["completion_tokens"] for usage in usages)
    return totals, ended_at


async def test_real_and_virtual_time_agree() -> None:
    asked = workload(seed=3)
    assert len(asked) > 15
    expected, virtual_s = in_virtual_time(asked)
    first_s = asked[0].at_s

    def rate(end_s: float) -> float:
        return expected["generation"] / (end_s - first_s)

    agrees = pytest.approx(rate(virtual_s), rel=0.03)
    for _ in range(ATTEMPTS):
        async with simulated(profile=PROFILE, speed=1.0, prefix_caching=False, **ENGINE) as running:
            totals, real_s = await in_real_time(asked, running.client)
        assert totals == expected
        if rate(real_s) == agrees:
            break
    assert rate(real_s) == agrees
