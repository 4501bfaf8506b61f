"""The ladders: rungs of retrieval as a list, best first, with the parts they need; engines."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from forebay.app.runtime import Reading, light_queries
from forebay.app.settings import Settings
from forebay.generation.extractive import ExtractiveGenerator
from forebay.kernel.stages import Embedder, Retriever, TokenCounter
from forebay.pipeline.answer import AnswerParts
from forebay.pipeline.reranking import RerankingParts
from forebay.policy.breaker import Breaker, BreakerSettings
from forebay.policy.engine_ladder import EngineLadder
from forebay.policy.ladder import LadderRetriever, Part, Rung
from forebay.retrieval import (
    HybridRetriever,
    KeywordRetriever,
    LightRetriever,
    MeaningRetriever,
    WordsRetriever,
)
from forebay.retrieval.keyword import KEYWORD
from forebay.retrieval.light import LIGHT
from forebay.retrieval.retriever import HYBRID, MEANING
from forebay.retrieval.searching import VECTORS_PART, WORDS_PART
from forebay.retrieval.words import WORDS


def over_engines(parts: AnswerParts, settings: Settings, counter: TokenCounter) -> AnswerParts:
    """Engines that do not begin are left for the small pool, and that for quoting."""
    generation = settings.generation
    if not generation.ladder.enabled or generation.backend == "extractive":
        return parts
    quoting = ExtractiveGenerator(counter, generation.extractive)
    shared = (parts.admission, generation.ladder)
    return msgspec.structs.replace(
        parts,
        generator=EngineLadder(parts.generator, quoting, *shared),
        engines=EngineLadder(parts.generator, None, *shared),
        quoting=quoting,
        spares=generation.ladder.spares(),
        engine_spares=generation.ladder.spares(quotes=False),
    )


@asynccontextmanager
async def open_ladder(
    reading: Reading, embedder: Embedder | None, reranking: RerankingParts | None = None
) -> AsyncIterator[LadderRetriever]:
    """Retrieval of a process; ``embedder`` remembers what ``reading``'s own made.

    ``reranking``: what stands above it.
    """
    settings, clock, chance = reading.settings.retrieval, reading.clock, random.SystemRandom()
    shared = (settings, reading.threads.executor)
    get = reading.indexes.get
    keyword = KeywordRetriever(get, settings, clock)
    words = WordsRetriever(get, *shared, chosen=embedder is None)
    rungs = [Rung(WORDS, words, (WORDS_PART,)), Rung(KEYWORD, keyword)]
    parts = [_part(WORDS_PART, settings.ladder.words, settings.words_timeout_ms, words, chance)]
    if embedder is not None and reading.embedder is not None:
        # A remembered vector says nothing of the embedder.
        probe = MeaningRetriever(get, reading.embedder, *shared)
        # Elsewhere the light model has a time-out of its own, and what it says decides whether a
        # dear one is asked.
        here = settings.embed_in_line and reranking is not None and reranking.dear is None
        scorer = reranking.light.relevances if here and reranking is not None else None
        ranked = reranking is not None
        hybrid = HybridRetriever(get, embedder, *shared, with_vectors=ranked, scorer=scorer)
        light = light_queries(reading)
        lightly: list[Rung] = []
        if light is not None:
            fingerprint = reading.embedder.spec.fingerprint
            spare = LightRetriever(get, light, fingerprint, *shared)
            lightly = [Rung(LIGHT, spare, (WORDS_PART,))]
            if settings.light_queries == "first":
                hybrid.lightly(light)
        rungs = [
            Rung(HYBRID, hybrid, (VECTORS_PART, WORDS_PART)),
            *lightly,
            rungs[0],
            Rung(MEANING, MeaningRetriever(get, embedder, *shared), (VECTORS_PART,), spare=True),
            rungs[1],
        ]
        timeout_ms = settings.vector_timeout_ms
        parts += [_part(VECTORS_PART, settings.ladder.vector, timeout_ms, probe, chance)]
    ladder = LadderRetriever(rungs, parts, clock)
    try:
        yield ladder
    finally:
        await ladder.close()
        keyword.close()


def _part(
    name: str,
    settings: BreakerSettings,
    timeout_ms: float,
    probe: Retriever,
    chance: random.Random,
) -> Part:
    good_ms = min(timeout_ms, settings.latency_ms or timeout_ms)
    return Part(name, Breaker(settings, chance.random), probe, good_ms / 1000.0)
