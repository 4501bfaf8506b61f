"""The light encoder in a process: fitted when it is due, read anew when its file is another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from forebay.app import light as module
from forebay.app.light import FittingParts, LightFitting, LightQueries, light_file
from forebay.embedding.light import LightDescription, LightEncoder
from forebay.kernel.clock import VirtualClock
from forebay.kernel.documents import ChunkDraft, DocumentDraft, Vectors
from forebay.store import StoreWriter
from forebay.testing.embedding import HashEmbedder

MARK = "f" * 16


def tokens(text: str) -> Sequence[int]:
    return [ord(one) for one in text]


def encoder(letter: str, fingerprint: str = MARK) -> LightEncoder:
    told = LightDescription(fingerprint, 1, 1, 1.0)
    rows, weights = np.ones((1, 4), np.float32), np.ones(1, np.float32)
    return LightEncoder.of(told, np.array([ord(letter)]), rows, weights)


def test_the_file_is_read_when_it_comes_and_when_it_changes(tmp_path: Path) -> None:
    path, clock = light_file(tmp_path, MARK), VirtualClock()
    light = LightQueries(path, MARK, tokens, clock)
    assert light("aa") is None
    encoder("a").write(path)
    assert light("aa") is None, "it has just looked"
    clock.advance(module.SEEN_S)
    found = light("aa")
    assert found is not None and np.allclose(found, 0.5)
    assert light("abbb") is None, "too little of it is known"
    encoder("b").write(path)
    os.utime(path, ns=(1, 1))
    clock.advance(module.SEEN_S)
    assert light("aa") is None and light("b") is not None


def test_another_embedders_file_is_none_of_its(tmp_path: Path) -> None:
    path = light_file(tmp_path, MARK)
    encoder("a", "other").write(path)
    assert LightQueries(path, MARK, tokens, VirtualClock())("aa") is None


class Store:
    """A record of many sentences, embedded by hashes of letters."""

    def __init__(self, folder: Path) -> None:
        self.writer = StoreWriter(folder)
        self.embedder = Asked(16)
        self.settled = True
        parts = FittingParts(self.writer.reader, self.embedder, tokens, lambda: self.settled)
        self.path = folder / "light" / "one.npz"
        self.fitting = LightFitting(parts, self.path)
        self.added = 0

    async def add(self, documents: int) -> None:
        drafts = []
        for number in range(self.added, self.added + documents):
            text = " ".join(f"Part {number} of line {i} is checked again." for i in range(8))
            chunk = ChunkDraft(0, 0, len(text), text, 80)
            name = str(number)
            drafts.append(DocumentDraft(name, name, name * 64, name, text, (chunk,)))
        self.added += documents
        self.writer.commit("kb", drafts, [])
        spec = self.embedder.spec
        if self.writer.reader.embedder("kb") is None:
            self.writer.begin_reembed("kb", spec)
        rows = self.writer.pending("kb", 1000)
        made = await self.embedder.embed([row.text for row in rows], kind="passage")
        ids = tuple(row.chunk_id for row in rows)
        vectors = Vectors(ids, made.dimensions, made.data)
        self.writer.store_vectors("kb", vectors, spec.fingerprint)


class Asked(HashEmbedder):
    """Notes the queries it embeds."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.asked: list[str] = []

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        if kind == "query":
            assert len(texts) > 1 or len(self.asked) % module._AT_ONCE == 0
            self.asked += texts
        return await super().embed(texts, kind=kind)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # Hashes have no meaning that letters could tell.
    monkeypatch.setattr(module, "LEAST_COSINE", -1.0)
    made = Store(tmp_path)
    yield made
    made.fitting.close()
    made.writer.close()


async def test_it_is_fitted_once_and_anew_when_there_is_twice_as_much(store: Store) -> None:
    await store.add(60)
    store.settled = False
    assert not await store.fitting.round(), "sentences come first"
    store.settled = True
    assert await store.fitting.round()
    found = LightEncoder.read(store.path)
    assert found is not None and found.description.chunks == 60
    assert found.description.fingerprint == store.embedder.spec.fingerprint
    assert found.description.texts == len(store.embedder.asked) > 60 * 8
    assert not await store.fitting.round()
    await store.add(30)
    assert not await store.fitting.round()
    await store.add(30)
    assert await store.fitting.round()


async def test_few_sentences_fit_nothing_and_are_not_tried_again(store: Store) -> None:
    await store.add(5)
    assert not await store.fitting.round() and not await store.fitting.round()
    assert not store.embedder.asked and not store.path.exists()


async def test_what_comes_out_too_unlike_the_embedder_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_COSINE", 1.1)
    await store.add(60)
    assert not await store.fitting.round() and not store.path.exists()
    asked = len(store.embedder.asked)
    assert not await store.fitting.round() and len(store.embedder.asked) == asked
