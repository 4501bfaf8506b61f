"""Equal questions at once: one answer that all hear, each by their own deadline."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from forebay.kernel.context import Principal, Priority
from forebay.kernel.errors import DeadlineExceeded, EngineError, RateLimited
from tests.unit.cache.tier_parts import hit
from tests.unit.pipeline.test_answer_cache import FACT, SAID, Tier, asking, settle


async def test_a_thousand_equal_cold_questions_are_answered_once() -> None:
    tier = Tier()
    tier.life.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(1000)]
    await settle()
    tier.life.go.set()
    results = await asyncio.gather(*asked)
    assert tier.life.made == 1
    assert {text for text, _, _ in results} == {SAID}
    assert [told for _, _, told in results].count("miss") == 1
    assert len(tier.charged) == 999


async def test_the_answer_goes_on_when_the_one_who_asked_first_leaves() -> None:
    tier = Tier()
    tier.life.go.clear()
    first = asyncio.create_task(tier.ask())
    await settle()
    second = asyncio.create_task(tier.ask())
    await settle()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert tier.life.closed == 0
    tier.life.go.set()
    assert (await second)[0] == SAID
    assert await tier.told() == "hit"


async def test_when_all_have_left_the_engine_is_told_at_once() -> None:
    tier = Tier()
    tier.life.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(3)]
    await settle()
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert (tier.life.made, tier.life.closed) == (1, 1)
    assert tier.cached.statistics()["under_way"] == 0


async def test_who_wants_no_near_match_does_not_join_who_does() -> None:
    tier = Tier()
    tier.life.go.clear()
    nears = (None, 1.0, None, 0.95)
    requests = [msgspec.structs.replace(asking(), near=near) for near in nears]
    asked = [asyncio.create_task(tier.ask(request)) for request in requests]
    await settle()
    tier.life.go.set()
    await asyncio.gather(*asked)
    assert tier.life.made == 3


async def test_nobody_waits_in_the_place_of_a_lower_class() -> None:
    tier = Tier()
    tier.life.go.clear()
    classes: tuple[Priority, ...] = ("low", "high", "low")
    asked = [asyncio.create_task(tier.ask(principal=Principal(priority=one))) for one in classes]
    await settle()
    tier.life.go.set()
    await asyncio.gather(*asked)
    assert tier.life.made == 2
    # What is kept is everybody's.
    assert await tier.told(principal=Principal(priority="normal")) == "hit"


async def test_who_listens_is_in_work_as_well() -> None:
    tier = Tier()
    tier.most_listening = 2
    tier.life.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(4)]
    await settle()
    assert tier.listening == 2
    tier.life.go.set()
    *answered, refused = await asyncio.gather(*asked, return_exceptions=True)
    assert [one[2] for one in answered if isinstance(one, tuple)] == ["miss", "hit", "hit"]
    assert isinstance(refused, RateLimited)
    assert (tier.life.made, tier.listening) == (1, 0)


async def test_a_question_after_a_removal_does_not_join_an_answer_from_before() -> None:
    tier = Tier()
    tier.life.go.clear()
    before = asyncio.create_task(tier.ask())
    await settle()
    tier.world.change(removed=frozenset({1}))
    tier.life.passages = (hit(2, FACT),)
    after = asyncio.create_task(tier.ask())
    await settle()
    assert tier.life.made == 2
    tier.life.go.set()
    assert (await before)[1].kb_version == 1
    assert (await after)[1].kb_version == 2
    # What came late was made from the old version, and is not served at the new one.
    assert (await tier.ask())[1].kb_version == 2


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("late"), RateLimited("too much", retry_after_s=1.0)]
)
async def test_what_is_the_first_ones_own_is_not_the_others(error: Exception) -> None:
    tier = Tier()
    tier.life.error, tier.life.silent = error, True
    tier.life.go.clear()
    first = asyncio.create_task(tier.ask())
    await settle()
    others = [asyncio.create_task(tier.ask()) for _ in range(3)]
    await settle()
    tier.life.go.set()
    results = await asyncio.gather(first, *others, return_exceptions=True)
    assert results[0] is error
    assert [result[0] for result in results[1:] if isinstance(result, tuple)] == [SAID] * 3
    assert tier.life.made == 2


async def test_a_failure_in_the_middle_is_everybodys() -> None:
    tier = Tier()
    tier.life.error = EngineError("no")
    tier.life.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(3)]
    await settle()
    tier.life.go.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, EngineError) for result in results)
