"""From settings to an embedder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from forebay.embedding.centering import CenteredEmbedder, LanguageMeans
from forebay.embedding.e5 import open_e5
from forebay.embedding.encoder import SessionSettings
from forebay.embedding.light import Tokens
from forebay.embedding.local import LocalEmbedder, LocalSettings
from forebay.embedding.onnx_folder import OnnxFolderSettings, open_onnx_folder
from forebay.embedding.openai import OpenAIEmbedder, OpenAIEmbeddingSettings, require_openai
from forebay.embedding.prefixes import prefixes_for
from forebay.embedding.settings import EmbeddingSettings
from forebay.embedding.workers import WorkerSettings
from forebay.kernel.clock import Clock
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Embedder
from forebay.kernel.tokens import TokenEncoder

_REMOTE_BATCH = 64
_REMOTE_MAX_TOKENS = 512


async def open_embedder(
    settings: EmbeddingSettings, *, cache: Path, clock: Clock
) -> LocalEmbedder | CenteredEmbedder | OpenAIEmbedder | None:
    """The embedder ``settings`` ask for, loaded and warm; None for backend ``none``.

    ``ConfigError`` names the setting at fault. ``cache`` keeps the default model's files.
    """
    if settings.backend == "none":
        return None
    if settings.backend == "openai":
        return await OpenAIEmbedder.connect(openai_settings(settings))
    if settings.backend == "onnx":
        return await asyncio.to_thread(
            open_onnx_folder,
            folder_settings(settings),
            session=_session(settings),
            settings=_local(settings),
            clock=clock,
        )
    plain = await open_plain_e5(settings, cache=cache, clock=clock)
    if not settings.center_languages:
        return plain
    return CenteredEmbedder(plain, LanguageMeans.shipped())


async def open_plain_e5(settings: EmbeddingSettings, *, cache: Path, clock: Clock) -> LocalEmbedder:
    """The default model's own vectors, no language taken off."""
    prefixes = prefixes_for(
        "multilingual-e5-small", query=settings.query_prefix, passage=settings.passage_prefix
    )
    return await asyncio.to_thread(
        open_e5,
        cache,
        prefixes=prefixes,
        session=_session(settings),
        settings=_local(settings),
        clock=clock,
    )


def token_encoder(embedder: Embedder | None) -> TokenEncoder | None:
    """What gives the states of single tokens behind ``embedder``; None where nothing here does.

    They are the model's own: languages are not taken off.
    """
    inner = embedder.plain if isinstance(embedder, CenteredEmbedder) else embedder
    return inner if isinstance(inner, LocalEmbedder) and inner.has_states else None


def query_tokens(embedder: Embedder | None) -> Tokens | None:
    """What cuts a query into the tokens of the model behind ``embedder``; None: not here."""
    inner = embedder.plain if isinstance(embedder, CenteredEmbedder) else embedder
    return inner.tokens if isinstance(inner, LocalEmbedder) else None


def folder_settings(settings: EmbeddingSettings) -> OnnxFolderSettings:
    """The part of ``settings`` a model folder needs."""
    if not settings.path:
        raise ConfigError("embedding.path is needed for backend onnx.", param="embedding.path")
    return OnnxFolderSettings(
        Path(settings.path),
        model_file=settings.model_file or None,
        max_tokens=settings.max_tokens or None,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
    )


def openai_settings(settings: EmbeddingSettings) -> OpenAIEmbeddingSettings:
    """The part of ``settings`` a remote endpoint needs."""
    require_openai(settings.base_url, settings.model)
    return OpenAIEmbeddingSettings(
        base_url=settings.base_url,
        model=settings.model,
        api_key=settings.api_key,
        dimensions=settings.dimensions,
        encoding=settings.encoding,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
        max_tokens=settings.max_tokens or _REMOTE_MAX_TOKENS,
        batch_size=settings.batch_size or _REMOTE_BATCH,
        max_concurrent_requests=settings.max_concurrent_requests,
        max_waiting_calls=settings.max_waiting_queries,
        timeout_s=settings.timeout_s,
    )


def _session(settings: EmbeddingSettings) -> SessionSettings:
    return SessionSettings(intra_op_threads=settings.intra_op_threads)


def _local(settings: EmbeddingSettings) -> LocalSettings:
    return LocalSettings(
        batch_size=settings.batch_size or 1,
        timeout_s=settings.timeout_s,
        pool=WorkerSettings(
            workers=settings.workers,
            query_workers=settings.query_workers,
            passage_niceness=settings.passage_niceness,
            max_waiting_queries=settings.max_waiting_queries,
            max_waiting_passages=settings.max_waiting_passages,
        ),
    )
