"""Which sentences of a chunk get vectors, and how these go into the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from forebay.app.records import BlockingPool, RecordWithReserve
from forebay.app.settings import Settings
from forebay.embedding.sentence_vectors import maker_of, pack, scale_by, unrelated_sentences
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.passages import analyse
from forebay.kernel.documents import ChunkRow, KbInfo, SentenceCount, Vectors
from forebay.kernel.sentences import LackingSentences, SentenceText
from forebay.kernel.stages import Embedder
from forebay.pipeline.sentences import SentenceSettings
from forebay.store import StoreReader, StoreWriter

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


class KbsWithSentences:
    """``KbRecord`` that tells of one kb how far its sentences are; blocking."""

    def __init__(self, reader: StoreReader, settings: Settings) -> None:
        made = sentence_settings(settings.ingest.sentences, settings.embedding)
        off = not made.enabled or settings.embedding.backend == "none"
        self._most = 0 if off else made.max_chunks
        self._reader = reader

    def kb(self, name: str, groups: frozenset[str] | None = None) -> KbInfo:
        """See ``KbRecord``; whoever may read a part only learns nothing of the whole."""
        info = self._reader.kb(name, groups)
        return info if groups is not None else self.counted(info)

    def kbs(self) -> Sequence[KbInfo]:
        """See ``KbRecord``."""
        return self._reader.kbs()

    def counted(self, info: KbInfo) -> KbInfo:
        """The same kb with ``sentences``, where they are made."""
        if not self._most:
            return info
        state = self._reader.embedder(info.name)
        maker = None if state is None else maker_of(state.spec.fingerprint)
        kept = 0 if maker is None else self._reader.count_sentences(info.name, maker)
        chunks = min(info.chunks, self._most)
        # Other chunks may have come since they were counted.
        return msgspec.structs.replace(info, sentences=SentenceCount(chunks, min(kept, chunks)))


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
        """See ``SentenceRecord``; chunks that need none are noted as such."""
        unread = self._writer.reader.lacking_sentences(kb, self._maker, after, limit)
        cut = [(row.chunk_id, sentences_of(row)) for row in unread.rows]
        none = {chunk: b"" for chunk, sentences in cut if not sentences}
        if none:
            # Told apart from those to come, so that it can be seen when all is done.
            self._record.store_sentences(kb, self._maker, none)
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
