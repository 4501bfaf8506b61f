"""Kept answers to questions that say the same in other words; off unless a rule allows it.

It takes the question's vector, so it comes after the reservation, and only for questions that
stand alone: what an earlier turn said is not in the words that are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.cache.near import NearQuestions
from forebay.cache.rules import AnswerRules, Asked
from forebay.cache.settings import AnswerRule
from forebay.cache.versioned import VersionedTier
from forebay.kernel.caching import Served, ServedVersions
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import Embedder
from forebay.pipeline.messages import AnswerRequest, StoredAnswer

EMBED_S = 0.08
"""A near match is no reason to wait longer for a vector than a search does (F2.10)."""
MAX_CHARACTERS = 512


class NearParts(msgspec.Struct, frozen=True):
    """What near matches work with; ``scope_of`` is the key of everything but the question.

    ``asked`` hears that a request has asked the embedder for the vector of a text.
    """

    questions: NearQuestions
    tier: VersionedTier[StoredAnswer]
    serving: ServedVersions
    rules: Callable[[], AnswerRules]
    scope_of: Callable[[Principal, AnswerRequest, AnswerRule], bytes]
    embedder: Embedder
    min_cosine: float
    asked: Callable[[RequestContext, str], None]


class NearAnswers:
    """Looks for an answer to what was asked before in other words, and learns what was asked."""

    def __init__(self, parts: NearParts) -> None:
        self._parts = parts

    async def find(self, ctx: RequestContext, request: AnswerRequest) -> StoredAnswer | None:
        """A kept answer that will do; None: there is none, or nobody may be given one."""
        text = _alone(request)
        if text is None or ctx.no_cache:
            return None
        rule = self._parts.rules().match(
            Asked(request.kb, ctx.principal.tenant, request.route, text)
        )
        if rule is None or not rule.near:
            return None
        served = self._parts.serving.current(request.kb)
        if served is None:
            served = await self._parts.serving.renew(request.kb, ctx.deadline)
        vector = await self._vector(text, ctx)
        if vector is None:
            return None
        scope = self._parts.scope_of(ctx.principal, request, rule)
        least = max(self._parts.min_cosine, request.near or 0.0)
        for key in self._parts.questions.find(scope, text, vector, least):
            entry = self._parts.tier.held(key, served).entry
            if entry is not None:
                self._parts.questions.found += 1
                return entry.value
        return None

    def seen(
        self, principal: Principal, request: AnswerRequest, served: Served, vector: Vectors
    ) -> bool:
        """Whether ``find`` would find one for a question with this vector; nothing is counted."""
        text = _alone(request)
        if text is None:
            return False
        rule = self._parts.rules().match(Asked(request.kb, principal.tenant, request.route, text))
        if rule is None or not rule.near:
            return False
        row = np.frombuffer(vector.data, np.float32)
        scope = self._parts.scope_of(principal, request, rule)
        keys = self._parts.questions.seen(scope, text, row, self._parts.min_cosine)
        return any(self._parts.tier.seen(key, served).entry is not None for key in keys)

    async def learn(
        self, principal: Principal, request: AnswerRequest, rule: AnswerRule, key: bytes
    ) -> None:
        """An answer to ``request`` was kept under ``key``."""
        text = _alone(request)
        if text is None or not rule.near:
            return
        vector = await self._vector(text)
        if vector is not None:
            scope = self._parts.scope_of(principal, request, rule)
            self._parts.questions.add(scope, key, text, vector)

    async def _vector(
        self, text: str, ctx: RequestContext | None = None
    ) -> npt.NDArray[np.float32] | None:
        try:
            async with asyncio.timeout(EMBED_S):
                found = await self._parts.embedder.embed([text], kind="query")
        # An embedder is foreign code behind a protocol; without its vector this is no match.
        except Exception:
            return None
        if ctx is not None and found.cached is not None:
            ctx.cache["embedding"] = "hit" if found.cached else "miss"
            self._parts.asked(ctx, text)
        return np.frombuffer(found.data, np.float32)


def _alone(request: AnswerRequest) -> str | None:
    """The question of a request that is nothing but that."""
    if len(request.messages) != 1 or request.near == 1.0:
        return None
    text = request.messages[0].content
    return text if len(text) <= MAX_CHARACTERS else None
