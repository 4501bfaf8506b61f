"""The index over the real record: commits, removal, restart, pruned history, re-embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from forebay.kernel.documents import ChunkDraft, DocumentDraft, Vectors
from forebay.kernel.stages import EmbedderSpec
from forebay.retrieval import KbIndex, RetrievalSettings, VectorSettings
from forebay.store import StoreWriter

DIMENSIONS = 16
SETTINGS = RetrievalSettings(vector=VectorSettings(exact_rows_max=64, fold_rows=16))


def draft(name: str, *texts: str) -> DocumentDraft:
    chunks, at = [], 0
    for ordinal, text in enumerate(texts):
        chunks.append(ChunkDraft(ordinal, at, at + len(text), text, len(text)))
        at += len(text) + 1
    return DocumentDraft(
        document_id=name,
        source=f"{name}.md",
        content_hash=f"{hash((name, texts)) & (2**64 - 1):064x}",
        title=name,
        text="\n".join(texts),
        chunks=tuple(chunks),
    )


def embed(store: StoreWriter, spec: EmbedderSpec, seed: int) -> dict[int, npt.NDArray[np.float32]]:
    """Give every chunk that waits a random vector."""
    chance = np.random.default_rng(seed)
    made: dict[int, npt.NDArray[np.float32]] = {}
    while rows := store.pending("kb", 100):
        vectors = chance.standard_normal((len(rows), DIMENSIONS)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ids = tuple(row.chunk_id for row in rows)
        store.store_vectors("kb", Vectors(ids, DIMENSIONS, vectors.tobytes()), spec.fingerprint)
        made |= dict(zip(ids, vectors, strict=True))
    return made


class Setup:
    """A store with an index beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = StoreWriter(folder)
        self.index: KbIndex | None = None

    def fingerprint(self) -> str | None:
        state = self.store.reader.embedder("kb")
        return None if state is None or state.reembedding else state.spec.fingerprint

    def open(self) -> KbIndex:
        return KbIndex.open(
            self.folder / "index",
            "kb",
            self.store.reader,
            writable=True,
            settings=SETTINGS,
            fingerprint=self.fingerprint,
        )


def words(index: KbIndex, text: str) -> set[int]:
    view = index.snapshot().lexical
    return set(view.search(view.parse(text), (), 100).ids.tolist())


def nearest(index: KbIndex, vector: npt.NDArray[np.float32]) -> int:
    ids, _ = index.snapshot().search_vectors(vector[None], 1, ())
    return int(ids[0])


def test_an_index_follows_the_record(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    store = setup.store
    first = EmbedderSpec("one", "fingerprint-one", DIMENSIONS, 512)
    second = EmbedderSpec("two", "fingerprint-two", DIMENSIONS, 512)
    store.commit("kb", [draft(f"d{i}", f"alpha number{i}", "退货 流程") for i in range(40)], [])
    index = setup.open()
    assert len(words(index, "alpha")) == 40, "words are found before there are vectors"
    assert index.snapshot().vectors.rows == 0
    store.begin_reembed("kb", first)
    made = embed(store, first, 1)
    index.refresh()
    assert index.snapshot().vectors.rows == 80
    assert index.maintain()
    store.commit("kb", [draft("d1", "beta replaced")], ["d0"])
    index.refresh()
    gone = set(made) - set(store.reader.changes("kb", 0).added)
    assert len(gone) >= 4
    for chunk_id, vector in made.items():
        assert (nearest(index, vector) == chunk_id) == (chunk_id not in gone)
    assert len(words(index, "beta")) == 1
    version = index.snapshot().version
    index.close()
    index = setup.open()
    assert index.snapshot().version == version
    assert index.snapshot().vectors.rows == 80 - len(gone)
    store.begin_reembed("kb", second)
    index.refresh()
    assert index.snapshot().vectors.rows == 0, "vectors of two embedders never mix"
    renewed = embed(store, second, 2)
    index.refresh()
    assert index.snapshot().vectors.fingerprint == second.fingerprint
    for chunk_id, vector in renewed.items():
        assert nearest(index, vector) == chunk_id
    index.close()
    store.close()
