"""A carried retrieval that was ordered anew is what a fresh one would be, in the same order."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.carrying import carried
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import PartFailed
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.lab.distill.light_export import LightDescription, light_graph
from forebay.pipeline.reranking import RerankingParts, RerankingRetriever, RerankingSettings
from forebay.rerank.features import FEATURES, FEATURES_VERSION
from forebay.rerank.light import LightModel
from forebay.retrieval import HybridRetriever, KbIndex, search_executor
from tests.integration.test_carrying import PINNED, SPEC, OneVector, Pinned, World

CANDIDATES = RerankingSettings(candidates=8, timeout_ms=20_000)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


def any_model() -> LightModel:
    """A model that orders by whatever it happens to: it must do so twice alike."""
    chance = np.random.default_rng(11)
    shapes = {"query": (SPEC.dimensions, 4), "passage": (SPEC.dimensions, 4)}
    parameters = {
        name: chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    parameters["linear"] = chance.random(2 * (len(FEATURES) - 1)).astype(np.float32)
    parameters["deviation"] = np.ones(len(FEATURES) - 2, np.float32)
    description = LightDescription("random", FEATURES_VERSION, [(0.0, 1.0)], "chance")
    return LightModel(light_graph(parameters, description))


MODEL = any_model()


class RerankedWorld(World):
    """The same, with what was found ordered anew."""

    def ask(self, index: KbIndex | Pinned) -> SearchResult:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(groups=self.groups),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        inner = HybridRetriever(
            lambda _: index,  # type: ignore[arg-type, return-value]
            OneVector(self.vector),
            self.settings,
            self.pool,
            with_vectors=True,
        )
        retriever = RerankingRetriever(inner, RerankingParts(MODEL, self.pool, CANDIDATES))
        return asyncio.run(
            retriever.retrieve(ctx, SearchRequest(kb="kb", query=self.text, top_k=self.wanted))
        )


def follow(pool: ThreadPoolExecutor, seed: int, tally: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = RerankedWorld(Path(folder), random.Random(seed), pool, 0.2)
        try:
            judge(world, tally)
        except PartFailed:
            tally["no vectors"] += 1
        finally:
            world.index.close()


def judge(world: World, tally: Counter[str]) -> None:
    first, at = world.ask(world.index), world.index.snapshot()
    evidence, since = first.evidence, first.kb_version
    if evidence is None:
        return
    tally["reranked" if evidence.chosen_from else "words were sure"] += 1
    pinned = Pinned(world.index, world.text, at)
    for _ in range(8):
        world.change()
        changes = world.bounds.changes("kb", since, evidence)
        if changes is None:
            return
        kept = carried(evidence, changes, world.wanted, PINNED)
        if kept is None:
            tally["touched"] += 1
            return
        fresh = world.ask(pinned)
        tally["carried"] += 1
        told = [[hit.chunk.chunk_id for hit in one.hits] for one in (fresh, first)]
        assert told[0] == told[1], (evidence, changes)
        evidence, since = kept, changes.version


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_carried_is_what_would_be_found(pool: ThreadPoolExecutor, seed: int) -> None:
    follow(pool, seed, Counter())


def test_some_of_what_was_ordered_anew_is_carried(pool: ThreadPoolExecutor) -> None:
    tally: Counter[str] = Counter()
    for seed in range(60):
        follow(pool, seed, tally)
    assert tally["reranked"] > 20, tally
    assert tally["carried"] > 20, tally
