"""How near sentences are to a question, and to each other, by the vectors that were kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from forebay.app.runtime import Reading
from forebay.app.sentence_record import sentence_settings
from forebay.cache.embeddings import CachedEmbedder
from forebay.embedding.sentence_vectors import Likeness, cosines, maker_of
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
_IN_MEMORY = 4096
"""Chunks whose sentences' vectors are kept in memory; some 3 kB each with the built-in embedder."""


def open_comparing(reading: Reading, embedder: CachedEmbedder | None) -> Comparing | None:
    """None without an embedder, or where no sentence has a vector.

    ``embedder`` remembers the questions of searches; None: nobody does, and each is embedded again.
    """
    settings = reading.settings
    sentences = sentence_settings(settings.ingest.sentences, settings.embedding)
    if reading.embedder is None or not sentences.enabled:
        return None
    widened = settings.context.surrounding_tokens > 0
    reach = settings.context.surrounding_chunks if widened else 0
    maker = maker_of(reading.embedder.spec.fingerprint)

    async def remembered(question: str) -> Vectors | None:
        return None if embedder is None else embedder.seen(question)

    again = partial(_embedded, reading.embedder)
    vector_of = again if embedder is None else remembered
    # An engine reads passages itself; where none answers, words will do within a language.
    within = settings.generation.backend == "extractive" and embedder is not None
    return KeptSentences(reading, vector_of, maker, within=within, reach=reach)


async def _embedded(embedder: Embedder, question: str) -> Vectors | None:
    return await embedder.embed([question], kind="query")


class KeptSentences:
    """``Comparing`` over what was made at ingest; chunks seen of late are in memory.

    ``within``: whether passages in the question's language are compared, too. ``reach``: how many
    chunks before and after a hit its passage may hold.
    """

    def __init__(
        self, reading: Reading, vector_of: VectorOf, maker: int, *, within: bool, reach: int = 0
    ) -> None:
        self._reading = reading
        self._vector_of = vector_of
        self._maker = maker
        self._within = within
        self._reach = reach
        self._scale: SentenceScale | None = None
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def compared(
        self, ctx: RequestContext, kb: str, prompt: GenerationRequest
    ) -> GenerationRequest:
        """See ``Comparing``; sentences are compared with each other where passages are in two
        scripts, and where quotations come from several documents.
        """
        near, alike = self._within or _is_crossing(prompt), self._in_several(prompt)
        if not prompt.passages or not (near or alike):
            return prompt
        chunks = {hit.chunk.chunk_id: None for hit in prompt.passages}
        ids = [one + step for one in chunks for step in range(-self._reach, self._reach + 1)]
        # Without them words and passages decide, as where none were kept.
        with suppress(ForebayError, TimeoutError):
            async with asyncio.timeout(ctx.deadline.remaining()):
                vector = await self._vector_of(prompt.question) if near else None
                if vector is not None or alike:
                    blobs, scale = await self._blobs(kb, ids)
                    if scale is not None:
                        return self._told(prompt, blobs, scale, vector, alike=alike)
        return prompt

    def _told(
        self,
        prompt: GenerationRequest,
        blobs: Sequence[bytes],
        scale: SentenceScale,
        vector: Vectors | None,
        *,
        alike: bool,
    ) -> GenerationRequest:
        near = {} if vector is None else cosines(b"".join(blobs), vector)
        likeness: Mapping[tuple[int, int], float] = {}
        if alike and self._reading.embedder is not None:
            likeness = Likeness(blobs, self._reading.embedder.spec.dimensions, scale)
        return msgspec.structs.replace(
            prompt,
            sentences={one: scale.of(cosine) for one, cosine in near.items()},
            likeness=likeness,
        )

    def _in_several(self, prompt: GenerationRequest) -> bool:
        """Whether one passage may say otherwise than another, and only vectors may tell."""
        if self._within and len({hit.chunk.document_id for hit in prompt.passages}) > 1:
            return True
        return _in_two(prompt)

    async def _blobs(
        self, kb: str, ids: Sequence[int]
    ) -> tuple[Sequence[bytes], SentenceScale | None]:
        kept = self._kept
        lacking = [one for one in ids if (kb, one) not in kept]
        if lacking or self._scale is None:
            read = partial(self._read, kb, lacking)
            found, scale = await self._reading.threads.run(read)
            if scale is None:
                return (), None
            self._scale = scale
            kept.update(((kb, one), blob) for one, blob in found.items())
        here = [kept[kb, one] for one in ids if (kb, one) in kept]
        for one in ids:
            if (kb, one) in kept:
                kept.move_to_end((kb, one))
        while len(kept) > _IN_MEMORY:
            kept.popitem(last=False)
        return here, self._scale

    def _read(
        self, kb: str, chunk_ids: Sequence[int]
    ) -> tuple[Mapping[int, bytes], SentenceScale | None]:
        reader = self._reading.reader
        scale = self._scale or reader.sentence_scale(self._maker)
        if scale is None:
            return {}, None
        return reader.sentences(kb, self._maker, chunk_ids), scale


def _is_crossing(prompt: GenerationRequest) -> bool:
    """Whether words cannot meet; the best passage alone says no, mostly in a microsecond."""
    han, passages = prompt.language.startswith("zh"), prompt.passages
    best = max(passages, key=lambda hit: hit.score, default=None)
    if best is None or not in_other_script(best.chunk.text, han=han):
        return False
    return is_crossing(passages, [in_other_script(hit.chunk.text, han=han) for hit in passages])


def _in_two(prompt: GenerationRequest) -> bool:
    """Whether passages are in two scripts; fast where all are in the question's."""
    han = prompt.language.startswith("zh")
    foreign = sum(in_other_script(hit.chunk.text, han=han) for hit in prompt.passages)
    return 0 < foreign < len(prompt.passages)
