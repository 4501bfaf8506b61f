"""How near a question the sentences of hits are, where vectors of these were made at ingest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from forebay.app.runtime import Reading
from forebay.app.sentence_record import sentence_settings
from forebay.embedding.sentence_vectors import maker_of, nearest
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import HitVectors
from forebay.pipeline.reranking import HitScorer

ReadSentences = Callable[[Sequence[int]], Mapping[int, bytes]]
"""What is kept of the sentences of those chunks that have it, by chunk; blocks."""


class NearestSentences:
    """Tells ``HitVectors.nearest``; any thread may ask; 30 hits take a sixth of a millisecond.

    All or none: where the sentences of one hit are not known (not yet made, beyond how many are
    made, of another embedder), hits cannot be compared by them.
    """

    def __init__(self, read: ReadSentences) -> None:
        self._read = read

    def of(self, hits: Sequence[Hit], vectors: HitVectors) -> HitVectors:
        """The same vectors with ``nearest`` where it can be told; blocks, never fails."""
        ids = [hit.chunk.chunk_id for hit in hits]
        try:
            kept = self._read(ids)
        except ForebayError:
            return vectors
        if not all(one in kept for one in ids):
            return vectors
        told = nearest([kept[one] for one in ids], vectors.query, vectors.dimensions)
        return msgspec.structs.replace(vectors, nearest=told)


class NearestScorer:
    """``HitScorer`` over another, which it tells how near the hits' sentences are."""

    def __init__(self, inner: HitScorer, sentences: NearestSentences) -> None:
        self._inner = inner
        self._sentences = sentences

    def relevances(
        self, query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[Sequence[float], Sequence[float]]:
        """See ``HitScorer``."""
        return self._inner.relevances(query, hits, self._sentences.of(hits, vectors))


def nearest_sentences(reading: Reading) -> NearestSentences | None:
    """Over what a process keeps of sentences; None where it keeps nothing."""
    settings = reading.settings
    sentences = sentence_settings(settings.ingest.sentences, settings.embedding)
    if reading.embedder is None or not sentences.enabled:
        return None
    maker = maker_of(reading.embedder.spec.fingerprint)
    return NearestSentences(partial(reading.reader.sentences, None, maker))
