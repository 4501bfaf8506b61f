"""Which sentences get vectors, and how they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from forebay.app.records import BlockingPool, RecordWithReserve
from forebay.app.sentence_record import (
    KbsWithSentences,
    SentencesInRecord,
    sentence_settings,
    sentences_of,
)
from forebay.app.settings import IngestSettings, Settings
from forebay.embedding.sentence_vectors import cosines, maker_of
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.documents import ChunkRow, SentenceCount, Vectors
from forebay.kernel.errors import StoreFull
from forebay.kernel.stages import EmbedderSpec
from forebay.pipeline.sentences import SentenceSettings
from forebay.retrieval import search_executor
from forebay.store import StoreWriter
from forebay.testing.feed_suite import draft_of, unit_vectors
from forebay.testing.generation import passage

ENGLISH = "# Gates\n\nThe north gate closes at six. Deliveries ring twice.\n\n```\nopen --all\n```"
CHINESE = "北门六点关闭。送货请按两次铃。"


def test_a_remote_embedder_makes_them_only_when_told() -> None:
    local, remote = EmbeddingSettings(), EmbeddingSettings(backend="openai")
    assert sentence_settings(SentenceSettings(), local).enabled
    assert not sentence_settings(SentenceSettings(), remote).enabled
    told = SentenceSettings(enabled=True)
    assert sentence_settings(told, remote) == told == sentence_settings(told, local)


def row(text: str) -> ChunkRow:
    return passage(text).chunk


def test_sentences_are_what_is_said_under_a_heading() -> None:
    assert sentences_of(row(ENGLISH)) == (
        "Gates: The north gate closes at six.",
        "Gates: Deliveries ring twice.",
    )
    assert sentences_of(row("# Gates\n\n| Gate | Closes |\n|---|---|\n| north | 18:00 |")) == (
        "Gates: Gate: north; Closes: 18:00",
    )
    assert sentences_of(row("# Gates")) == ("Gates",)


def test_code_has_none_and_repeated_ones_count_once() -> None:
    assert len(sentences_of(row(ENGLISH + "\n\nDeliveries ring twice."))) == 2
    many = " ".join(f"Sentence number {at} is here." for at in range(200))
    assert len(sentences_of(row(many))) == 64


class Embedder:
    """Eight dimensions by place."""

    spec = EmbedderSpec("fake", "f", 8, 512)
    calls = 0

    async def embed(self, texts: Any, *, kind: str) -> Vectors:
        self.calls += 1
        rows = np.eye(8, dtype="<f4")[np.arange(len(texts)) % 8]
        return Vectors(tuple(range(len(texts))), 8, rows.tobytes())


async def test_they_are_cut_kept_and_measured(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path)
    store.commit("kb", [draft_of("a", CHINESE, ENGLISH)], [])
    store.store_vectors("kb", unit_vectors([1, 2]), "f")
    record = SentencesInRecord(store, RecordWithReserve(store, 0), "f")
    lacking = record.lacking("kb", (0, 0), 1)
    [text] = lacking.texts
    assert text.sentences == ("北门六点关闭。", "送货请按两次铃。")
    assert lacking.after[1] == 1
    embedder = Embedder()
    vectors = await embedder.embed(text.sentences, kind="passage")
    assert record.keep("kb", {text.chunk_id: (text, vectors)}) == 1
    [blob] = store.reader.sentences("kb", maker_of("f"), [text.chunk_id]).values()
    query = msgspec.structs.replace(vectors, data=vectors.data[:32])
    assert list(cosines(blob, query).values()) == pytest.approx([1.0, 0.0], abs=0.01)
    assert record.lacking("kb", lacking.after, 9).kept == 1

    thread = BlockingPool(search_executor(1))
    for _ in range(2):
        await record.measure(embedder, thread)
    assert embedder.calls == 2, "measured once"
    assert store.reader.sentence_scale(maker_of("f")) is not None
    full = SentencesInRecord(store, RecordWithReserve(store, 2**60), "f")
    with pytest.raises(StoreFull):
        full.keep("kb", {text.chunk_id: (text, vectors)})
    thread.close()
    store.close()


CODE = "```\nopen --all\n```"


async def test_it_can_be_seen_when_all_are_made(tmp_path: Path) -> None:
    """Also where a chunk has none, as one of code; only by who may read everything."""
    store = StoreWriter(tmp_path)
    kbs = KbsWithSentences(store.reader, Settings())
    store.commit("kb", [draft_of("a", CHINESE, CODE, ENGLISH)], [])
    assert kbs.kb("kb").sentences == SentenceCount(chunks=3, kept=0), "no vectors yet"
    store.begin_reembed("kb", Embedder.spec)
    store.store_vectors("kb", unit_vectors([1, 2, 3]), "f")
    record = SentencesInRecord(store, RecordWithReserve(store, 0), "f")
    lacking = record.lacking("kb", (0, 0), 9)
    assert [text.chunk_id for text in lacking.texts] == [1, 3]
    assert kbs.kb("kb").sentences == SentenceCount(chunks=3, kept=1)
    assert [text.chunk_id for text in record.lacking("kb", (0, 0), 9).texts] == [1, 3]
    embedder = Embedder()
    for text in lacking.texts:
        vectors = await embedder.embed(text.sentences, kind="passage")
        record.keep("kb", {text.chunk_id: (text, vectors)})
    assert kbs.kb("kb").sentences == SentenceCount(chunks=3, kept=3)
    assert kbs.kb("kb", frozenset({"staff"})).sentences is None
    [blob] = store.reader.sentences("kb", maker_of("f"), [2]).values()
    assert cosines(blob, vectors) == {}
    store.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(ingest=IngestSettings(sentences=SentenceSettings(max_chunks=2))), 2),
        (Settings(ingest=IngestSettings(sentences=SentenceSettings(enabled=False))), None),
        (Settings(embedding=EmbeddingSettings(backend="openai")), None),
        (Settings(embedding=EmbeddingSettings(backend="none")), None),
    ],
)
def test_no_more_are_foretold_than_will_be_made(
    tmp_path: Path, settings: Settings, told: int | None
) -> None:
    store = StoreWriter(tmp_path)
    store.commit("kb", [draft_of("a", CHINESE, CODE, ENGLISH)], [])
    info = KbsWithSentences(store.reader, settings).kb("kb")
    assert info.sentences == (None if told is None else SentenceCount(told, 0))
    store.close()
