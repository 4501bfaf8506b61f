"""A late-interaction reranker: every word of the query looks for its best match in the passage.

A passage's tokens are kept as 128 int8 codes each (F3.13), so that against passages seen before a
query costs its own pass through the embedder's model and a few milliseconds of products. Passages
that were not seen are encoded first, which takes as long as embedding them.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import ConfigError, DeadlineExceeded, InvalidRequest, first_error
from forebay.kernel.tokens import TokenEncoder
from forebay.rerank.late_head import LateHead, TokenCodes, max_sims

T = TypeVar("T")

_KEY_BYTES = 16
_ENTRY_BYTES = 400
"""What an entry weighs beside its codes: key, two arrays, a place in the order."""


class LateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head and what may be kept for it."""

    path: Annotated[
        str,
        msgspec.Meta(
            description="ONNX file of a trained head; empty: the one for the built-in embedder."
        ),
    ] = ""
    cache_bytes: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="Memory for token vectors of passages seen before, 130 bytes a token.",
        ),
    ] = 64_000_000
    max_query_tokens: Annotated[
        int, msgspec.Meta(ge=1, le=512, description="Tokens of a query that are compared.")
    ] = 64
    encode_at_once: Annotated[
        int, msgspec.Meta(ge=1, le=64, description="Passages of one request encoded at a time.")
    ] = 4
    ahead: Annotated[
        bool,
        msgspec.Meta(
            description="Encode passages when they are ingested and at the start, while "
            "cache_bytes has room, in place of when they are first found."
        ),
    ] = False
    max_documents: Annotated[
        int, msgspec.Meta(ge=1, description="Texts in one request at most.")
    ] = 1000


class LateStatistics(msgspec.Struct, frozen=True):
    """What is kept, and how often a passage was among it."""

    entries: int
    size_bytes: int
    hits: int
    misses: int


class CodesCache:
    """Token codes of passages by their text, least recently used first out, bounded in bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, TokenCodes] = OrderedDict()
        self._size = self._hits = self._misses = 0

    def get(self, key: bytes) -> TokenCodes | None:
        """What is kept under ``key``."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._entries.move_to_end(key)
            return found

    def put(self, key: bytes, codes: TokenCodes) -> None:
        """Keep ``codes``, dropping what was not asked for longest; too large is not kept."""
        size = codes.size_bytes + _ENTRY_BYTES
        if size > self._capacity:
            return
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self._size -= before.size_bytes + _ENTRY_BYTES
            self._entries[key] = codes
            self._size += size
            while self._size > self._capacity:
                _, oldest = self._entries.popitem(last=False)
                self._size -= oldest.size_bytes + _ENTRY_BYTES

    def statistics(self) -> LateStatistics:
        """Counts since the start."""
        with self._lock:
            return LateStatistics(len(self._entries), self._size, self._hits, self._misses)


class LateReranker:
    """``Reranker`` by MaxSim over token vectors; relevances are comparable between requests.

    ``executor`` runs products: they take milliseconds and never the event loop.
    """

    def __init__(
        self, encoder: TokenEncoder, head: LateHead, settings: LateSettings, executor: Executor
    ) -> None:
        if head.info.embedder != encoder.spec.fingerprint:
            raise ConfigError(
                "the late-interaction head was trained on another embedder; train one for this "
                "embedder or choose another reranker",
                param="rerank.dear.late.path",
            )
        self._encoder = encoder
        self._head = head
        self._settings = settings
        self._executor = executor
        self._cache = CodesCache(settings.cache_bytes)

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given.

        ``DeadlineExceeded`` when passages had to be encoded and time ran out; those that were
        finished are kept, so that the next request has fewer to wait for.
        """
        if len(texts) > self._settings.max_documents:
            raise InvalidRequest(
                f"at most {self._settings.max_documents} documents can be reranked at once.",
                param="documents",
            )
        if not texts:
            return ()
        with ctx.stage("rerank"):
            try:
                async with asyncio.timeout(ctx.deadline.remaining()):
                    asked = await self._query(query)
                    passages = await self._passages(texts)
                    means = await self._blocking(partial(max_sims, asked, passages))
            except TimeoutError:
                raise DeadlineExceeded("the deadline passed during reranking.") from None
        return relevances(means, self._head.info.middle, self._head.info.width)

    def statistics(self) -> LateStatistics:
        """The kept passages."""
        return self._cache.statistics()

    async def warm(self, texts: Sequence[str]) -> None:
        """Encode and keep what is not kept yet; the caller sets the deadline."""
        await self._passages(texts)

    async def _query(self, query: str) -> NDArray[np.float32]:
        (states,) = await self._encoder.states([query], kind="query")
        most = self._settings.max_query_tokens
        return await self._blocking(partial(self._head.query, states, most))

    async def _passages(self, texts: Sequence[str]) -> list[TokenCodes]:
        keys = [_key(text) for text in texts]
        found: dict[bytes, TokenCodes] = {}
        missing: dict[bytes, str] = {}
        for key, text in zip(keys, texts, strict=True):
            if key in found or key in missing:
                continue
            kept = self._cache.get(key)
            if kept is None:
                missing[key] = text
            else:
                found[key] = kept
        work = iter(missing.items())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.encode_at_once, len(missing))):
                    group.create_task(self._encode(work, found))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return [found[key] for key in keys]

    async def _encode(
        self, work: Iterator[tuple[bytes, str]], found: dict[bytes, TokenCodes]
    ) -> None:
        """Encode one passage after the other, so that few are held as states at once."""
        for key, text in work:
            (states,) = await self._encoder.states([text], kind="passage")
            codes = await self._blocking(partial(self._head.passage, states))
            found[key] = codes
            self._cache.put(key, codes)

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def relevances(means: NDArray[np.float32], middle: float, width: float) -> list[float]:
    """A logistic curve around ``middle``: mean MaxSims as relevances in 0..1."""
    away = np.clip((means.astype(np.float64) - middle) / width, -60, 60)
    return [float(value) for value in 1 / (1 + np.exp(-away))]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()
