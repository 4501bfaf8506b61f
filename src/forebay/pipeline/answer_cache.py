"""L3: the answering life, with answers that a rule allows to be kept (F1.9).

Exact matches are looked up before anything is reserved. Equal questions that come while the first
is being answered join its stream. What is kept was complete, undegraded and supported by its
passages, and is served as long as a fresh search would find the very same ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import msgspec

from forebay.cache.broadcast import Broadcasts, HandOver
from forebay.cache.claims import Claims
from forebay.cache.rules import AnswerRules, Asked, Made
from forebay.cache.settings import AnswerRule
from forebay.cache.versioned import Entry, Found, VersionedTier
from forebay.kernel.caching import Served, ServedVersions
from forebay.kernel.clock import Clock
from forebay.kernel.context import Principal, Priority, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.kernel.streams import closing
from forebay.pipeline.answer import question_of
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    Answering,
    AnswerRequest,
    Rests,
    StoredAnswer,
    Usage,
)
from forebay.pipeline.near_answers import NearAnswers
from forebay.pipeline.recollection import ChargeAtOnce, KeptAnswer, Recollection

log = logging.getLogger("forebay.cache")

TIER = "answer"
NEAR = "near"
MAX_CHARACTERS = 16_384
"""Nobody says more than that twice, and to spell it canonically takes its time."""
KeyOf = Callable[[Principal, AnswerRequest, AnswerRule], bytes]
Charge = Callable[[RequestContext, str], Awaitable[int]]
Attend = Callable[[RequestContext], AbstractContextManager[None]]


class AnswerCacheParts(msgspec.Struct, frozen=True):
    """What the tier works with; ``clock`` is the wall's, ``claims`` None: no other process.

    ``rules`` answers those in force. ``charge`` takes what a question costs that is answered from
    here, and says how many tokens that is; ``attend`` counts who listens to somebody else's answer
    as in work. ``unsupported`` is the share of a text's statements that no passage holds.
    ``charge_at_once`` None: nothing is remembered for those who ask the very same.
    """

    tier: VersionedTier[StoredAnswer]
    serving: ServedVersions
    rules: Callable[[], AnswerRules]
    key_of: KeyOf
    charge: Charge
    attend: Attend
    unsupported: Callable[[str, Sequence[Hit]], float]
    clock: Clock
    claims: Claims | None = None
    near: NearAnswers | None = None
    charge_at_once: ChargeAtOnce | None = None


class _Question(msgspec.Struct, frozen=True):
    """One request that a rule allows to be answered from here."""

    principal: Principal
    request: AnswerRequest
    text: str
    rule: AnswerRule
    key: bytes
    served: Served


class _Joining(NamedTuple):
    """What those have in common who may hear one stream.

    What began before a change was acknowledged is nothing to join after it. ``near``: nobody gets
    an answer to another question than they allow. ``priority``: nobody waits or is refused in the
    place of a lower class.
    """

    key: bytes
    version: int
    near: float | None
    priority: Priority


class _Making:
    """What becomes of a stream that this request leads."""

    fetched = False
    """Another process had made it."""


class CachedAnswering:
    """``Answering`` in front of another; says in ``ctx.cache`` what the tier did."""

    def __init__(self, inner: Answering, parts: AnswerCacheParts) -> None:
        self._inner = inner
        self._parts = parts
        self._streams: Broadcasts[_Joining, AnswerDelta | AnswerEnd] = Broadcasts()
        self.kept = 0
        self.refusals: dict[str, int] = {}

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Answering``."""
        return await self._inner.search(ctx, request)

    def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncIterator[AnswerDelta | AnswerEnd]:
        """See ``Answering``."""
        rule, text = self._rule(ctx.principal, request)
        if rule is not None and not ctx.no_cache:
            return self._from_tier(ctx, request, text, rule)
        if rule is not None:
            ctx.cache[TIER] = "bypass"
        return self._inner.answer(ctx, request)

    def statistics(self) -> dict[str, int]:
        """Answers under way, made, joined and kept."""
        refused = {f"refused_{why}": count for why, count in self.refusals.items()}
        return {**self._streams.statistics(), "kept": self.kept, **refused}

    async def explain(
        self, principal: Principal, request: AnswerRequest, served: Served
    ) -> tuple[AnswerRule | None, Found[StoredAnswer]]:
        """The rule that holds for a request, and what memory would do, without doing it."""
        rule, _ = self._rule(principal, request)
        if rule is None:
            return None, Found("absent")
        return rule, self._parts.tier.seen(self._parts.key_of(principal, request, rule), served)

    async def explain_shared(
        self, principal: Principal, request: AnswerRequest, served: Served
    ) -> Found[StoredAnswer]:
        """What the store that processes share would do, without doing it."""
        rule, _ = self._rule(principal, request)
        if rule is None:
            return Found("absent")
        key = self._parts.key_of(principal, request, rule)
        return await self._parts.tier.seen_shared(key, served)

    def recollect(
        self, ctx: RequestContext, request: AnswerRequest, tokens: int
    ) -> Recollection | None:
        """What to remember for requests equal to this one, which was just answered from memory.

        ``tokens`` is what it was charged.
        """
        parts, charge = self._parts, self._parts.charge_at_once
        served = parts.serving.current(request.kb)
        if charge is None or served is None or ctx.cache[TIER] != "hit":
            return None
        rule, _ = self._rule(ctx.principal, request)
        if rule is None:
            return None
        key = parts.key_of(ctx.principal, request, rule)
        data, entry = parts.tier.bytes_of(key), parts.tier.seen(key, served).entry
        if data is None or entry is None or entry.kb_version < served.version:
            return None
        return KeptAnswer(
            tier=parts.tier,
            serving=parts.serving,
            rules=parts.rules(),
            rules_now=parts.rules,
            charge=charge,
            key=key,
            data=data,
            entry=entry,
            tokens=tokens,
            scene=ctx.scene,
        )

    async def close(self) -> None:
        """End answers under way."""
        await self._streams.close()

    def _rule(self, principal: Principal, request: AnswerRequest) -> tuple[AnswerRule | None, str]:
        """The rule that allows this to be kept, and the question."""
        rules = self._parts.rules()
        if not len(rules):
            return None, ""
        text = question_of(request.messages)
        if sum(len(message.content) for message in request.messages) > MAX_CHARACTERS:
            return None, text
        return rules.match(Asked(request.kb, principal.tenant, request.route, text)), text

    async def _from_tier(
        self, ctx: RequestContext, request: AnswerRequest, text: str, rule: AnswerRule
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        # Others may hear it, and it may be kept: all of it goes through here.
        ctx.sink = None
        served = self._parts.serving.current(request.kb)
        if served is None:
            served = await self._parts.serving.renew(request.kb, ctx.deadline)
        key = self._parts.key_of(ctx.principal, request, rule)
        question = _Question(ctx.principal, request, text, rule, key, served)
        entry = self._parts.tier.held(key, served).entry
        if entry is not None:
            # A kept answer as a stream: its text, its citations, the version it was made from.
            ctx.cache[TIER] = "hit"
            used = await self._parts.charge(ctx, text)
            yield AnswerDelta(entry.value.text)
            yield _told(ctx, entry.value.end, used)
            return
        async with closing(self._together(ctx, question)) as events:
            async for event in events:
                yield event

    async def _together(
        self, ctx: RequestContext, question: _Question
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Answer it, or listen to whoever is being answered the same now."""
        used: int | None = None
        while True:
            making = _Making()
            stream, leads = self._streams.join(
                _Joining(
                    question.key,
                    question.served.version,
                    question.request.near,
                    ctx.principal.priority,
                ),
                partial(self._made, ctx, question, making),
                ctx.deadline,
            )
            try:
                # Who leads is in work as one whom an engine answers.
                with nullcontext() if leads else self._parts.attend(ctx):
                    async with closing(stream.events(ctx.deadline, leads=leads)) as events:
                        async for event in events:
                            if leads and not making.fetched:
                                if ctx.cache[TIER] != NEAR:
                                    ctx.cache[TIER] = "miss"
                                yield event
                                continue
                            ctx.cache[TIER] = "hit"
                            if used is None:
                                used = await self._parts.charge(ctx, question.text)
                            yield (
                                event if isinstance(event, AnswerDelta) else _told(ctx, event, used)
                            )
                return
            except HandOver:
                continue

    async def _made(
        self, ctx: RequestContext, question: _Question, making: _Making
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Another process's answer, or a fresh one that is kept if it may be."""
        stored = await self._elsewhere(ctx, question)
        if stored is not None:
            making.fetched = True
            yield AnswerDelta(stored.text)
            yield stored.end
            return
        try:
            async with closing(self._written(ctx, question)) as events:
                async for event in events:
                    yield event
        finally:
            if self._parts.claims is not None and question.served.leased:
                await self._parts.claims.release(question.key, question.served.version)

    async def _written(
        self, ctx: RequestContext, question: _Question
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """A fresh answer; others learn of it, or that there is none to wait for."""
        pieces: list[str] = []
        began_at = ctx.clock.now()
        async with closing(self._inner.answer(ctx, question.request)) as events:
            async for event in events:
                if isinstance(event, AnswerDelta):
                    pieces.append(event.text)
                elif ctx.cache[TIER] != NEAR:
                    took_s = ctx.clock.now() - began_at
                    await self._judged(question, "".join(pieces), event, took_s)
                yield event

    async def _elsewhere(self, ctx: RequestContext, question: _Question) -> StoredAnswer | None:
        """What another process has made or is making; None: this one makes it."""
        claims, served, key = self._parts.claims, question.served, question.key
        if claims is None or not served.leased:
            return None
        fetch = partial(self._parts.tier.fetched, key, served)
        entry = await claims.entry(key, served.version, fetch, ctx.deadline)
        return None if entry is None else entry.value

    async def _judged(self, question: _Question, text: str, end: AnswerEnd, took_s: float) -> None:
        try:
            await self._judge(question, text, end, took_s)
        # A whole answer: all who listen get it, whatever keeps it from being kept.
        except Exception:
            log.exception("an answer of %s was not kept", question.request.kb)
            self.refusals["failed"] = self.refusals.get("failed", 0) + 1

    async def _judge(self, question: _Question, text: str, end: AnswerEnd, took_s: float) -> None:
        """Keep an answer that is good enough; say why another is not."""
        rests = end.rests
        if rests is None or rests.found.evidence is None:
            await self._refused(question, "unknown_grounds")
            return
        made = Made(
            finish_reason=end.finish_reason,
            refused=end.refused,
            unsure=end.unsure,
            degraded=bool(end.degradations),
            cited=len(end.citations),
            invalid_citations=end.invalid_citations,
            unsupported=0.0,
            tags=[hit.chunk.tags for hit in rests.passages],
            took_s=took_s,
        )
        refusal = self._parts.rules().refusal(question.rule, made)
        if refusal is None:
            # Only now: to read every passage costs more than all else that is asked here.
            made = msgspec.structs.replace(
                made,
                unsupported=await asyncio.to_thread(self._parts.unsupported, text, rests.passages),
            )
            refusal = self._parts.rules().refusal(question.rule, made)
        if refusal is not None:
            await self._refused(question, refusal)
            return
        await self._keep(question, text, end, rests)

    async def _keep(self, question: _Question, text: str, end: AnswerEnd, rests: Rests) -> None:
        assert rests.found.evidence is not None
        documents = dict.fromkeys(hit.chunk.document_id for hit in rests.passages)
        stored = StoredAnswer(
            text=text,
            end=msgspec.structs.replace(end, rests=None),
            rule=question.rule.name,
            documents=tuple(documents),
        )
        entry = Entry(
            kb=question.request.kb,
            kb_version=end.kb_version,
            top_k=question.request.top_k,
            made_at=self._parts.clock.now(),
            life_s=question.rule.life_s,
            evidence=rests.found.evidence,
            value=stored,
        )
        self._parts.tier.keep(question.key, entry)
        self.kept += 1
        if self._parts.near is not None:
            await self._parts.near.learn(
                question.principal, question.request, question.rule, question.key
            )
        if question.served.leased:
            await self._parts.tier.share(question.key, entry)

    async def _refused(self, question: _Question, why: str) -> None:
        self.refusals[why] = self.refusals.get(why, 0) + 1
        if question.served.leased and self._parts.claims is not None:
            await self._parts.claims.give_up(question.key, question.served.version)


def _told(ctx: RequestContext, end: AnswerEnd, used: int) -> AnswerEnd:
    """The end of an answer that was made for somebody else, as this request is told it."""
    ctx.rung, ctx.kb_version = end.rung, end.kb_version
    ctx.degradations.extend(end.degradations)
    return msgspec.structs.replace(end, usage=Usage(used, 0))
