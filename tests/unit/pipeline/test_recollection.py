"""What is remembered of an answer asks, each time, whether it may be told, and charges for it."""

from __future__ import annotations

from forebay.cache.prewarm import Asked
from forebay.cache.sessions import Sessions, SessionTierSettings
from forebay.cache.settings import AnswerRule
from forebay.kernel.context import RequestContext
from forebay.pipeline.listening import Listening
from forebay.pipeline.messages import Usage
from forebay.pipeline.recollection import Recollection
from tests.unit.cache.tier_parts import context_of
from tests.unit.pipeline.test_answer_cache import SAID, Tier, asking


async def remembered(tier: Tier) -> Recollection:
    """After an answer that was kept and one that was a hit."""
    await tier.ask()
    ctx = context_of(tier.clock)
    async for _ in tier.cached.answer(ctx, asking()):
        pass
    kept = tier.cached.recollect(ctx, asking(), 5)
    assert kept is not None
    return kept


def told(tier: Tier, kept: Recollection) -> RequestContext | None:
    ctx = context_of(tier.clock)
    return ctx if kept.again(ctx) else None


async def test_it_notes_what_the_long_way_notes() -> None:
    tier = Tier()
    kept = await remembered(tier)
    text, end = kept.told()
    assert (text.text, end.usage, end.rests) == (SAID, Usage(5, 0), None)
    ctx = told(tier, kept)
    assert ctx is not None
    assert (ctx.cache["answer"], ctx.rung, ctx.kb_version) == ("hit", "vector+bm25", 1)
    assert tier.charged_at_once == [5]
    assert tier.life.made == 1


async def test_what_was_no_hit_is_not_remembered() -> None:
    tier = Tier()
    ctx = context_of(tier.clock)
    async for _ in tier.cached.answer(ctx, asking()):
        pass
    assert ctx.cache["answer"] == "miss"
    assert tier.cached.recollect(ctx, asking(), 5) is None
    ctx.cache["answer"] = "hit"
    assert tier.cached.recollect(ctx, asking("another?"), 5) is None
    tier.use()
    assert tier.cached.recollect(ctx, asking(), 5) is None


async def test_a_change_that_touches_it_or_not_ends_it_until_it_is_judged() -> None:
    tier = Tier()
    kept = await remembered(tier)
    tier.world.change(removed=frozenset({77}))
    assert told(tier, kept) is None
    assert await tier.told() == "hit"  # carried, and so kept anew
    kept = await remembered(tier)
    assert told(tier, kept) is not None
    tier.world.change(removed=frozenset({1}))
    assert told(tier, kept) is None
    assert await tier.told() == "miss"


async def test_its_life_a_purge_and_other_rules_end_it() -> None:
    tier = Tier(AnswerRule(name="faq", life_s=60.0))
    kept = await remembered(tier)
    tier.clock.advance(59.0)
    assert told(tier, kept) is not None
    tier.clock.advance(2.0)
    assert told(tier, kept) is None
    kept = await remembered(tier)
    tier.memory.clear()
    assert told(tier, kept) is None
    kept = await remembered(tier)
    tier.use(AnswerRule(name="faq", life_s=60.0))
    assert told(tier, kept) is None


async def test_who_cannot_be_charged_at_once_goes_the_long_way() -> None:
    tier = Tier()
    kept = await remembered(tier)
    tier.refusing = True
    assert told(tier, kept) is None
    assert tier.charged_at_once == []


async def test_asking_keeps_it_among_what_is_asked_for() -> None:
    tier = Tier()
    kept = await remembered(tier)
    before = tier.memory.statistics()["hits"]
    for _ in range(3):
        assert told(tier, kept) is not None
    assert tier.memory.statistics()["hits"] == before + 3


async def test_who_listens_hears_of_it_and_labels_it() -> None:
    tier = Tier()
    heard: list[Asked] = []
    sessions = Sessions(SessionTierSettings(), tier.clock)
    listening = Listening(tier.cached, sessions, heard.append, tier.clock, tier.cached.recollect)
    await tier.ask()
    ctx = context_of(tier.clock)
    async for _ in listening.answer(ctx, asking()):
        pass
    kept = listening.recollect(ctx, asking(), 5)
    assert kept is not None and len(heard) == 1
    again = told(tier, kept)
    assert again is not None and again.labels == ctx.labels
    assert [one.question for one in heard] == [heard[0].question] * 2
    tier.refusing = True
    assert told(tier, kept) is None and len(heard) == 2
    assert kept.told()[0].text == SAID
    silent = Listening(tier.cached, sessions, None, tier.clock)
    assert silent.recollect(ctx, asking(), 5) is None
