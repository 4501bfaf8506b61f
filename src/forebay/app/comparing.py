"""How near sentences are to a question in another language, by the vectors that were kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from forebay.app.runtime import Reading
from forebay.app.sentence_record import sentence_settings
from forebay.cache.embeddings import CachedEmbedder
from forebay.embedding.sentence_vectors import cosines, maker_of
from forebay.generation.passages import in_other_script
from forebay.generation.support import is_crossing
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ForebayError
from forebay.kernel.sentences import SentenceScale
from forebay.kernel.stages import Embedder, GenerationRequest
from forebay.pipeline.sentences import Comparing

VectorOf = Callable[[str], Awaitable[Vectors | None]]
"""The vector of a question that was searched for; None where memory has it no more."""


def open_comparing(reading: Reading, embedder: CachedEmbedder | None) -> Comparing | None:
    """None without an embedder, or where no sentence has a vector.

    ``embedder`` remembers the questions of searches; None: nobody does, and each is embedded again.
    """
    settings = reading.settings
    sentences = sentence_settings(settings.ingest.sentences, settings.embedding)
    if reading.embedder is None or not sentences.questions_in:
        return None
    widened = settings.context.surrounding_tokens > 0
    reach = settings.context.surrounding_chunks if widened else 0
    maker = maker_of(reading.embedder.spec.fingerprint)

    async def remembered(question: str) -> Vectors | None:
        return None if embedder is None else embedder.seen(question)

    again = partial(_embedded, reading.embedder)
    return KeptSentences(reading, again if embedder is None else remembered, maker, reach)


async def _embedded(embedder: Embedder, question: str) -> Vectors | None:
    return await embedder.embed([question], kind="query")


class KeptSentences:
    """``Comparing`` in the process's pool for blocking work: a read of a few rows.

    ``reach``: how many chunks before and after a hit its passage may hold.
    """

    def __init__(self, reading: Reading, vector_of: VectorOf, maker: int, reach: int) -> None:
        self._reading = reading
        self._vector_of = vector_of
        self._maker = maker
        self._reach = reach
        self._scale: SentenceScale | None = None

    async def compared(
        self, ctx: RequestContext, kb: str, prompt: GenerationRequest
    ) -> GenerationRequest:
        """See ``Comparing``; nothing is read where a passage is in the question's language."""
        if not _is_crossing(prompt):
            return prompt
        near = {hit.chunk.chunk_id: None for hit in prompt.passages}
        ids = [one + step for one in near for step in range(-self._reach, self._reach + 1)]
        # Without them words and passages decide, as where none were kept.
        with suppress(ForebayError, TimeoutError):
            async with asyncio.timeout(ctx.deadline.remaining()):
                vector = await self._vector_of(prompt.question)
                if vector is not None:
                    work = partial(self._compare, kb, ids, vector)
                    found = await self._reading.threads.run(work)
                    return msgspec.structs.replace(prompt, sentences=found)
        return prompt

    def _compare(self, kb: str, chunk_ids: list[int], vector: Vectors) -> Mapping[int, float]:
        reader = self._reading.reader
        scale = self._scale or reader.sentence_scale(self._maker)
        if scale is None:
            return {}
        self._scale = scale
        blobs = reader.sentences(kb, self._maker, chunk_ids)
        found = cosines(b"".join(blobs.values()), vector)
        return {each: scale.of(cosine) for each, cosine in found.items()}


def _is_crossing(prompt: GenerationRequest) -> bool:
    """Whether words cannot meet; the best passage alone says no, mostly in a microsecond."""
    han, passages = prompt.language.startswith("zh"), prompt.passages
    best = max(passages, key=lambda hit: hit.score, default=None)
    if best is None or not in_other_script(best.chunk.text, han=han):
        return False
    return is_crossing(passages, [in_other_script(hit.chunk.text, han=han) for hit in passages])
