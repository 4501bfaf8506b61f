"""The cache tiers of one process, put together: what each key is made of, who shares what."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from forebay import __version__
from forebay.app.runtime import Reading
from forebay.app.settings import Settings
from forebay.cache.askers import Askers, DiscreetRetriever
from forebay.cache.carrying import carried
from forebay.cache.claims import Claims
from forebay.cache.decoded import Decoded
from forebay.cache.embeddings import CachedEmbedder
from forebay.cache.keys import (
    PromptSetup,
    Setup,
    answer_key,
    digest,
    retrieval_key,
    settings_digest,
)
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.near import NearQuestions, least_cosine
from forebay.cache.prompts import PreparedPrompts, Prompting, Tokens
from forebay.cache.retrieval import CachedRetriever, KeptHits, RetrievalTierParts
from forebay.cache.rules import AnswerRules
from forebay.cache.sessions import Sessions
from forebay.cache.settings import AnswerRule, CacheSettings
from forebay.cache.shared_redis import RedisValues
from forebay.cache.values import KIND_ANSWER, KIND_RETRIEVAL, Codec, StructCodec
from forebay.cache.versioned import Entry, TierParts, VersionedTier
from forebay.context.attribution import unsupported_share
from forebay.gateway.replay import Replays
from forebay.kernel.caching import SharedValues
from forebay.kernel.clock import Clock, WallClock
from forebay.kernel.context import Principal
from forebay.kernel.stages import Embedder, Retriever, SearchRequest
from forebay.pipeline.answer_cache import (
    AnswerCacheParts,
    Attend,
    CachedAnswering,
    Charge,
)
from forebay.pipeline.messages import Answering, AnswerRequest, StoredAnswer
from forebay.pipeline.near_answers import NearAnswers, NearParts
from forebay.pipeline.recollection import ChargeAtOnce
from forebay.query import with_kind
from forebay.retrieval.bounds import LoggedBounds

V = TypeVar("V")
SEARCH_PATIENCE_S = 1.0
ANSWER_PATIENCE_S = 10.0
"""How long a process waits for what another has begun: about as long as that takes."""
MARKS_KEPT = 4096
READ_BYTES = 4_000_000
"""Of entries of the retrieval tier that are kept as they were read, beside their bytes."""


class Marks:
    """Marks of versions, read from the record once each."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: OrderedDict[tuple[str, int], int | None] = OrderedDict()

    async def of(self, kb: str, version: int) -> int | None:
        """The mark of a version; None: the record tells it from no other."""
        known = self._known.get((kb, version))
        if known is None:
            known = await self._reading.threads.run(partial(self._reading.reader.mark, kb, version))
            self._known[kb, version] = known
            if len(self._known) > MARKS_KEPT:
                self._known.popitem(last=False)
        return known


class Charging(msgspec.Struct, frozen=True):
    """How those are charged whom no engine answers: for a question, and for tokens at once."""

    question: Charge
    at_once: ChargeAtOnce


class Scheme:
    """What keys are made of in this process beside requests."""

    def __init__(
        self,
        settings: Settings,
        identity: str,
        fingerprint: str,
        template: str,
        rules: Callable[[], AnswerRules],
        ranked_by: str = "",
    ) -> None:
        """``ranked_by`` stands for what orders hits anew."""
        self._rules = rules
        # Another release may score hits, write prompts and quote by other means.
        searched_by = f"{settings_digest(settings.retrieval)} {ranked_by} {__version__}"
        self._setup = Setup(identity, fingerprint, searched_by, "")
        made_by = (settings.generation, settings.context, settings.query)
        self._with_kind = with_kind if settings.query.enabled else None
        self.prompt = PromptSetup(template, settings_digest(*made_by), __version__)
        # Then a class has engines, and so a model, of its own (F0.8).
        self._by_class = any(pool.priorities for pool in settings.admission.pools.values())

    def retrieval(self, principal: Principal, request: SearchRequest) -> bytes:
        """The key of a search, as the retriever is told it."""
        if self._with_kind is not None:
            request = self._with_kind(request)
        return digest(retrieval_key(principal, request, self._setup))

    def answer(self, principal: Principal, request: AnswerRequest, rule: AnswerRule) -> bytes:
        """The key of an answer under a rule."""
        search = SearchRequest(request.kb, "", request.top_k, request.filter)
        more: dict[str, object] = {
            "extras": request.extras,
            "rule": settings_digest(rule),
            "max_unsupported": self._rules().max_unsupported,
        }
        if self._by_class:
            more["priority"] = principal.priority
        key = answer_key(
            retrieval_key(principal, search, self._setup),
            request.messages,
            request.sampling,
            self.prompt,
            more=more,
        )
        return digest(key)

    def scope(self, principal: Principal, request: AnswerRequest, rule: AnswerRule) -> bytes:
        """The key of everything but the question."""
        return self.answer(principal, msgspec.structs.replace(request, messages=()), rule)


class Tiers(msgspec.Struct):
    """The tiers of one process; ``answers`` is set when there is an answering life to wrap."""

    memory: dict[str, MemoryTier[bytes]]
    versioned: dict[str, VersionedTier[Any]]
    embedder: CachedEmbedder | None = None
    retriever: CachedRetriever | None = None
    answers: CachedAnswering | None = None
    near: NearQuestions | None = None
    nearby: NearAnswers | None = None
    shared: SharedValues | None = None
    decoded: Decoded[Entry[KeptHits]] | None = None
    prompts: PreparedPrompts | None = None
    sessions: Sessions | None = None
    prewarming: Callable[[], dict[str, float]] | None = None
    rewarming: Callable[[], dict[str, int]] | None = None
    replays: Replays | None = None
    rules: AnswerRules = AnswerRules(CacheSettings().answers)
    made_by: PromptSetup | None = None

    def reload(self, settings: CacheSettings) -> None:
        """Other rules from now on; where they say something else, kept answers are forgotten."""
        before, self.rules = self.rules, AnswerRules(settings.answers)
        if self.rules.digest != before.digest:
            self.forget_answers()

    def forget_answers(self) -> None:
        """Forget kept answers and all ways to them; what was found and embedded stays."""
        for part in (self.near, self.replays, self.memory.get("answer")):
            if part is not None:
                part.clear()

    def purge(self, kb: str = "") -> int:
        """Forget what is held, of one kb or all; return how many entries that was.

        Keys do not tell whose they are, so of one kb what is versioned is judged entry by entry.
        """
        if self.near is not None:
            # Only ways to answers; those that are kept are found again as they are asked.
            self.near.clear()
        if self.prompts is not None:
            # Nobody's to tell, and soon built.
            self.prompts.clear()
        if self.sessions is not None:
            self.sessions.clear()
        if self.replays is not None:
            # They would not be told any more, but their texts are to be gone.
            self.replays.clear()
        if self.decoded is not None:
            self.decoded.clear()
        return sum(self._purged(name, tier, kb) for name, tier in self.memory.items())

    def _purged(self, name: str, tier: MemoryTier[bytes], kb: str) -> int:
        if kb and name in self.versioned:
            versioned = self.versioned[name]
            return tier.remove_if(lambda _, data: versioned.belongs(data, kb))
        count = int(tier.statistics()["entries"])
        tier.clear()
        return count

    def statistics(self) -> dict[str, dict[str, float]]:
        """Figures by tier."""
        found = {name: dict(tier.statistics()) for name, tier in self.memory.items()}
        for name, versioned in self.versioned.items():
            found[name]["carried"] = versioned.carried
            found[name]["touched"] = versioned.verdicts["touched"]
            found[name]["unreadable"] = versioned.verdicts["unreadable"]
        for name, part in (
            ("embedding", self.embedder),
            ("retrieval", self.retriever),
            ("answer", self.answers),
        ):
            if part is not None:
                found[name].update(part.statistics())
        if self.near is not None:
            found["answer"].update(self.near.statistics())
        if self.prompts is not None:
            found["prompt"] = self.prompts.statistics()
        if self.sessions is not None:
            found["session"] = self.sessions.statistics()
        if self.replays is not None:
            found["replay"] = dict(self.replays.statistics())
        if self.rewarming is not None:
            found["retrieval"].update(self.rewarming())
        if self.prewarming is not None:
            found["prewarm"] = self.prewarming()
        return found


class TierOpener:
    """Builds the tiers of a process around its stages, each as it comes to be built."""

    def __init__(self, reading: Reading, shared: SharedValues | None, ranked_by: str = "") -> None:
        self._reading = reading
        self._ranked_by = ranked_by
        self._settings = reading.settings.cache
        self._shared = shared
        self._wall: Clock = WallClock()
        self._marks = Marks(reading)
        self._holder = secrets.token_hex(8)
        self._bounds = LoggedBounds(reading.indexes.get)
        self._identity = ""
        self._near: NearAnswers | None = None
        self._askers = Askers(self._settings.embedding.life_s, reading.clock)
        self.tiers = Tiers({}, {}, shared=shared)
        self.tiers.reload(self._settings)

    async def read(self) -> None:
        """Read from the record what keys need."""
        self._identity = await self._reading.threads.run(self._reading.reader.identity)

    def embedder(self, inner: Embedder | None) -> Embedder | None:
        """The embedder of queries, with what it remembers."""
        settings = self._settings.embedding
        if inner is None or not settings.enabled:
            return inner
        memory = self._memory("embedding", settings.max_bytes)
        cached = CachedEmbedder(inner, memory, settings, self._reading.clock, self._shared)
        self.tiers.embedder = cached
        return cached

    def retriever(self, inner: Retriever, template: str) -> Retriever:
        """The retriever, with what it found before."""
        settings = self._settings.retrieval
        if self.tiers.embedder is not None:
            inner = DiscreetRetriever(inner, self._askers)
        if not settings.enabled:
            return inner
        codec = Decoded(StructCodec(KIND_RETRIEVAL, Entry[KeptHits]), READ_BYTES)
        self.tiers.decoded = codec
        tier = self._tier("retrieval", settings.max_bytes, codec)
        parts = RetrievalTierParts(
            tier=tier,
            serving=self._reading.versions,
            key_of=self._scheme(template).retrieval,
            clock=self._wall,
            claims=self._claims(SEARCH_PATIENCE_S),
        )
        self.tiers.retriever = CachedRetriever(inner, parts, settings)
        return self.tiers.retriever

    def prompting(self, inner: Prompting, template: str) -> Prompting:
        """The builder of prompts, with those it built."""
        settings = self._settings.prompts
        if not settings.enabled:
            return inner
        self.tiers.prompts = PreparedPrompts(inner, template, settings, self._reading.clock)
        return self.tiers.prompts

    def tokens(self, inner: Tokens | None) -> Tokens | None:
        """Counts of the prompts by engines, with those that were asked for."""
        prompts = self.tiers.prompts
        return inner if prompts is None else prompts.counting(inner)

    def sessions(self) -> Sessions | None:
        """What conversations are about; None: switched off."""
        settings = self._settings.sessions
        if settings.enabled and self.tiers.sessions is None:
            self.tiers.sessions = Sessions(settings, self._reading.clock)
        return self.tiers.sessions

    def near(self, template: str) -> NearAnswers | None:
        """Answers to questions that say the same; None: switched off, or there are no vectors."""
        settings, embedder = self._settings.answers.near, self.tiers.embedder
        if not settings.enabled or embedder is None:
            return None
        self.tiers.near = NearQuestions(settings)
        parts = NearParts(
            questions=self.tiers.near,
            tier=self._answers(),
            serving=self._reading.versions,
            rules=lambda: self.tiers.rules,
            scope_of=self._scheme(template).scope,
            embedder=embedder,
            min_cosine=least_cosine(settings, embedder.spec.name),
            asked=self._askers.note,
        )
        self._near = self.tiers.nearby = NearAnswers(parts)
        return self._near

    def _answers(self) -> VersionedTier[StoredAnswer]:
        if "answer" not in self.tiers.versioned:
            codec = StructCodec(KIND_ANSWER, Entry[StoredAnswer])
            self._tier("answer", self._settings.answers.max_bytes, codec)
        return self.tiers.versioned["answer"]

    def answering(
        self, inner: Answering, template: str, charging: Charging, attend: Attend
    ) -> CachedAnswering:
        """The answering life, with answers that rules allow to be kept."""
        self.tiers.made_by = self._scheme(template).prompt
        parts = AnswerCacheParts(
            tier=self._answers(),
            serving=self._reading.versions,
            rules=lambda: self.tiers.rules,
            key_of=self._scheme(template).answer,
            charge=charging.question,
            charge_at_once=charging.at_once,
            attend=attend,
            unsupported=unsupported_share,
            clock=self._wall,
            claims=self._claims(ANSWER_PATIENCE_S),
            near=self._near,
        )
        self.tiers.answers = CachedAnswering(inner, parts)
        return self.tiers.answers

    async def close(self) -> None:
        """End what is under way."""
        for part in (self.tiers.answers, self.tiers.retriever, self.tiers.embedder):
            if part is not None:
                await part.close()

    def _scheme(self, template: str) -> Scheme:
        embedder = self._reading.embedder
        fingerprint = "" if embedder is None else embedder.spec.fingerprint
        return Scheme(
            self._reading.settings,
            self._identity,
            fingerprint,
            template,
            lambda: self.tiers.rules,
            self._ranked_by,
        )

    def _memory(self, name: str, max_bytes: int) -> MemoryTier[bytes]:
        memory: MemoryTier[bytes] = MemoryTier(
            MemorySettings(max_bytes), self._reading.clock, sys.getsizeof
        )
        self.tiers.memory[name] = memory
        return memory

    def _tier(self, name: str, max_bytes: int, codec: Codec[Entry[V]]) -> VersionedTier[V]:
        judge = partial(carried, settings=self._settings.retrieval.carrying)
        tier = VersionedTier(
            TierParts(
                memory=self._memory(name, max_bytes),
                codec=codec,
                bounds=self._bounds,
                judge=judge,
                clock=self._wall,
                shared=self._shared,
                mark_of=self._marks.of,
            )
        )
        self.tiers.versioned[name] = tier
        return tier

    def _claims(self, patience_s: float) -> Claims | None:
        return None if self._shared is None else Claims(self._shared, self._holder, patience_s)


@asynccontextmanager
async def open_tiers(
    reading: Reading, *, share: bool, ranked_by: str = ""
) -> AsyncIterator[TierOpener]:
    """What builds the tiers of a process; ``share``: with what other processes have made.

    ``ranked_by`` stands in keys for what orders hits anew.
    """
    settings = reading.settings
    async with AsyncExitStack() as stack:
        values: RedisValues | None = None
        if share and settings.cache.shared and settings.coordination.redis_url:
            values = await stack.enter_async_context(_open_values(settings, reading.clock))
        opener = TierOpener(reading, values, ranked_by)
        await opener.read()
        stack.push_async_callback(opener.close)
        yield opener


@asynccontextmanager
async def _open_values(settings: Settings, clock: Clock) -> AsyncIterator[RedisValues]:
    """Values shared through Redis, written in the background while the block runs."""
    coordination = settings.coordination
    prefix = f"{coordination.redis_prefix}:cache"
    values = RedisValues(coordination.redis_url, settings.cache.store, clock, prefix)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(values.run())
            try:
                yield values
            finally:
                task.cancel()
    finally:
        await values.close()
