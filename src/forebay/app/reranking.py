"""The rerankers of a process, opened as the settings ask and put over its search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from forebay.app.bearer_keys import bearer_key
from forebay.app.caching import TierOpener, open_tiers
from forebay.app.late import open_late
from forebay.app.nearest import NearestScorer, nearest_sentences
from forebay.app.runtime import Reading
from forebay.app.settings import RerankSettings, Settings, environment
from forebay.cache.keys import settings_digest
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Embedder, Reranker, Retriever
from forebay.pipeline.reranking import RerankingParts, RerankingRetriever
from forebay.rerank.cross_encoder import CrossEncoder, CrossEncoderReranker
from forebay.rerank.endpoint import EndpointReranker
from forebay.rerank.light import LightModel
from forebay.rerank.sentences import SentenceReranker, SentenceSettings
from forebay.rerank.settings import DearSettings

DearOpener = Callable[[Embedder, AsyncExitStack], Awaitable[Reranker]]
"""Opens the dear reranker over an embedder; the stack closes it."""


class Reranking(msgspec.Struct, frozen=True):
    """What orders hits anew (None: nobody), and what stands for it in keys of results."""

    parts: RerankingParts | None = None
    mark: str = ""

    def statistics(self) -> dict[str, float]:
        """Figures of the rerankers; none where nothing is ordered anew."""
        return {} if self.parts is None else self.parts.tally.statistics()

    def shortcomings(self) -> tuple[str, ...]:
        """Rerankers that keep failing, in sentences."""
        return () if self.parts is None else self.parts.tally.shortcomings()

    def over(self, retriever: Retriever) -> Retriever:
        """The retriever, with its hits ordered anew."""
        return retriever if self.parts is None else RerankingRetriever(retriever, self.parts)


@asynccontextmanager
async def open_reranking(reading: Reading) -> AsyncIterator[Reranking]:
    """Open what the settings of a process ask for."""
    settings, executor = reading.settings.rerank, reading.threads.executor
    dear = partial(_dear, reading)
    async with open_rankers(settings, reading.embedder, executor, dear) as reranking:
        parts, sentences = reranking.parts, nearest_sentences(reading)
        if parts is not None and sentences is not None:
            parts = msgspec.structs.replace(parts, light=NearestScorer(parts.light, sentences))
        yield msgspec.structs.replace(reranking, parts=parts)


@asynccontextmanager
async def open_rankers(
    settings: RerankSettings, embedder: Embedder | None, executor: Executor, open_dear: DearOpener
) -> AsyncIterator[Reranking]:
    """Open what ``rerank`` asks for; ``ConfigError`` names the setting at fault.

    Backend ``auto`` orders nothing anew where the shipped model is not of the embedder in use.
    """
    async with AsyncExitStack() as stack:
        model = await _light(settings, embedder)
        if model is None or embedder is None:
            yield Reranking()
            return
        dear: Reranker | None = None
        if settings.backend == "cascade":
            dear = await open_dear(embedder, stack)
        parts = RerankingParts(
            light=model,
            executor=executor,
            settings=settings,
            dear=dear,
            cascade=settings.cascade,
        )
        yield Reranking(parts, f"{model.info.mark} {settings_digest(settings)}")


async def open_ranked_tiers(
    stack: AsyncExitStack, reading: Reading, *, share: bool
) -> tuple[TierOpener, Reranking]:
    """The tiers, and what orders hits anew, which is in their keys; ``stack`` closes both."""
    reranking = await stack.enter_async_context(open_reranking(reading))
    opening = open_tiers(reading, share=share, ranked_by=reranking.mark)
    return await stack.enter_async_context(opening), reranking


async def _dear(reading: Reading, embedder: Embedder, stack: AsyncExitStack) -> Reranker:
    settings = reading.settings.rerank.dear
    if settings.backend == "late":
        return await stack.enter_async_context(open_late(settings.late, reading))
    return await open_dear(settings, reading.settings, embedder, stack)


async def open_dear(
    settings: DearSettings, all_settings: Settings, embedder: Embedder, stack: AsyncExitStack
) -> Reranker:
    """The dear reranker, ``late`` apart; ``stack`` closes it."""
    if settings.backend == "endpoint":
        where = "rerank.dear.endpoint"
        key = await asyncio.to_thread(bearer_key, settings.endpoint, where, environment())
        plain = msgspec.structs.replace(
            settings.endpoint, api_key=key, api_key_env="", api_key_file=""
        )
        endpoint = EndpointReranker(plain)
        stack.push_async_callback(endpoint.close)
        return endpoint
    if settings.backend == "onnx":
        loaded = await asyncio.to_thread(CrossEncoder, settings.onnx)
        encoder = CrossEncoderReranker(loaded, settings.onnx)
        stack.push_async_callback(encoder.close)
        return encoder
    return SentenceReranker(embedder, sentences_of(all_settings))


async def _light(settings: RerankSettings, embedder: Embedder | None) -> LightModel | None:
    wanted = settings.backend
    if wanted == "off" or (embedder is None and wanted == "auto"):
        return None
    if embedder is None:
        raise ConfigError(
            f"rerank.backend {wanted} orders by vectors, and embedding.backend is none; "
            "choose an embedder or set rerank.backend to off.",
            param="rerank.backend",
        )
    path = settings.light.path
    model = await asyncio.to_thread(
        lambda: LightModel.read(Path(path)) if path else LightModel.shipped()
    )
    if model.info.embedder == embedder.spec.fingerprint:
        return model
    if wanted == "auto" and not path:
        return None
    raise ConfigError(
        "the light reranker was trained on another embedder; train one for this embedder with "
        "`forebay distill` and name it in rerank.light.path.",
        param="rerank.light.path",
    )


def sentences_of(settings: Settings) -> SentenceSettings:
    """``rerank.dear.sentences``; a curve left as it is follows the built-in embedder's setting."""
    asked, usual = settings.rerank.dear.sentences, SentenceSettings()
    uncentered = settings.embedding.backend == "e5" and not settings.embedding.center_languages
    if uncentered and (asked.middle, asked.width) == (usual.middle, usual.width):
        return msgspec.structs.replace(asked, middle=0.86, width=0.02)
    return asked
