"""Which sentences of a chunk get vectors, and how these go into the record."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forebay.app.records import BlockingPool, RecordWithReserve
from forebay.embedding.sentence_vectors import maker_of, pack, scale_by, unrelated_sentences
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.passages import analyse
from forebay.kernel.documents import ChunkRow, Vectors
from forebay.kernel.sentences import LackingSentences, SentenceText
from forebay.kernel.stages import Embedder
from forebay.pipeline.sentences import SentenceSettings
from forebay.store import StoreWriter

_MOST = 64
"""Sentences of one chunk at most; a chunk of some 500 tokens has twenty."""


def sentence_settings(settings: SentenceSettings, embedding: EmbeddingSettings) -> SentenceSettings:
    """The settings with what unset ``enabled`` means."""
    if settings.enabled is not None:
        return settings
    return msgspec.structs.replace(settings, enabled=embedding.backend != "openai")


def sentences_of(row: ChunkRow) -> tuple[str, ...]:
    """What can be quoted of a chunk, as it is said: under its heading, a row with its columns."""
    passage = analyse(row.text, row.context, row.title, row.heading_path)
    units = [unit for unit in passage.units if unit.kind not in ("code", "heading")]
    # Headings are quoted where there is nothing else.
    units = units or [unit for unit in passage.units if unit.kind == "heading"]
    return tuple(dict.fromkeys(unit.said for unit in units))[:_MOST]


class SentencesInRecord:
    """``SentenceRecord`` of one embedder over the record; blocking."""

    def __init__(
        self,
        writer: StoreWriter,
        record: RecordWithReserve,
        fingerprint: str,
    ) -> None:
        self._writer = writer
        self._record = record
        self._maker = maker_of(fingerprint)

    def lacking(self, kb: str, after: tuple[int, int], limit: int) -> LackingSentences:
        """See ``SentenceRecord``; chunks that need none are passed over."""
        unread = self._writer.reader.lacking_sentences(kb, self._maker, after, limit)
        cut = [(row.chunk_id, sentences_of(row)) for row in unread.rows]
        texts = tuple(SentenceText(chunk, sentences) for chunk, sentences in cut if sentences)
        return LackingSentences(texts, unread.after, unread.kept)

    def keep(self, kb: str, made: Mapping[int, tuple[SentenceText, Vectors]]) -> int:
        """See ``SentenceRecord``."""
        packed = {chunk: pack(text.sentences, vectors) for chunk, (text, vectors) in made.items()}
        return self._record.store_sentences(kb, self._maker, packed)

    async def measure(self, embedder: Embedder, thread: BlockingPool) -> None:
        """Learn what unrelated cosines are under the embedder, once in a store's life."""
        writer, maker = self._writer, self._maker
        if await thread.run(lambda: writer.reader.sentence_scale(maker)) is None:
            vectors = await embedder.embed(unrelated_sentences(), kind="passage")
            await thread.run(lambda: writer.store_scale(maker, scale_by(vectors)))
