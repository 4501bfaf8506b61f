"""What every embedder must do: a suite for pytest (asyncio mode ``auto``).

Subclass ``EmbedderConformance`` in a test module and provide an ``embedder`` fixture.
"""

from __future__ import annotations

import asyncio
from math import isclose, sqrt

from forebay.kernel.documents import Vectors
from forebay.kernel.stages import Embedder

TEXTS = (
    "How do I return a parcel?",
    "退货需要几天？",
    "The boiler is serviced once a year.",
    "会议室需要提前预订，超过两小时请联系行政部。",
    "a",
    "中",
)
_TOLERANCE = 1e-4


def rows(vectors: Vectors) -> list[list[float]]:
    """The vectors as lists, one per text."""
    numbers = [float(number) for number in memoryview(vectors.data).cast("f")]
    size = vectors.dimensions
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def plain(vectors: Vectors) -> Vectors:
    """The vectors without how they came about."""
    return Vectors(vectors.ids, vectors.dimensions, vectors.data)


def cosine(left: list[float], right: list[float]) -> float:
    """Cosine of two unit vectors."""
    return sum(a * b for a, b in zip(left, right, strict=True))


class EmbedderConformance:
    """One test per promise of the ``Embedder`` protocol."""

    async def test_spec_says_who_it_is(self, embedder: Embedder) -> None:
        spec = embedder.spec
        assert spec.name
        assert len(spec.fingerprint) >= 16
        assert spec.dimensions > 0
        assert spec.max_tokens > 0
        assert embedder.spec == spec

    async def test_one_unit_vector_per_text(self, embedder: Embedder) -> None:
        for kind in ("query", "passage", "raw"):
            vectors = await embedder.embed(TEXTS, kind=kind)
            assert vectors.ids == tuple(range(len(TEXTS)))
            assert vectors.dimensions == embedder.spec.dimensions
            assert len(vectors.data) == 4 * vectors.dimensions * len(TEXTS)
            for row in rows(vectors):
                assert isclose(sqrt(cosine(row, row)), 1.0, abs_tol=_TOLERANCE)

    async def test_vectors_keep_the_order_of_the_texts(self, embedder: Embedder) -> None:
        together = rows(await embedder.embed(TEXTS, kind="passage"))
        backwards = rows(await embedder.embed(TEXTS[::-1], kind="passage"))
        for index, text in enumerate(TEXTS):
            alone = rows(await embedder.embed([text], kind="passage"))[0]
            assert cosine(alone, together[index]) > 1 - _TOLERANCE
            assert cosine(alone, backwards[-1 - index]) > 1 - _TOLERANCE

    async def test_the_same_text_gives_the_same_vector(self, embedder: Embedder) -> None:
        first, second = await asyncio.gather(
            embedder.embed(TEXTS, kind="query"), embedder.embed(TEXTS, kind="query")
        )
        assert plain(first) == plain(second)

    async def test_different_texts_differ(self, embedder: Embedder) -> None:
        found = rows(await embedder.embed(TEXTS, kind="passage"))
        for index, row in enumerate(found):
            assert all(cosine(row, other) < 1 - 1e-6 for other in found[:index])

    async def test_nothing_in_nothing_out(self, embedder: Embedder) -> None:
        nothing = await embedder.embed([], kind="query")
        assert plain(nothing) == Vectors((), embedder.spec.dimensions, b"")

    async def test_empty_and_odd_texts_have_a_direction(self, embedder: Embedder) -> None:
        odd = ("", " ", "\n\t", "\x00", "\ud800", "🙂", "\u200b", "ＡＢＣ", "<s></s><pad>")
        found = rows(await embedder.embed(odd, kind="passage"))
        assert len(found) == len(odd)
        assert all(isclose(cosine(row, row), 1.0, abs_tol=_TOLERANCE) for row in found)

    async def test_very_long_texts_are_cut(self, embedder: Embedder) -> None:
        long = ("退货" * 200_000, "x" * 400_000, " " * 100_000 + "end", "word " * 100_000)
        async with asyncio.timeout(20):
            found = rows(await embedder.embed(long, kind="passage"))
        assert len(found) == len(long)

    async def test_cancelling_leaves_it_usable(self, embedder: Embedder) -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            work = group.create_task(embedder.embed(TEXTS * 20, kind="passage"))
            await asyncio.sleep(0)
            work.cancel()
        assert work.cancelled()
        async with asyncio.timeout(20):
            assert len((await embedder.embed(TEXTS[:1], kind="query")).ids) == 1

    async def test_the_loop_stays_free(self, embedder: Embedder) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            await embedder.embed(TEXTS * 4, kind="passage")
            ticking.cancel()
        # How often depends on the machine; a loop that is held up ticks once, before the call.
        assert ticks > 1
