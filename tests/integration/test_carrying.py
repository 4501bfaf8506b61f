"""A carried retrieval is what a fresh one would find: exact vectors, pinned statistics of words."""

from __future__ import annotations

import asyncio
import copy
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.carrying import CarryingSettings, carried
from forebay.kernel.caching import Evidence
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import PartFailed
from forebay.kernel.stages import EmbedderSpec, SearchRequest, SearchResult
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    LexicalSettings,
    LoggedBounds,
    RetrievalSettings,
    Snapshot,
    WordsRetriever,
    search_executor,
)
from forebay.retrieval.lexical_search import LexicalQuery
from forebay.retrieval.segments import Floats32
from forebay.testing.index_feed import MemoryIndexFeed

WORDS = "amber birch cedar delta ember fjord grove heron iris jade kelp lotus 退货 发票".split()
SPEC = EmbedderSpec("random", "random", 8, 512)
CHANGES = ("add", "add", "embedded", "embedded", "remove", "replace", "late", "renew")
PINNED = CarryingSettings(drift_max=math.inf, lead_min=0.0, lead_per_drift=0.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


def unit(chance: random.Random) -> Floats32:
    """A vector among few directions: some are close, few are equal."""
    vector = np.array([chance.gauss(0.3, 1.0) for _ in range(SPEC.dimensions)], np.float32)
    return vector / np.float32(np.linalg.norm(vector))


class OneVector:
    """An embedder that knows the question."""

    spec = SPEC

    def __init__(self, vector: Floats32) -> None:
        self._data = vector.astype("<f4").tobytes()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        return Vectors((0,), SPEC.dimensions, self._data)


class Pinned:
    """An index with the statistics another state of it had."""

    def __init__(self, index: KbIndex, text: str, at: Snapshot) -> None:
        self._index = index
        self.feed = index.feed
        self._query: LexicalQuery = at.lexical.parse(text)
        self._average = at.lexical.average
        self._background: Callable[[Floats32], float] = at.vectors.background

    def snapshot(self) -> Snapshot:
        snapshot = self._index.snapshot()
        lexical, vectors = copy.copy(snapshot.lexical), copy.copy(snapshot.vectors)
        lexical.average = self._average
        vars(lexical)["parse"] = lambda _: self._query
        vars(vectors)["background"] = self._background
        return msgspec.structs.replace(snapshot, lexical=lexical, vectors=vectors)


class World:
    """A record that changes by chance, its index, and one question."""

    def __init__(
        self, folder: Path, chance: random.Random, pool: ThreadPoolExecutor, copies: float
    ) -> None:
        self.chance, self.pool, self.copies = chance, pool, copies
        self.record = MemoryIndexFeed(SPEC.dimensions)
        self.vocabulary = chance.sample(WORDS, chance.randint(6, len(WORDS)))
        self.grow(chance.choice([1, 10, 30, 60, 120, 200]))
        self.record.embed({i: unit(chance) for i in self.record.live if chance.random() < 0.97})
        self.index = KbIndex.open(
            folder,
            "kb",
            self.record,
            writable=True,
            fingerprint=lambda: SPEC.fingerprint,
        )
        self.bounds = LoggedBounds(lambda _: self.index)
        self.text = " ".join(chance.sample(WORDS, chance.randint(1, 4)))
        self.vector = unit(chance)
        self.groups = chance.choice([None, frozenset({"a"}), frozenset({"a", "b"})])
        self.wanted = chance.randint(1, 6)
        self.settings = RetrievalSettings(
            candidates=10,
            whole_share=0.0,
            vector_timeout_ms=60_000,
            words_timeout_ms=60_000,
            early_exit_confidence=chance.choice([0.92, 0.5, 0.02]),
            lexical=LexicalSettings(spare_candidates=2000),
        )

    def grow(self, count: int) -> list[int]:
        ids = []
        for _ in range(count):
            words = self.chance.choices(self.vocabulary, k=self.chance.randint(2, 12))
            if self.copies and self.record.live and self.chance.random() < self.copies:
                # The same text again, in other typography: a hit that says nothing new.
                words = [*self.chance.choice([*self.record.live.values()]).text.split()]
                words[-1] = words[-1].rstrip(".") + self.chance.choice(["", "."])
            groups = self.chance.choice([(), (), (), ("a",), ("b",)])
            language = self.chance.choice(["en", "en", "zh"])
            ids += self.record.add(" ".join(words), groups=groups, language=language)
        return ids

    def change(self) -> None:
        """One commit, or a few."""
        chance, live = self.chance, sorted(self.record.live)
        match chance.choice(CHANGES):
            case "add":
                self.grow(chance.choice([1, 1, 1, 5]))
            case "embedded":
                ids = self.grow(chance.choice([1, 1, 3]))
                if chance.random() < 0.5:
                    self.index.refresh()
                self.record.embed({i: unit(chance) for i in ids})
            case "remove" if len(live) > 2:
                self.record.remove(chance.choice(live))
            case "replace" if live:
                # As with any change of a document, of its groups too: its chunks are new ones.
                old = self.record.live[chance.choice(live)]
                self.record.remove(old.chunk_id)
                groups = chance.choice([(), ("a",), ("b",)])
                [new] = self.record.add(old.text, groups=groups, language=old.language)
                self.record.embed({new: unit(chance)})
            case "late":
                waiting = sorted(set(live) - set(self.record.stored))
                self.record.embed({i: unit(chance) for i in waiting})
            case "renew" if live:
                self.record.embed({chance.choice(live): unit(chance)})
            case _:
                pass
        self.index.refresh()
        if chance.random() < 0.1:
            self.index.maintain(force=True)

    def ask(self, index: KbIndex | Pinned) -> SearchResult:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(groups=self.groups),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        retriever = HybridRetriever(
            lambda _: index,  # type: ignore[arg-type, return-value]
            OneVector(self.vector),
            self.settings,
            self.pool,
        )
        wanted = SearchRequest(kb="kb", query=self.text, top_k=self.wanted)
        try:
            return asyncio.run(retriever.retrieve(ctx, wanted))
        except PartFailed:
            # Nothing has a vector yet: words alone, and nobody may keep that.
            words = WordsRetriever(
                lambda _: index,  # type: ignore[arg-type, return-value]
                self.settings,
                self.pool,
                chosen=False,
            )
            return asyncio.run(words.retrieve(ctx, wanted))


def judge(world: World, tally: Counter[str]) -> None:
    """Follow one question through changes for as long as its answer is said to stand."""
    first, at = world.ask(world.index), world.index.snapshot()
    evidence, since = first.evidence, first.kb_version
    if evidence is None:
        return
    pinned = Pinned(world.index, world.text, at)
    for _ in range(8):
        world.change()
        changes = world.bounds.changes("kb", since, evidence)
        if changes is None:  # the first vectors came, or the last went
            tally["not known"] += 1
            return
        kept = carried(evidence, changes, world.wanted, PINNED)
        fresh = world.ask(pinned)
        assert fresh.kb_version == changes.version
        same = [hit.chunk.chunk_id for hit in fresh.hits] == list(evidence.fused.ids)
        kind = "nothing entered" if not changes.arrivals else "entered"
        tally[f"{kind}, {'carried' if kept else 'touched'}, {'same' if same else 'other'}"] += 1
        if kept is None:
            return
        assert same, (evidence, changes, fresh.evidence)
        expect_lists(kept, fresh.evidence)
        evidence, since = kept, changes.version


def expect_lists(kept: Evidence, fresh: Evidence | None) -> None:
    assert fresh is not None
    assert kept.words.ids == fresh.words.ids
    assert kept.fused.ids == fresh.fused.ids
    assert kept.fused.scores == pytest.approx(fresh.fused.scores, abs=1e-6)
    assert (kept.vectors is None) == (fresh.vectors is None)
    if kept.vectors is not None and fresh.vectors is not None:
        assert kept.vectors.ids == fresh.vectors.ids
        assert kept.vectors.full == fresh.vectors.full


def follow(pool: ThreadPoolExecutor, seed: int, tally: Counter[str], copies: float = 0.0) -> None:
    """``copies``: the share of new chunks that say what another says already."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), random.Random(seed), pool, copies)
        try:
            judge(world, tally)
        finally:
            world.index.close()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.6]))
def test_what_is_carried_is_what_would_be_found(
    pool: ThreadPoolExecutor, seed: int, copies: float
) -> None:
    follow(pool, seed, Counter(), copies)


def test_most_of_what_stands_is_carried(pool: ThreadPoolExecutor) -> None:
    tally: Counter[str] = Counter()
    for seed in range(60):
        follow(pool, seed, tally)
    beside = tally["nothing entered, carried, same"]
    assert beside / (beside + tally["nothing entered, touched, same"]) > 0.8
    entered = tally["entered, carried, same"]
    # Here every list is a good part of the corpus, so that nearly all that is new enters one.
    assert entered / (entered + tally["entered, touched, same"]) > 0.2
    assert tally["entered, touched, other"] > 10
