"""Prepared prompts: the same as built ones, under a key that nothing can be left out of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from forebay.cache.memory import deep_bytes
from forebay.cache.prompts import (
    MAX_CHARACTERS,
    Prepared,
    PreparedPrompts,
    PromptTierSettings,
    _bytes_of,
)
from forebay.context import ContextSettings, PromptBuilder
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.stages import GenerationRequest, Message, Sampling
from tests.unit.cache.tier_parts import context_of, hit

ASKED = (Message("user", "how long is the notice period?"),)


class Building:
    """A real builder, with a count of what it built."""

    def __init__(self) -> None:
        self.made = 0
        self._builder = PromptBuilder(ContextSettings(), EstimatedTokenCounter(), "secret")

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        most_tokens: int | None = None,
    ) -> GenerationRequest:
        self.made += 1
        return self._builder.build(messages, passages, sampling, most_tokens)


def tier(
    clock: VirtualClock | None = None, settings: PromptTierSettings | None = None
) -> tuple[PreparedPrompts, Building]:
    inner = Building()
    clock, settings = clock or VirtualClock(), settings or PromptTierSettings()
    return PreparedPrompts(inner, "v1", settings, clock), inner


def test_a_prompt_from_the_tier_is_the_one_that_is_built() -> None:
    prompts, inner = tier()
    hits = (hit(1), hit(2))
    first = prompts.build(ASKED, hits, Sampling(temperature=0.1))
    second = prompts.build(ASKED, hits, Sampling(temperature=0.9))
    assert inner.made == 1
    assert second == inner.build(ASKED, hits, Sampling(temperature=0.9))
    assert first.sampling.temperature == 0.1


def test_scores_are_those_of_the_search_that_asked() -> None:
    prompts, _ = tier()
    prompts.build(ASKED, (hit(1),), Sampling())
    other = msgspec.structs.replace(hit(1), score=0.123)
    assert prompts.build(ASKED, (other,), Sampling()).passages == (other,)


@pytest.mark.parametrize("field", ["title", "text", "context", "page", "heading_path"])
def test_whatever_is_shown_of_a_passage_counts(field: str) -> None:
    prompts, inner = tier()
    one = hit(1)
    values = {"page": 7, "heading_path": ("other",)}
    chunk = msgspec.structs.replace(one.chunk, **{field: values.get(field, "other")})
    prompts.build(ASKED, (one,), Sampling())
    prompts.build(ASKED, (msgspec.structs.replace(one, chunk=chunk),), Sampling())
    assert inner.made == 2


def test_history_rules_order_caps_and_room_count() -> None:
    prompts, inner = tier()
    hits = (hit(1, "one"), hit(2, "two"))
    prompts.build(ASKED, hits, Sampling())
    prompts.build(ASKED, hits[::-1], Sampling())
    prompts.build(ASKED, hits, Sampling(max_tokens=16))
    prompts.build(ASKED, hits, Sampling(), 500)
    prompts.build((Message("system", "be brief"), *ASKED), hits, Sampling())
    prompts.build((Message("user", "hi"), Message("assistant", "yes"), *ASKED), hits, Sampling())
    prompts.build((Message("user", "hi"), Message("assistant", "no"), *ASKED), hits, Sampling())
    assert inner.made == 7


def test_a_life_ends_and_long_conversations_pass_by() -> None:
    clock = VirtualClock()
    prompts, inner = tier(clock)
    prompts.build(ASKED, (), Sampling())
    clock.advance(901)
    prompts.build(ASKED, (), Sampling())
    assert inner.made == 2
    long = (Message("user", "word " * (MAX_CHARACTERS // 5 + 1)),)
    prompts.build(long, (), Sampling())
    prompts.build(long, (), Sampling())
    assert inner.made == 4


def test_memory_is_bounded() -> None:
    prompts, _ = tier(settings=PromptTierSettings(max_bytes=1_000_000))
    for number in range(2000):
        prompts.build((Message("user", f"question {number} " + "x" * 900),), (), Sampling())
    assert prompts.statistics()["bytes"] <= 1_000_000
    assert prompts.statistics()["entries"] > 100
    assert prompts.clear() > 100
    assert prompts.statistics()["entries"] == 0


def test_what_a_prompt_weighs_is_never_reckoned_too_small() -> None:
    shared = deep_bytes("user") + deep_bytes("system") + deep_bytes("en")
    for count in (1, 3, 9):
        messages = tuple(Message("user", "word " * number) for number in range(count))
        prepared = Prepared("en", messages, 5, 1024, 4000)
        exact = deep_bytes(prepared) - shared - (count - 1) * deep_bytes("user")
        assert exact <= _bytes_of(prepared) <= exact + 300


class Placed:
    pool = "fast"
    replica = 0
    hedging = None
    max_output_tokens = 10

    def token(self) -> None: ...

    def unless_hung(self, leave: Callable[[], None] | None) -> None:
        pass

    def again(self) -> bool:
        return False


class Engine:
    def __init__(self) -> None:
        self.asked = 0
        self.count: int | None = 42

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        self.asked += 1
        return self.count

    def written(self, pool: str, text: str) -> int | None:
        return len(text)


def test_an_engines_count_is_asked_for_once_in_each_pool_unless_it_failed() -> None:
    prompts, _ = tier()
    engine = Engine()
    tokens = prompts.counting(engine)
    assert tokens is not None and prompts.counting(None) is None
    ctx = context_of(VirtualClock())
    ctx.placement = Placed()

    async def counted() -> int | None:
        return await tokens.prompt(ctx, ASKED)

    engine.count = None
    assert asyncio.run(counted()) is None
    engine.count = 42
    assert [asyncio.run(counted()) for _ in range(3)] == [42] * 3
    assert engine.asked == 2
    ctx.placement = Placed()
    ctx.placement.pool = "slow"
    asyncio.run(counted())
    assert engine.asked == 3
    assert tokens.written("fast", "abc") == 3
