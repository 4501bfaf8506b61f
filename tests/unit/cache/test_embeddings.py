"""L1: a query is embedded once, whoever asks, and never answered with another embedder's vector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.cache.embeddings import CachedEmbedder
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.settings import EmbeddingTierSettings
from forebay.kernel.caching import SharedValues
from forebay.kernel.clock import VirtualClock
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import EmbedderSpec
from forebay.testing.shared_values import FakeSharedValues

Kind = Literal["query", "passage", "raw"]


class Counting:
    """An embedder that counts, and gives vectors of its own number."""

    def __init__(self, fingerprint: str = "f", number: float = 1.0) -> None:
        self.spec = EmbedderSpec("counting", fingerprint, 2, 512)
        self.number = number
        self.calls: list[tuple[tuple[str, ...], str]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        self.calls.append((tuple(texts), kind))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        rows = np.full((len(texts), 2), self.number, np.float32)
        return Vectors(tuple(range(len(texts))), 2, rows.tobytes())


def cached(
    inner: Counting,
    memory: MemoryTier[bytes] | None = None,
    shared: SharedValues | None = None,
    clock: VirtualClock | None = None,
) -> CachedEmbedder:
    clock = clock or VirtualClock()
    if memory is None:
        memory = MemoryTier(MemorySettings(1 << 20), clock)
    return CachedEmbedder(inner, memory, EmbeddingTierSettings(life_s=60.0), clock, shared)


async def vector(embedder: CachedEmbedder, text: str = "notice period") -> tuple[bytes, bool]:
    found = await embedder.embed([text], kind="query")
    assert found.cached is not None
    return found.data, found.cached


async def test_the_second_time_it_is_remembered() -> None:
    inner = Counting()
    embedder = cached(inner)
    first, second = await vector(embedder), await vector(embedder, "Notice  period?")
    assert (first[1], second[1]) == (False, True)
    assert first[0] == second[0]
    assert len(inner.calls) == 1
    assert embedder.holds("NOTICE PERIOD")
    assert not embedder.holds("trial period")


async def test_another_embedder_of_the_same_size_gets_none_of_it() -> None:
    memory: MemoryTier[bytes] = MemoryTier(MemorySettings(1 << 20), VirtualClock())
    shared = FakeSharedValues(VirtualClock())
    old, new = Counting("old", 1.0), Counting("new", 2.0)
    before = await vector(cached(old, memory, shared))
    after = await vector(cached(new, memory, shared))
    assert after[1] is False
    assert before[0] != after[0]
    assert len(new.calls) == 1


@pytest.mark.parametrize(
    ("texts", "kind"), [(["a"], "passage"), (["a"], "raw"), (["a", "b"], "query"), ([], "query")]
)
async def test_only_single_queries_are_remembered(texts: list[str], kind: Kind) -> None:
    inner = Counting()
    embedder = cached(inner)
    for _ in range(2):
        assert (await embedder.embed(texts, kind=kind)).cached is None
    assert len(inner.calls) == 2


async def test_a_thousand_equal_cold_queries_are_embedded_once() -> None:
    inner = Counting()
    inner.go.clear()
    embedder = cached(inner)
    asked = [asyncio.create_task(vector(embedder)) for _ in range(1000)]
    for _ in range(5):
        await asyncio.sleep(0)
    inner.go.set()
    assert len({data for data, _ in await asyncio.gather(*asked)}) == 1
    assert len(inner.calls) == 1


class AtHand(Counting):
    """One that works in the thread of who asks."""

    def in_line(self, text: str) -> Callable[[], Vectors]:
        def work() -> Vectors:
            self.calls.append(((text,), "in line"))
            return Vectors((0,), 2, np.full((1, 2), self.number, np.float32).tobytes())

        return work


async def test_what_was_made_in_line_is_remembered() -> None:
    embedder = cached(AtHand())
    make = embedder.in_line("notice period")
    assert make is not None
    found = await asyncio.to_thread(make)
    assert found.cached is False
    assert await vector(embedder, "Notice  period?") == (found.data, True)
    again = embedder.in_line("Notice period?")
    assert again is not None and again() == msgspec.structs.replace(found, cached=True)


async def test_what_is_under_way_or_shared_is_not_made_in_line() -> None:
    inner = AtHand()
    embedder = cached(inner)
    inner.go.clear()
    first = asyncio.get_running_loop().create_task(embedder.embed(["a b"], kind="query"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert embedder.in_line("a b") is None
    assert embedder.in_line("c d") is not None
    inner.go.set()
    await first
    assert cached(AtHand(), shared=FakeSharedValues(VirtualClock())).in_line("a b") is None
    assert cached(Counting()).in_line("a b") is None, "it cannot"
    assert embedder.in_line("x" * 5000) is None


async def test_a_failure_is_not_remembered() -> None:
    inner = Counting()
    inner.error = EngineError("no")
    embedder = cached(inner)
    with pytest.raises(EngineError):
        await vector(embedder)
    inner.error = None
    assert (await vector(embedder))[1] is False


async def test_what_one_process_embedded_another_finds() -> None:
    shared = FakeSharedValues(VirtualClock())
    one, other = Counting(), Counting()
    await vector(cached(one, shared=shared))
    found = cached(other, shared=shared)
    assert await found.holds_shared("notice period") and not found.holds("notice period")
    assert not await found.holds_shared("Something else?")
    assert (await vector(found))[1] is True
    assert other.calls == []
    shared.down = True
    # It is in this process's own memory by now.
    assert (await vector(found))[1] is True


async def test_a_poisoned_value_is_embedded_anew() -> None:
    clock = VirtualClock()
    shared = FakeSharedValues(clock)
    await vector(cached(Counting(), shared=shared))
    [key] = shared.values
    for poison in (b"", b"FB", b"\0" * 32, b"x" * 10_000):
        await shared.put(key, poison, 60.0)
        inner = Counting()
        assert (await vector(cached(inner, shared=shared)))[1] is False
        assert len(inner.calls) == 1


async def test_a_vector_lives_its_life_and_no_longer() -> None:
    clock = VirtualClock()
    inner = Counting()
    memory: MemoryTier[bytes] = MemoryTier(MemorySettings(1 << 20), clock)
    embedder = cached(inner, memory, clock=clock)
    await vector(embedder)
    clock.advance(61.0)
    assert (await vector(embedder))[1] is False


async def test_a_text_without_end_is_not_remembered() -> None:
    inner = Counting()
    embedder = cached(inner)
    for _ in range(2):
        assert (await embedder.embed(["x" * 100_000], kind="query")).cached is None
    assert len(inner.calls) == 2


async def test_a_vector_that_comes_too_late_is_there_for_who_asks_next() -> None:
    """An embedder slower than the searches' time-out: each of them gives up, the vector is made."""
    inner = Counting()
    inner.go.clear()
    embedder = cached(inner)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await vector(embedder)
    inner.go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (await vector(embedder))[1] is True
    assert len(inner.calls) == 1
