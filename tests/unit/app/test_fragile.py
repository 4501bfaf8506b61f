"""What is normal for a knowledge base: learned once, kept, learned anew when that has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from forebay.app.fragile import Calibrations, tell
from forebay.app.records import BlockingPool
from forebay.app.runtime import Reading
from forebay.app.settings import Settings
from forebay.kernel.errors import NotFound
from forebay.policy.fragility import Bounds, FragilityChange
from forebay.retrieval import KbIndex, search_executor
from forebay.retrieval.spread import SpreadCalibration
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 16


class Indexes:
    """One knowledge base, ``kb``."""

    def __init__(self, index: KbIndex) -> None:
        self._index = index

    def names(self) -> tuple[str, ...]:
        return ("kb",)

    def get(self, kb: str) -> KbIndex:
        if kb != "kb":
            raise NotFound("there is none")
        return self._index


class World:
    """A record with vectors, its index, and the reading half that knows both."""

    def __init__(self, folder: Path) -> None:
        self.record = MemoryIndexFeed(DIMENSIONS)
        self.chance = np.random.default_rng(6)
        self.grow(80)
        self.index = KbIndex.open(
            folder / "index", "kb", self.record, writable=True, fingerprint=lambda: "mark"
        )
        self.threads = BlockingPool(search_executor(1))
        reading = SimpleNamespace(
            indexes=Indexes(self.index), threads=self.threads, settings=Settings()
        )
        self.reading = cast(Reading, reading)

    def grow(self, chunks: int) -> None:
        vectors = self.chance.standard_normal((chunks, DIMENSIONS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.record.embed({self.record.add("text")[0]: vector for vector in vectors})

    def close(self) -> None:
        self.threads.close()
        self.index.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def test_normal_is_learned_beside_searches_and_kept(world: World, tmp_path: Path) -> None:
    kept = tmp_path / "calibration"
    calibrations = Calibrations(world.reading, kept)
    ids = sorted(world.record.stored)[:5]
    first = await calibrations.spread("kb", ids)
    assert first is not None and first.bounds is None
    await calibrations.look()
    second = await calibrations.spread("kb", ids)
    assert second is not None and second.value == first.value
    assert second.bounds is not None and second.bounds.normal < second.bounds.fragile
    [file] = kept.iterdir()
    stored = msgspec.json.decode(file.read_bytes(), type=SpreadCalibration)
    assert second.bounds == Bounds(stored.at(95.0), stored.at(99.5))
    doubled = msgspec.structs.replace(stored, spreads=tuple(2 * one for one in stored.spreads))
    file.write_bytes(msgspec.json.encode(doubled))
    later = Calibrations(world.reading, kept)
    await later.look()
    third = await later.spread("kb", ids)
    assert third is not None and third.bounds is not None
    assert third.bounds.normal == pytest.approx(2 * second.bounds.normal)


async def test_a_corpus_of_another_size_or_embedder_is_learned_anew(
    world: World, tmp_path: Path
) -> None:
    calibrations = Calibrations(world.reading, tmp_path)
    (tmp_path / "kb.spread.json").write_bytes(
        msgspec.json.encode(SpreadCalibration("other", 80, (0.0, 100.0), (0.0, 9.0)))
    )
    await calibrations.look()
    ids = sorted(world.record.stored)[:5]
    before = await calibrations.spread("kb", ids)
    assert before is not None and before.bounds is not None and before.bounds.fragile < 9
    world.grow(200)
    world.index.refresh()
    grown = await calibrations.spread("kb", ids)
    assert grown is not None and grown.bounds is None
    await calibrations.look()
    again = await calibrations.spread("kb", ids)
    assert again is not None and again.bounds is not None


async def test_no_vectors_and_no_knowledge_base(world: World, tmp_path: Path) -> None:
    calibrations = Calibrations(world.reading, tmp_path)
    assert await calibrations.spread("gone", [1, 2, 3]) is None
    assert await calibrations.spread("kb", [10**9]) is None


def test_a_change_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "forebay.fragility"):
        tell(FragilityChange("kb", "spread", "fragile", "warn", 0.12345))
        tell(FragilityChange("kb", "spread", "normal", "fragile", 0.01))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.records[0].getMessage() == "retrieval is fragile by its spread"
    assert vars(caplog.records[0])["value"] == 0.1235
