"""L3: what is kept was good, what is served is what a fresh search would lead to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from forebay.cache.carrying import carried
from forebay.cache.keys import PromptSetup, Setup, answer_key, digest, retrieval_key
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.rules import AnswerRules
from forebay.cache.settings import AnswerRule, AnswerTierSettings
from forebay.cache.values import KIND_ANSWER, StructCodec
from forebay.cache.versioned import Entry, TierParts, VersionedTier
from forebay.context.attribution import unsupported_share
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import EngineError, RateLimited
from forebay.kernel.stages import Message, Sampling, SearchRequest, SearchResult
from forebay.pipeline.answer_cache import AnswerCacheParts, CachedAnswering
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    AnswerRequest,
    Citation,
    Rests,
    StoredAnswer,
    Usage,
)
from tests.unit.cache.tier_parts import EVIDENCE, World, context_of, hit

FACT = "Refunds are paid within fourteen days of the return reaching our warehouse."
SAID = "Refunds are paid within fourteen days [1]."
RULE = AnswerRule(name="faq")


def asking(text: str = "When are refunds paid?", **fields: object) -> AnswerRequest:
    request = AnswerRequest("k", (Message("user", text),), top_k=2)
    return msgspec.structs.replace(request, **fields)


class Life:
    """The answering life behind the tier."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self.world = world
        self.clock = clock
        self.made = 0
        self.closed = 0
        self.go = asyncio.Event()
        self.go.set()
        self.text = SAID
        self.silent = False
        """Whether nothing is said before it is let go."""
        self.takes_s = 0.0
        self.error: Exception | None = None
        self.passages: tuple[Hit, ...] = (hit(1, FACT, ("static",)), hit(2, FACT, ("static",)))
        self.end = AnswerEnd(
            finish_reason="stop",
            citations=(Citation(1, "d1", "1", "", "", FACT, 1.0, 0, len(FACT)),),
            usage=Usage(100, 20),
            model="m",
            rung="vector+bm25",
            kb_version=1,
        )

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        raise NotImplementedError

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        del request
        self.made += 1
        version = self.world.version
        try:
            half = 0 if self.silent else len(self.text) // 2
            if half:
                yield AnswerDelta(self.text[:half])
            await self.go.wait()
            self.clock.advance(self.takes_s)
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            yield AnswerDelta(self.text[half:])
            ctx.rung, ctx.kb_version = "vector+bm25", version
            found = SearchResult(self.passages, "vector+bm25", version, EVIDENCE)
            end = msgspec.structs.replace(self.end, kb_version=version)
            if end.rests is None:
                end = msgspec.structs.replace(end, rests=Rests(self.passages, found))
            yield end
        finally:
            self.closed += 1


class Tier:
    """Everything together, with one clock."""

    def __init__(self, *rules: AnswerRule) -> None:
        self.clock = VirtualClock()
        self.world = World()
        self.life = Life(self.world, self.clock)
        self.charged: list[str] = []
        self.charged_at_once: list[int] = []
        self.refusing = False
        self.unjudgeable = False
        self.listening, self.most_listening = 0, 1_000
        self.prompt = PromptSetup("t1", "m1", "v1")
        self.use(*(rules or (RULE,)))
        memory: MemoryTier[bytes] = MemoryTier(MemorySettings(1 << 20), self.clock)
        self.memory = memory
        tier: VersionedTier[StoredAnswer] = VersionedTier(
            TierParts(
                memory=memory,
                codec=StructCodec(KIND_ANSWER, Entry[StoredAnswer]),
                bounds=self.world,
                judge=carried,
                clock=self.clock,
            )
        )
        self.cached = CachedAnswering(
            self.life,
            AnswerCacheParts(
                tier=tier,
                serving=self.world,
                rules=lambda: self.rules,
                key_of=self.key_of,
                charge=self.charge,
                charge_at_once=self.charge_at_once,
                attend=self.attend,
                unsupported=self.unsupported,
                clock=self.clock,
            ),
        )

    def unsupported(self, text: str, passages: Sequence[Hit]) -> float:
        if self.unjudgeable:
            raise ZeroDivisionError
        return unsupported_share(text, passages)

    def use(self, *rules: AnswerRule) -> None:
        self.rules = AnswerRules(AnswerTierSettings(rules=rules))

    def key_of(self, principal: Principal, request: AnswerRequest, rule: AnswerRule) -> bytes:
        search = SearchRequest(request.kb, "", request.top_k, request.filter)
        key = retrieval_key(principal, search, Setup("s", "e", "r", ""))
        more = {"rule": rule.name, "extras": request.extras}
        return digest(answer_key(key, request.messages, request.sampling, self.prompt, more=more))

    async def charge(self, ctx: RequestContext, question: str) -> int:
        del ctx
        if self.refusing:
            raise RateLimited("too much", retry_after_s=1.0)
        self.charged.append(question)
        return 5

    def charge_at_once(self, ctx: RequestContext, tokens: int) -> bool:
        del ctx
        if not self.refusing:
            self.charged_at_once.append(tokens)
        return not self.refusing

    @contextmanager
    def attend(self, ctx: RequestContext) -> Iterator[None]:
        del ctx
        if self.listening >= self.most_listening:
            raise RateLimited("too many", retry_after_s=1.0)
        self.listening += 1
        try:
            yield
        finally:
            self.listening -= 1

    async def ask(
        self,
        request: AnswerRequest | None = None,
        *,
        principal: Principal | None = None,
        no_cache: bool = False,
        within_s: float = 10.0,
    ) -> tuple[str, AnswerEnd, str]:
        ctx = context_of(self.clock, principal)
        ctx.no_cache = no_cache
        ctx.deadline = Deadline.after(within_s, self.clock)
        pieces, end = [], None
        async for event in self.cached.answer(ctx, request or asking()):
            if isinstance(event, AnswerEnd):
                end = event
            else:
                pieces.append(event.text)
        assert end is not None
        return "".join(pieces), end, ctx.cache["answer"]

    async def told(self, request: AnswerRequest | None = None, **options: object) -> str:
        return (await self.ask(request, **options))[2]  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_same_answer_comes_back_with_its_citations_and_version() -> None:
    tier = Tier()
    text, end, told = await tier.ask()
    again, end_again, told_again = await tier.ask()
    assert (told, told_again, tier.life.made) == ("miss", "hit", 1)
    assert (again, end_again.citations) == (text, end.citations)
    assert (end_again.kb_version, end_again.rung, end_again.model) == (1, "vector+bm25", "m")
    # A hit is charged as what it is: a question, and no words of an engine.
    assert tier.charged == ["When are refunds paid?"]
    assert end_again.usage == Usage(5, 0)


async def test_without_a_rule_nothing_is_kept() -> None:
    tier = Tier()
    tier.use()
    assert [await tier.told() for _ in range(2)] == ["off", "off"]
    assert tier.life.made == 2


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (AnswerRule(name="r", knowledge=("other",)), "off"),
        (AnswerRule(name="r", knowledge=("k",)), "hit"),
        (AnswerRule(name="r", tenants=("other",)), "off"),
        (AnswerRule(name="r", routes=("mcp",)), "off"),
        (AnswerRule(name="r", questions=("何时退款？",)), "off"),
        (AnswerRule(name="r", questions=("when are refunds paid",)), "hit"),
        (AnswerRule(name="r", tags=("static",)), "hit"),
        (AnswerRule(name="r", tags=("news",)), "miss"),
        (AnswerRule(name="r", min_ms=1000.0), "miss"),
    ],
)
async def test_a_rule_says_what_may_be_kept(rule: AnswerRule, told: str) -> None:
    tier = Tier(rule)
    await tier.ask()
    assert await tier.told() == told


async def test_what_is_slow_may_be_kept_where_quick_answers_are_not() -> None:
    tier = Tier(AnswerRule(name="slow", min_ms=1000.0))
    tier.life.takes_s = 1.5
    await tier.ask()
    assert await tier.told() == "hit"


def spoiled(life: Life, how: str) -> None:
    changes: dict[str, dict[str, object]] = {
        "cut": {"finish_reason": "length"},
        "degraded": {"degradations": (msgspec.convert(["r", "bm25", "x"], tuple),)},
        "refused": {"refused": True},
        "unsure": {"unsure": True},
        "uncited": {"citations": ()},
        "invalid": {"invalid_citations": 1},
    }
    if how == "unsupported":
        life.text = "The moon is made of green cheese and turns every fourteen days [1]."
    elif how == "wrong number":
        life.text = "Refunds are paid within 99 days of the return reaching our warehouse [1]."
    else:
        life.end = msgspec.structs.replace(life.end, **changes[how])


@pytest.mark.parametrize(
    "how",
    ["cut", "degraded", "refused", "unsure", "uncited", "invalid", "unsupported", "wrong number"],
)
async def test_what_is_not_whole_and_supported_is_not_kept(how: str) -> None:
    tier = Tier()
    spoiled(tier.life, how)
    await tier.ask()
    assert await tier.told() == "miss"
    assert sum(tier.cached.refusals.values()) == 2


async def test_a_whole_answer_that_cannot_be_kept_is_told_to_all_who_listen() -> None:
    tier = Tier()
    tier.unjudgeable = True
    tier.life.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(3)]
    await settle()
    tier.life.go.set()
    assert [(await one)[0] for one in asked] == [SAID] * 3
    assert (tier.life.made, tier.cached.kept, tier.cached.refusals) == (1, 0, {"failed": 1})


async def test_a_failure_is_not_kept() -> None:
    tier = Tier()
    tier.life.error = EngineError("no")
    with pytest.raises(EngineError):
        await tier.ask()
    tier.life.error = None
    assert await tier.told() == "miss"


@pytest.mark.parametrize(
    "other",
    [
        asking("When are refunds not paid?"),
        asking(sampling=Sampling(temperature=0.0)),
        asking(sampling=Sampling(max_tokens=16)),
        asking(sampling=Sampling(max_tokens=4000)),
        asking(sampling=Sampling(stop=("x",))),
        asking(sampling=Sampling(seed=1)),
        asking(sampling=Sampling(response_format={"type": "json_object"})),
        asking(extras=b'{"tools": []}'),
        asking(top_k=3),
        asking(filter={"tags": "a"}),
        asking(
            messages=(Message("system", "Be brief."), Message("user", "When are refunds paid?"))
        ),
        asking(
            messages=(
                Message("user", "Hello"),
                Message("assistant", "Hi"),
                Message("user", "When are refunds paid?"),
            )
        ),
    ],
)
async def test_another_request_has_another_answer(other: AnswerRequest) -> None:
    tier = Tier()
    await tier.ask()
    assert await tier.told(other) == "miss"


@pytest.mark.parametrize(
    "text", ["when are refunds paid", "WHEN ARE  REFUNDS PAID ?", "Ｗhen are refunds paid？"]
)
async def test_another_spelling_is_the_same_question(text: str) -> None:
    tier = Tier()
    await tier.ask()
    assert await tier.told(asking(text)) == "hit"


@pytest.mark.parametrize(
    "other", [Principal(tenant="b"), Principal(groups=frozenset({"hr"})), Principal(groups=None)]
)
async def test_nobody_gets_an_answer_made_with_other_rights(other: Principal) -> None:
    tier = Tier()
    await tier.ask(principal=Principal(groups=frozenset({"staff"})))
    assert await tier.told(principal=other) == "miss"


async def test_a_change_of_what_it_rests_on_ends_it() -> None:
    tier = Tier()
    await tier.ask()
    tier.world.change(removed=frozenset({77}))
    assert await tier.told() == "hit"
    tier.world.change(removed=frozenset({1}))
    assert await tier.told() == "miss"


@pytest.mark.parametrize("what", ["rule", "template", "model", "version"])
async def test_a_change_of_rule_template_or_model_ends_it(what: str) -> None:
    tier = Tier()
    await tier.ask()
    if what == "rule":
        tier.use(AnswerRule(name="another"))
    else:
        names = {"template": "template", "model": "model", "version": "model_version"}
        tier.prompt = msgspec.structs.replace(tier.prompt, **{names[what]: "other"})
    assert await tier.told() == "miss"


async def test_its_life_is_the_rules() -> None:
    tier = Tier(AnswerRule(name="r", life_s=30.0))
    await tier.ask()
    tier.clock.advance(29.0)
    assert await tier.told() == "hit"
    tier.clock.advance(2.0)
    assert await tier.told() == "miss"


async def test_a_hit_is_refused_to_who_has_used_up_a_quota() -> None:
    tier = Tier()
    await tier.ask()
    tier.refusing = True
    with pytest.raises(RateLimited):
        await tier.ask()


async def test_who_wants_no_cache_gets_none() -> None:
    tier = Tier()
    await tier.ask()
    assert await tier.told(no_cache=True) == "bypass"
    assert tier.life.made == 2


async def test_a_conversation_without_end_is_not_kept() -> None:
    tier = Tier()
    long = asking("x" * 20_000)
    assert [await tier.told(long) for _ in range(2)] == ["off", "off"]


async def test_explaining_changes_nothing() -> None:
    tier = Tier()
    served = tier.world.current("k")
    assert served is not None
    rule, found = await tier.cached.explain(Principal(), asking(), served)
    assert (rule, found.verdict) == (RULE, "absent")
    await tier.ask()
    assert (await tier.cached.explain(Principal(), asking(), served))[1].verdict == "hit"
    tier.use()
    assert (await tier.cached.explain(Principal(), asking(), served))[0] is None
