"""What every reranker must do: a suite for pytest (asyncio mode ``auto``).

Subclass ``RerankerConformance`` in a test module and provide a ``reranker`` fixture.
"""

from __future__ import annotations

import asyncio
from math import isclose, isfinite

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import DeadlineExceeded
from forebay.kernel.stages import Reranker

QUERY = "how do I reset a password"
TEXTS = (
    "Lunch is served at noon.",
    "How to reset a password: open the portal and reset it.",
    "在门户中重置密码。",
    "",
    "a",
)
_TOLERANCE = 1e-4
HOSTILE = ("\ud800 lone", "nul \0 inside", " " * 5000, "word " * 20_000, "密" * 20_000)


def reranking_context(seconds: float = 30.0) -> RequestContext:
    """A request with so long a deadline."""
    clock = SystemClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(seconds, clock), clock=clock
    )


class RerankerConformance:
    """One test per promise of the ``Reranker`` protocol."""

    async def test_one_relevance_per_text_in_the_order_given(self, reranker: Reranker) -> None:
        found = await reranker.rerank(reranking_context(), QUERY, TEXTS)
        turned = await reranker.rerank(reranking_context(), QUERY, TEXTS[::-1])
        assert len(found) == len(TEXTS)
        assert all(isfinite(one) and 0.0 <= one <= 1.0 for one in found)
        pairs = zip(found, list(turned)[::-1], strict=True)
        assert all(isclose(one, two, abs_tol=_TOLERANCE) for one, two in pairs)

    async def test_the_answering_text_comes_before_an_unrelated_one(
        self, reranker: Reranker
    ) -> None:
        unrelated, answering = await reranker.rerank(reranking_context(), QUERY, TEXTS[:2])
        assert answering > unrelated

    async def test_equal_texts_are_equally_relevant(self, reranker: Reranker) -> None:
        one, two = await reranker.rerank(reranking_context(), QUERY, [TEXTS[1]] * 2)
        assert isclose(one, two, abs_tol=_TOLERANCE)

    async def test_no_texts_have_no_relevances(self, reranker: Reranker) -> None:
        assert list(await reranker.rerank(reranking_context(), QUERY, [])) == []

    async def test_any_text_is_taken(self, reranker: Reranker) -> None:
        found = await reranker.rerank(reranking_context(), QUERY, HOSTILE)
        assert len(found) == len(HOSTILE) and all(0.0 <= one <= 1.0 for one in found)
        assert len(await reranker.rerank(reranking_context(), HOSTILE[0], TEXTS)) == len(TEXTS)

    async def test_a_deadline_that_has_passed_is_told(self, reranker: Reranker) -> None:
        try:
            await reranker.rerank(reranking_context(-1.0), QUERY, TEXTS)
        except DeadlineExceeded:
            return
        raise AssertionError("a deadline that had passed went unnoticed")

    async def test_cancelling_ends_it(self, reranker: Reranker) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_used(reranker))
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert len(await reranker.rerank(reranking_context(), QUERY, TEXTS)) == len(TEXTS)


async def _used(reranker: Reranker) -> None:
    await reranker.rerank(reranking_context(), QUERY, TEXTS * 8)
