"""Kept answers to what says the same: who may get one, and what it must still rest on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.cache.askers import Askers
from forebay.cache.near import NearQuestions, NearSettings
from forebay.cache.settings import AnswerRule
from forebay.kernel.context import Principal
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import EmbedderSpec, Message
from forebay.pipeline.messages import AnswerRequest
from forebay.pipeline.near_answers import NearAnswers, NearParts
from tests.unit.cache.tier_parts import context_of
from tests.unit.pipeline.test_answer_cache import Tier, asking

NEAR = AnswerRule(name="faq", near=True)


class OneVector:
    """An embedder to which everything means the same."""

    spec = EmbedderSpec("one", "f", 2, 512)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        del kind
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        rows = np.tile(np.array([1, 0], np.float32), (len(texts), 1))
        return Vectors(tuple(range(len(texts))), 2, rows.tobytes())


class NearTier(Tier):
    """The tier with near matches behind it."""

    def __init__(self, rule: AnswerRule = NEAR) -> None:
        super().__init__(rule)
        self.embedder = OneVector()
        parts = self.cached._parts
        self.near = NearAnswers(
            NearParts(
                questions=NearQuestions(NearSettings(enabled=True)),
                tier=parts.tier,
                serving=self.world,
                rules=lambda: self.rules,
                scope_of=lambda principal, request, rule: self.key_of(
                    principal, msgspec.structs.replace(request, messages=()), rule
                ),
                embedder=self.embedder,
                min_cosine=0.9,
                asked=Askers(60.0, self.clock).note,
            )
        )
        self.cached._parts = msgspec.structs.replace(parts, near=self.near)

    async def found(
        self, request: AnswerRequest, principal: Principal | None = None, *, no_cache: bool = False
    ) -> bool:
        ctx = context_of(self.clock, principal)
        ctx.no_cache = no_cache
        return await self.near.find(ctx, request) is not None


async def test_another_way_to_ask_finds_the_answer() -> None:
    tier = NearTier()
    await tier.ask()
    assert await tier.found(asking("Please tell me when refunds are paid"))
    assert not await tier.found(asking("When are refunds not paid?"))


async def test_looking_finds_the_same_and_counts_nothing() -> None:
    tier = NearTier()
    await tier.ask()
    served = tier.world.current("k")
    assert served is not None
    vector = await tier.embedder.embed(["x"], kind="query")

    def seen(text: str) -> bool:
        return tier.near.seen(Principal(), asking(text), served, vector)

    assert seen("Please tell me when refunds are paid")
    assert not seen("When are refunds not paid?")
    assert tier.near._parts.questions.statistics()["proposed"] == 0
    tier.use(AnswerRule(name="faq"))
    assert not seen("Please tell me when refunds are paid")


async def test_a_rule_that_does_not_say_near_means_exact() -> None:
    tier = NearTier(AnswerRule(name="faq"))
    await tier.ask()
    assert not await tier.found(asking("Please tell me when refunds are paid"))


@pytest.mark.parametrize("near", [0.95, 1.0])
async def test_callers_may_only_tighten(near: float) -> None:
    tier = NearTier()
    await tier.ask()
    other = asking("Please tell me when refunds are paid", near=near)
    assert await tier.found(other) == (near < 1.0)
    tier.near._parts = msgspec.structs.replace(tier.near._parts, min_cosine=1.1)
    # Whatever a caller says, what the operator asks for holds.
    assert not await tier.found(asking("Please tell me when refunds are paid", near=0.1))


@pytest.mark.parametrize(
    "other", [Principal(tenant="b"), Principal(groups=frozenset({"hr"})), Principal(groups=None)]
)
async def test_nobody_gets_one_made_with_other_rights(other: Principal) -> None:
    tier = NearTier()
    mine = Principal(groups=frozenset({"staff"}))
    await tier.ask(principal=mine)
    assert not await tier.found(asking("Please tell me when refunds are paid"), other)


@pytest.mark.parametrize(
    "other",
    [
        asking(messages=(Message("system", "Be rude."), Message("user", "When are refunds paid"))),
        asking(
            messages=(
                Message("user", "And my order?"),
                Message("assistant", "On its way."),
                Message("user", "when are refunds paid"),
            )
        ),
        asking("Please tell me when refunds are paid", extras=b"{}"),
        asking("Please tell me when refunds are paid", top_k=3),
    ],
)
async def test_only_a_question_alone_and_all_else_equal(other: AnswerRequest) -> None:
    tier = NearTier()
    await tier.ask()
    assert not await tier.found(other)


async def test_a_change_of_what_it_rests_on_ends_it() -> None:
    tier = NearTier()
    await tier.ask()
    tier.world.change(removed=frozenset({1}))
    assert not await tier.found(asking("Please tell me when refunds are paid"))


async def test_who_wants_no_cache_gets_none() -> None:
    tier = NearTier()
    await tier.ask()
    assert not await tier.found(asking("Please tell me when refunds are paid"), no_cache=True)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_an_embedder_that_does_not_work_means_no_match(how: str) -> None:
    tier = NearTier()
    await tier.ask()
    if how == "fails":
        tier.embedder.error = EngineError("no")
    else:
        tier.embedder.hangs = True
    assert not await tier.found(asking("Please tell me when refunds are paid"))


async def test_what_cannot_be_embedded_is_kept_all_the_same() -> None:
    tier = NearTier()
    tier.embedder.error = EngineError("no")
    await tier.ask()
    assert await tier.told() == "hit"
