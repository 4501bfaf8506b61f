"""L2: equal searches are made once, what is kept is never older than what is served."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from forebay.cache.claims import Claims
from forebay.cache.keys import Setup, digest, retrieval_key
from forebay.cache.retrieval import CachedRetriever, RetrievalTierParts
from forebay.cache.settings import RetrievalTierSettings
from forebay.kernel.caching import SharedValues
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import EngineError, Overloaded
from forebay.kernel.stages import SearchRequest, SearchResult
from tests.unit.cache.test_versioned import Values
from tests.unit.cache.tier_parts import EVIDENCE, World, context_of, hit, tier_of

SETUP = Setup("store", "e5", "r", "")
ASKED = SearchRequest("k", "how long is the notice period?", top_k=2)


class Search:
    """The retriever behind the tier; answers the world's version, when it is let go."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made = 0
        self.go = asyncio.Event()
        self.go.set()
        self.degraded = False
        self.certain = False
        """Whether a degraded search can tell what it rests on, as one not ordered anew can."""
        self.hits: tuple[Hit, ...] = (hit(1), hit(2))
        self.error: Exception | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        del request
        self.made += 1
        # A search sees one state, and may take its time over it.
        version = self.world.version
        await self.go.wait()
        if self.error is not None:
            raise self.error
        if self.degraded:
            ctx.degrade("retrieval", "bm25", "vector_timeout")
        evidence = None if self.degraded and not self.certain else EVIDENCE
        return SearchResult(self.hits, "vector+bm25", version, evidence)


class Tier:
    """Everything together, with one clock."""

    def __init__(
        self, shared: SharedValues | None = None, world: World | None = None, name: str = "one"
    ) -> None:
        self.clock = VirtualClock()
        self.world = world or World()
        self.search = Search(self.world)
        parts = RetrievalTierParts(
            tier=tier_of(self.world, self.clock, shared),
            serving=self.world,
            key_of=lambda principal, request: digest(retrieval_key(principal, request, SETUP)),
            clock=self.clock,
            claims=None if shared is None else Claims(shared, name, 0.2),
        )
        self.retriever = CachedRetriever(self.search, parts, RetrievalTierSettings())

    async def ask(
        self, request: SearchRequest = ASKED, principal: Principal | None = None
    ) -> tuple[SearchResult, str]:
        ctx = context_of(self.clock, principal)
        result = await self.retriever.retrieve(ctx, request)
        return result, ctx.cache["retrieval"]


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_the_second_search_is_not_made() -> None:
    tier = Tier()
    first, missed = await tier.ask()
    second, found = await tier.ask()
    assert (missed, found, tier.search.made) == ("miss", "hit", 1)
    assert second.hits == first.hits
    assert second.rung == first.rung == "vector+bm25"


@pytest.mark.parametrize(
    "query",
    [
        "How long is the notice period",
        "how long is  the notice period?",
        "ｈｏｗ long is the notice period？",
    ],
)
async def test_case_width_spaces_and_the_last_mark_are_no_difference(query: str) -> None:
    tier = Tier()
    await tier.ask()
    assert (await tier.ask(msgspec.structs.replace(ASKED, query=query)))[1] == "hit"


@pytest.mark.parametrize(
    "request_",
    [
        msgspec.structs.replace(ASKED, query="how long is the trial period?"),
        msgspec.structs.replace(ASKED, top_k=3),
        msgspec.structs.replace(ASKED, kb="other"),
        msgspec.structs.replace(ASKED, filter={"tags": "hr"}),
    ],
)
async def test_another_search_is_another(request_: SearchRequest) -> None:
    tier = Tier()
    await tier.ask()
    assert (await tier.ask(request_))[1] == "miss"


@pytest.mark.parametrize(
    "other",
    [
        Principal(tenant="b", groups=frozenset({"staff"})),
        Principal(tenant="a", groups=frozenset({"staff", "hr"})),
        Principal(tenant="a", groups=frozenset()),
        Principal(tenant="a", groups=None),
    ],
)
async def test_nobody_gets_what_was_found_with_other_rights(other: Principal) -> None:
    tier = Tier()
    mine = Principal(tenant="a", groups=frozenset({"staff"}))
    await tier.ask(principal=mine)
    assert (await tier.ask(principal=mine))[1] == "hit"
    assert (await tier.ask(principal=other))[1] == "miss"


async def test_a_thousand_equal_cold_searches_are_one() -> None:
    tier = Tier()
    tier.search.go.clear()
    asked = [asyncio.create_task(tier.ask()) for _ in range(1000)]
    await settle()
    tier.search.go.set()
    results = await asyncio.gather(*asked)
    assert tier.search.made == 1
    assert [told for _, told in results].count("miss") == 1


async def test_nobody_is_refused_in_the_place_of_a_lower_class() -> None:
    tier = Tier()
    tier.search.go.clear()
    tier.search.error = Overloaded("too much")
    low = asyncio.create_task(tier.ask(principal=Principal(priority="low")))
    await settle()
    high = asyncio.create_task(tier.ask(principal=Principal(priority="high")))
    await settle()
    assert tier.search.made == 2
    tier.search.go.set()
    await asyncio.gather(low, high, return_exceptions=True)


async def test_a_search_held_over_a_removal_is_of_the_old_version_only() -> None:
    tier = Tier()
    tier.search.go.clear()
    held = asyncio.create_task(tier.ask())
    await settle()
    tier.world.change(removed=frozenset({1}))
    # The removal is acknowledged. Whoever asks from now on makes a search of their own.
    tier.search.hits = (hit(2), hit(3))
    late = asyncio.create_task(tier.ask())
    await settle()
    assert tier.search.made == 2
    tier.search.go.set()
    assert (await held)[0].kb_version == 1
    assert (await late)[0].kb_version == 2
    result, told = await tier.ask()
    assert 1 not in [found.chunk.chunk_id for found in result.hits]
    assert (told, result.kb_version) == ("hit", 2)


async def test_a_late_result_of_an_old_version_is_not_served() -> None:
    tier = Tier()
    tier.search.go.clear()
    held = asyncio.create_task(tier.ask())
    await settle()
    tier.world.change(removed=frozenset({1}))
    tier.search.go.set()
    await held
    tier.search.hits = (hit(2), hit(3))
    result, told = await tier.ask()
    assert (told, [found.chunk.chunk_id for found in result.hits]) == ("miss", [2, 3])


async def test_a_change_elsewhere_keeps_the_entry() -> None:
    tier = Tier()
    await tier.ask()
    for version in range(2, 50):
        tier.world.change(removed=frozenset({1000 + version}))
        result, told = await tier.ask()
        assert (told, result.kb_version) == ("hit", version)
    assert tier.search.made == 1


@pytest.mark.parametrize("certain", [False, True])
async def test_a_degraded_search_is_kept_for_nobody_and_said_to_all(*, certain: bool) -> None:
    tier = Tier()
    tier.search.degraded, tier.search.certain = True, certain
    tier.search.go.clear()
    contexts = [context_of(tier.clock) for _ in range(3)]
    asked = [asyncio.create_task(tier.retriever.retrieve(ctx, ASKED)) for ctx in contexts]
    await settle()
    tier.search.go.set()
    await asyncio.gather(*asked)
    assert tier.search.made == 1
    assert [len(ctx.degradations) for ctx in contexts] == [1, 1, 1]
    tier.search.degraded = False
    assert (await tier.ask())[1] == "miss"


async def test_a_failure_is_not_kept() -> None:
    tier = Tier()
    tier.search.error = EngineError("no")
    with pytest.raises(EngineError):
        await tier.ask()
    tier.search.error = None
    assert (await tier.ask())[1] == "miss"


async def test_finding_nothing_is_kept_for_five_minutes() -> None:
    tier = Tier()
    tier.search.hits = ()
    await tier.ask()
    tier.clock.advance(299.0)
    assert (await tier.ask())[1] == "hit"
    tier.clock.advance(2.0)
    assert (await tier.ask())[1] == "miss"


async def test_who_wants_no_cache_gets_none() -> None:
    tier = Tier()
    await tier.ask()
    ctx = context_of(tier.clock)
    ctx.no_cache = True
    await tier.retriever.retrieve(ctx, ASKED)
    assert (ctx.cache["retrieval"], tier.search.made) == ("bypass", 2)


async def test_a_question_without_end_is_not_kept() -> None:
    tier = Tier()
    long = msgspec.structs.replace(ASKED, query="x" * 100_000)
    await tier.ask(long)
    assert (await tier.ask(long))[1] == "bypass"


class Process(Values):
    """Shared values with claims, as two processes see them."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[bytes, str] = {}

    async def claim(self, key: bytes, holder: str, life_s: float) -> bool:
        del life_s
        return self.claims.setdefault(key, holder) == holder

    async def release(self, key: bytes, holder: str) -> None:
        if self.claims.get(key) == holder:
            del self.claims[key]


async def test_two_processes_make_one_search() -> None:
    values, world = Process(), World()
    one, other = Tier(values, world, "one"), Tier(values, world, "other")
    one.search.go.clear()
    first = asyncio.create_task(one.ask())
    await settle()
    second = asyncio.create_task(other.ask())
    await settle()
    one.search.go.set()
    assert (await first)[1] == "miss"
    assert (await second)[1] == "hit"
    assert (one.search.made, other.search.made) == (1, 0)


async def test_a_process_that_died_with_its_claim_is_not_waited_for_long() -> None:
    values, world = Process(), World()
    tier = Tier(values, world, "other")
    key = digest(retrieval_key(Principal(), ASKED, SETUP))
    values.claims[key + (1).to_bytes(8, "big")] = "dead"
    loop = asyncio.get_running_loop()
    began = loop.time()
    # The clock of the deadline stands still, the loop's own bounds the wait.
    tier.clock.advance(0.0)
    ctx = context_of(tier.clock)
    task = asyncio.create_task(tier.retriever.retrieve(ctx, ASKED))
    while not task.done() and loop.time() - began < 5.0:
        tier.clock.advance(0.05)
        await asyncio.sleep(0.01)
    assert (await task).hits
    assert tier.search.made == 1


async def test_waiting_for_another_process_leaves_time_to_search() -> None:
    values, world = Process(), World()
    tier = Tier(values, world, "other")
    key = digest(retrieval_key(Principal(), ASKED, SETUP))
    values.claims[key + (1).to_bytes(8, "big")] = "dead"
    ctx = context_of(tier.clock)
    ctx.deadline = Deadline.after(1.0, tier.clock)
    task = asyncio.create_task(tier.retriever.retrieve(ctx, ASKED))
    while not task.done() and tier.clock.now() < 2.0:
        await asyncio.sleep(0.005)
        tier.clock.advance(0.005)
    assert (await task).hits
    assert not ctx.deadline.expired()


async def test_a_search_that_failed_is_not_waited_for() -> None:
    values, world = Process(), World()
    one, other = Tier(values, world, "one"), Tier(values, world, "other")
    one.search.error = EngineError("no")
    with pytest.raises(EngineError):
        await one.ask()
    assert values.claims == {}
    began = asyncio.get_running_loop().time()
    assert (await other.ask())[1] == "miss"
    assert asyncio.get_running_loop().time() - began < 0.1


async def test_a_search_that_may_not_be_kept_lets_the_waiting_go() -> None:
    values, world = Process(), World()
    one, other = Tier(values, world, "one"), Tier(values, world, "other")
    one.search.degraded = True
    one.search.go.clear()
    first = asyncio.create_task(one.ask())
    await settle()
    second = asyncio.create_task(other.ask())
    await settle()
    one.search.go.set()
    await first
    assert (await second)[1] == "miss"
    assert (one.search.made, other.search.made) == (1, 1)


async def test_who_has_nothing_to_keep_takes_nothing_good_away() -> None:
    """Its claim ran out while it searched, and another process has made the value meanwhile."""
    values, world = Process(), World()
    slow, other, third = (Tier(values, world, name) for name in ("slow", "other", "third"))
    slow.search.degraded = True
    slow.search.go.clear()
    first = asyncio.create_task(slow.ask())
    await settle()
    values.claims.clear()
    assert (await other.ask())[1] == "miss"
    slow.search.go.set()
    await first
    assert (await third.ask())[1] == "hit"
    assert (other.search.made, third.search.made) == (1, 0)


async def test_without_a_lease_processes_keep_to_themselves() -> None:
    values, world = Process(), World()
    world.leased = False
    tier = Tier(values, world)
    await tier.ask()
    assert (await tier.ask())[1] == "hit"
    assert values.held == {}
    assert values.claims == {}
