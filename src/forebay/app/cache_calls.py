"""What a running server does for ``forebay cache``: shows its tiers, explains, forgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from forebay.app.caching import Tiers
from forebay.app.figures import Collected
from forebay.cache.versioned import Verdict
from forebay.kernel.caching import Served, ServedVersions
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import Principal
from forebay.kernel.errors import InvalidRequest, Unavailable
from forebay.kernel.stages import Message, SearchRequest
from forebay.pipeline.messages import AnswerRequest, Route
from forebay.store.remote import Emit, Handler
from forebay.telemetry.merging import Page, merged

STATS, EXPLAIN, PURGE = "cache.stats", "cache.explain", "cache.purge"
RENEW_S = 5.0
_FAMILIES = ("forebay_cache", "forebay_cache_bytes", "forebay_cache_entries")
_EVENTS = "forebay_cache_events"

TierName = Literal["answer", "retrieval", "embedding"]
_WHY: Mapping[Verdict, str] = {
    "hit": "kept, and nothing that happened since can have altered it.",
    "absent": "nothing is kept for this question with these rights and settings.",
    "expired": "what was kept has lived its life.",
    "touched": "a change of the knowledge base may have altered what was kept.",
    "behind": "what was kept cannot be judged yet: a change has only just come.",
    "unreadable": "what was kept cannot be read by this release.",
}

_SHARED = (
    "kept in the store that processes share, and nothing that happened since can have altered it."
)


class ExplainCall(msgspec.Struct, frozen=True):
    """A question, and whose it would be; ``groups`` None: all rights."""

    kb: str
    query: str
    top_k: int = 5
    tenant: str = "default"
    groups: tuple[str, ...] | None = None
    route: Route = "chat"


class Finding(msgspec.Struct, frozen=True):
    """What one tier would do."""

    tier: TierName
    verdict: Literal["hit", "near", "miss", "off"]
    why: str


class PurgeCall(msgspec.Struct, frozen=True):
    """Forget what is kept of one knowledge base; empty: of all."""

    kb: str = ""


class CacheCalls:
    """The calls of one serving process; ``told`` hears of a purge, to tell the others."""

    def __init__(
        self,
        tiers: Tiers,
        serving: ServedVersions,
        collect: Callable[[], Awaitable[Collected]],
        clock: Clock,
    ) -> None:
        self._tiers = tiers
        self._serving = serving
        self._collect = collect
        self._clock = clock
        self.told: Callable[[str], None] = lambda _kb: None

    def handlers(self) -> Mapping[str, Handler]:
        """What the folder's socket offers."""

        async def stats(_payload: Any, _emit: Emit) -> dict[str, dict[str, float]]:
            return await self.statistics()

        async def explain(payload: Any, _emit: Emit) -> list[Finding]:
            return await self.explain(msgspec.convert(payload, ExplainCall))

        async def purge(payload: Any, _emit: Emit) -> int:
            return await self.purge(msgspec.convert(payload, PurgeCall))

        return {STATS: stats, EXPLAIN: explain, PURGE: purge}

    async def statistics(self) -> dict[str, dict[str, float]]:
        """Tier to figure to value, over every process of the service."""
        collected = await self._collect()
        pages: list[Page] = [*collected.answered.values()]
        ended = [*collected.silent.values(), collected.ended]
        return _figures(merged(pages, ended))

    async def explain(self, call: ExplainCall) -> list[Finding]:
        """What each tier would do with a question in this process, without doing it: its memory
        first, then what processes share.
        """
        if not call.query.strip():
            raise InvalidRequest("the query is empty.", param="query")
        served = await self._served(call.kb)
        groups = None if call.groups is None else frozenset(call.groups)
        principal = Principal(tenant=call.tenant, groups=groups)
        search = SearchRequest(call.kb, call.query, call.top_k)
        asked = AnswerRequest(
            call.kb, (Message("user", call.query),), top_k=call.top_k, route=call.route
        )
        found = await self._answer(principal, asked, served)
        retrieval = await self._retrieval(principal, search, served)
        findings = (found, retrieval, await self._embedding(call.query))
        return [one for one in findings if one is not None]

    async def _answer(
        self, principal: Principal, asked: AnswerRequest, served: Served
    ) -> Finding | None:
        """None: this process answers nothing."""
        answers = self._tiers.answers
        if answers is None:
            return None
        rule, kept = await answers.explain(principal, asked, served)
        if rule is None:
            return Finding("answer", "off", "no rule allows answers to it to be kept.")
        before = f"rule {rule.name}: "
        if kept.entry is None:
            shared = await answers.explain_shared(principal, asked, served)
            if shared.entry is not None:
                return Finding("answer", "hit", before + _SHARED)
            if self._nearby(principal, asked, served):
                why = "the answer to a question that says the same will do."
                return Finding("answer", "near", before + why)
        return _finding("answer", kept.verdict, before)

    async def _retrieval(
        self, principal: Principal, search: SearchRequest, served: Served
    ) -> Finding:
        retriever = self._tiers.retriever
        if retriever is None:
            return Finding("retrieval", "off", "cache.retrieval.enabled is false.")
        kept = retriever.explain(principal, search, served)
        if kept.entry is None:
            shared = await retriever.explain_shared(principal, search, served)
            if shared.entry is not None:
                return Finding("retrieval", "hit", _SHARED)
        return _finding("retrieval", kept.verdict)

    async def _embedding(self, query: str) -> Finding:
        embedder = self._tiers.embedder
        if embedder is None:
            return Finding("embedding", "off", "there is no embedder, or it is off.")
        if embedder.holds(query):
            return _finding("embedding", "hit")
        if await embedder.holds_shared(query):
            return Finding("embedding", "hit", "kept in the store that processes share.")
        return _finding("embedding", "absent")

    async def _served(self, kb: str) -> Served:
        """What may be served of a kb; ``NotFound`` without one."""
        served = self._serving.current(kb)
        if served is None:
            served = await self._serving.renew(kb, Deadline.after(RENEW_S, self._clock))
        return served

    def _nearby(self, principal: Principal, asked: AnswerRequest, served: Served) -> bool:
        """Whether an answer to what says the same is kept; not known without the vector."""
        if self._tiers.nearby is None or self._tiers.embedder is None:
            return False
        vector = self._tiers.embedder.seen(asked.messages[0].content)
        return vector is not None and self._tiers.nearby.seen(principal, asked, served, vector)

    async def purge(self, call: PurgeCall) -> int:
        """Forget, here and in every process that hears of it; how many entries that was here.

        What processes share goes first, lest somebody fetch it again: all of it, since its keys do
        not tell whose they are.
        """
        if call.kb:
            await self._served(call.kb)  # a misspelt name must not empty what all share
        failed: Unavailable | None = None
        if self._tiers.shared is not None:
            try:
                await self._tiers.shared.clear()
            except Unavailable as error:
                failed = error
        count = self._tiers.purge(call.kb)
        self.told(call.kb)
        if failed is not None:
            raise failed
        return count


def _finding(tier: TierName, verdict: Verdict, before: str = "") -> Finding:
    return Finding(tier, "hit" if verdict == "hit" else "miss", before + _WHY[verdict])


def _figures(page: Page) -> dict[str, dict[str, float]]:
    """The families of the tiers, by tier."""
    found: dict[str, dict[str, float]] = {}
    for family in page:
        for name, labels, value in family.samples:
            known = dict(labels)
            if name.endswith("_created") or "tier" not in known:
                continue
            figures = found.setdefault(known["tier"], {})
            if family.name == "forebay_cache":
                figures[known["result"]] = value
            elif family.name == _EVENTS:
                figures[known["event"]] = value
            elif family.name in _FAMILIES:
                figures[family.name.removeprefix("forebay_cache_")] = value
    return found
