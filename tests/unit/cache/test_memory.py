"""The tier in memory: its bound, lives, what it keeps under scans, and what it truly weighs."""

from __future__ import annotations

import gc
import itertools
import random
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.memory import MemorySettings, MemoryTier, allocated
from forebay.cache.values import VectorCodec, retrieval_codec
from forebay.kernel.caching import Evidence, LegList
from forebay.kernel.clock import VirtualClock
from forebay.kernel.documents import ChunkRow, Hit, Vectors
from forebay.kernel.stages import SearchResult

LIFE_S = 60.0
BOUND = 1 << 20


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def tier(max_bytes: int = BOUND, clock: VirtualClock | None = None) -> MemoryTier[bytes]:
    return MemoryTier(MemorySettings(max_bytes=max_bytes), clock or VirtualClock())


def test_what_was_put_is_got_until_its_life_ends() -> None:
    clock = VirtualClock()
    cache = tier(clock=clock)
    assert cache.get(b"a") is None
    assert cache.put(b"a", b"1", 10.0) and cache.put(b"b", b"2", 20.0)
    clock.advance(9.9)
    assert cache.get(b"a") == b"1"
    clock.advance(0.1)
    assert cache.get(b"a") is None and cache.get(b"b") == b"2"
    assert [k for k, _ in cache.items()] == [b"b"]
    found = cache.statistics()
    assert (found["hits"], found["misses"], found["expired"]) == (2, 2, 1)
    assert found["entries"] == 1


def test_a_new_value_replaces_the_old_and_a_life_that_is_over_is_none() -> None:
    cache = tier()
    empty = cache.statistics()["bytes"]
    for value in (b"1", b"22", bytes(9000), b"333"):
        cache.put(b"a", value, LIFE_S)
    assert cache.get(b"a") == b"333" and cache.statistics()["entries"] == 1
    assert cache.statistics()["bytes"] - empty < 1000
    assert not cache.put(b"a", b"4", 0.0)
    assert cache.get(b"a") is None and cache.statistics()["entries"] == 0


def test_removing() -> None:
    gone: list[tuple[bytes, bytes]] = []
    cache: MemoryTier[bytes] = MemoryTier(
        MemorySettings(max_bytes=BOUND),
        VirtualClock(),
        dropped=lambda key, value: gone.append((key, value)),
    )
    for number in range(10):
        cache.put(key(number), bytes([number]), LIFE_S)
    cache.get(key(3))
    assert cache.remove(key(3)) == b"\3" and cache.remove(key(3)) is None
    assert cache.remove_if(lambda _, value: value[0] % 2 == 0) == 5
    assert sorted(value for _, value in cache.items()) == [b"\1", b"\5", b"\7", b"\t"]
    assert len(gone) == 6
    cache.clear()
    assert cache.statistics()["entries"] == 0 and cache.get(key(1)) is None
    assert len(gone) == 6


def test_an_entry_that_would_push_out_too_much_is_not_taken() -> None:
    cache = tier()
    cache.put(b"a", b"1", LIFE_S)
    assert not cache.put(b"a", bytes(BOUND // 3), LIFE_S)
    assert cache.get(b"a") is None and cache.statistics()["rejected"] == 1


OPERATIONS = st.lists(
    st.tuples(st.sampled_from("gppr"), st.integers(0, 40), st.integers(0, 30_000)), max_size=200
)


@settings(deadline=None, max_examples=60)
@given(OPERATIONS)
def test_the_bound_holds_after_every_step_and_no_entry_is_lost_silently(
    operations: Sequence[tuple[str, int, int]],
) -> None:
    clock = VirtualClock()
    present: dict[bytes, bytes] = {}

    def dropped(key: bytes, value: bytes) -> None:
        assert present.pop(key) == value

    cache: MemoryTier[bytes] = MemoryTier(MemorySettings(max_bytes=1 << 17), clock, dropped=dropped)
    for step, (what, number, size) in enumerate(operations):
        clock.advance(0.1)
        if what == "g":
            wanted = present.get(key(number))
            got = cache.get(key(number))
            assert got == (wanted if key(number) in present else None)
        elif what == "r":
            cache.remove(key(number))
        else:
            value = step.to_bytes(4, "little") + bytes(size)
            present[key(number)] = value
            assert cache.put(key(number), value, 5.0) == (key(number) in present)
        found = cache.statistics()
        assert found["bytes"] <= 1 << 17
        assert found["entries"] == len(present)
        assert sum(s.bytes for s in cache._segments) == sum(
            entry[1] for s in cache._segments for entry in s.entries.values()
        )


# --- what it keeps ------------------------------------------------------------------------------

ENTRIES = 1000
SIZE = 900


def zipf(count: int, questions: int, seed: int, exponent: float = 1.0) -> list[int]:
    weights = 1.0 / np.arange(1, questions + 1) ** exponent
    chosen = np.random.default_rng(seed).choice(questions, count, p=weights / weights.sum())
    return [int(number) for number in chosen]


def best_share(places: int, questions: int, exponent: float = 1.0) -> float:
    """Hit rate of a cache that holds the most popular for ever: the ideal without foresight."""
    weights = 1.0 / np.arange(1, questions + 1) ** exponent
    return float(weights[:places].sum() / weights.sum())


class PlainLru:
    """What the tier has to beat: recency alone, the same number of entries."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._kept: OrderedDict[int, None] = OrderedDict()

    def __call__(self, number: int) -> bool:
        hit = number in self._kept
        self._kept[number] = None
        self._kept.move_to_end(number)
        if len(self._kept) > self._places:
            self._kept.popitem(last=False)
        return hit


def through(cache: MemoryTier[bytes]) -> Callable[[int], bool]:
    def ask(number: int) -> bool:
        if cache.get(key(number)) is not None:
            return True
        cache.put(key(number), bytes(SIZE), 1e9)
        return False

    return ask


def rate(ask: Callable[[int], bool], numbers: Iterable[int]) -> float:
    hits = [ask(number) for number in numbers]
    return sum(hits) / len(hits)


def with_scans(numbers: Sequence[int], every: int, length: int) -> tuple[list[int], list[bool]]:
    """Popular questions with runs of ones that never come again; which are the popular."""
    fresh = itertools.count(10**9)
    mixed: list[int] = []
    popular: list[bool] = []
    for at, number in enumerate(numbers):
        if at % every == 0:
            mixed += itertools.islice(fresh, length)
            popular += [False] * length
        mixed.append(number)
        popular.append(True)
    return mixed, popular


def popular_rate(ask: Callable[[int], bool], mixed: list[int], popular: list[bool]) -> float:
    hits = [ask(number) for number in mixed]
    counted = [hit for hit, real in zip(hits, popular, strict=True) if real]
    return sum(counted) / len(counted)


def places(cache: MemoryTier[bytes]) -> int:
    for number in range(10**12, 10**12 + 3 * ENTRIES):
        cache.put(key(number), bytes(SIZE), 1e9)
    held = int(cache.statistics()["entries"])
    cache.clear()
    return held


def test_zipf_comes_near_the_ideal_and_beats_recency() -> None:
    cache = tier()
    room = places(cache)
    lru = PlainLru(room)
    warm, asked = zipf(60_000, 20_000, 1), zipf(60_000, 20_000, 2)
    rate(through(cache), warm)
    rate(lru, warm)
    ideal = best_share(room, 20_000)
    ours, plain = rate(through(cache), asked), rate(lru, asked)
    assert ours >= 0.95 * ideal
    assert ours >= plain + 0.05


def test_a_scan_pushes_out_next_to_nothing() -> None:
    cache = tier()
    room = places(cache)
    lru = PlainLru(room)
    warm = zipf(60_000, 20_000, 1)
    rate(through(cache), warm)
    rate(lru, warm)
    mixed, popular = with_scans(zipf(30_000, 20_000, 2), every=1000, length=2 * room)
    ideal = best_share(room, 20_000)
    ours = popular_rate(through(cache), mixed, popular)
    plain = popular_rate(lru, mixed, popular)
    assert ours >= 0.90 * ideal
    assert ours >= plain + 0.15


def test_a_change_of_what_is_popular_is_followed() -> None:
    # Which keys share a counter is another matter in every process, and one draw in eighteen or so
    # follows slowly (.58 for .66): the middle of five counts.
    reached = []
    for salt in (0, 10**7, 10**8, 10**9, 10**10):
        cache = tier()
        room = places(cache)
        rate(through(cache), [number + salt for number in zipf(100_000, 20_000, 1)])
        moved = [number + salt + 10**6 for number in zipf(100_000, 20_000, 3)]
        rate(through(cache), moved[:80_000])
        reached.append(rate(through(cache), moved[80_000:]))
    assert median(reached) >= 0.9 * best_share(room, 20_000)


# --- what it weighs -----------------------------------------------------------------------------


def test_large_objects_are_counted_with_what_the_c_library_adds() -> None:
    assert [allocated(size) for size in (0, 64, 512)] == [0, 64, 512]
    assert [allocated(size) for size in (520, 521, 1589)] == [528, 544, 1600]


def random_text(chance: random.Random, size: int) -> str:
    return chance.randbytes(size // 2).hex()


def result(chance: random.Random) -> SearchResult:
    hits = tuple(
        Hit(
            ChunkRow(
                chunk_id=chance.randrange(10**6, 10**9),
                document_id=f"doc-{chance.random()}",
                ordinal=chance.randrange(500),
                start=chance.randrange(10**6),
                end=chance.randrange(10**6),
                text=random_text(chance, 1200),
                context="",
                tokens=300,
                page=None,
                heading_path=("One heading", "another"),
                title="Some title or other",
                source="some/path.md",
                language="en",
                tags=(),
                groups=(),
                metadata={"team": "dams"},
                version=chance.randrange(1000),
            ),
            chance.random(),
            bm25=chance.random(),
            cosine=chance.random(),
        )
        for _ in range(5)
    )
    ids = tuple(chance.randrange(10**6, 10**9) for _ in range(50))
    leg = LegList(ids, tuple(chance.random() for _ in ids), True)
    return SearchResult(hits, "bm25", 7, Evidence(10**5, leg, leg, leg, bytes(1700), 50, 0.05))


def fill_with_bytes(cache: MemoryTier[object], chance: random.Random, number: int) -> None:
    cache.put(chance.randbytes(16), chance.randbytes(1536), LIFE_S)


def fill_with_vectors(cache: MemoryTier[object], chance: random.Random, number: int) -> None:
    codec, one = VectorCodec(384), Vectors((0,), 384, chance.randbytes(1536))
    cache.put(chance.randbytes(16), codec.decode(b"", codec.encode(b"", one)), LIFE_S)


_RETRIEVAL = retrieval_codec()


def fill_with_results(cache: MemoryTier[object], chance: random.Random, number: int) -> None:
    stored = _RETRIEVAL.encode(b"", result(chance))
    cache.put(chance.randbytes(16), _RETRIEVAL.decode(b"", stored), LIFE_S)


@pytest.mark.parametrize(
    ("fill", "count"),
    [(fill_with_bytes, 9000), (fill_with_vectors, 9000), (fill_with_results, 600)],
)
def test_memory_stays_within_a_twentieth_of_the_bound(
    fill: Callable[[MemoryTier[object], random.Random, int], None], count: int
) -> None:
    chance = random.Random(1)
    bound = 8 << 20
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache: MemoryTier[object] = MemoryTier(MemorySettings(max_bytes=bound), VirtualClock())
        seen = 0
        for number in range(count):
            fill(cache, chance, number)
            if number % 100 == 0:
                seen = max(seen, tracemalloc.get_traced_memory()[0] - before)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = cache.statistics()["bytes"]
    assert counted >= 0.95 * bound
    assert 0.95 * bound <= held <= 1.05 * bound
    assert seen <= 1.05 * bound
