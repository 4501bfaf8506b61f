"""A reranker without a model, for tests: relevance is the share of the query's words held."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import DeadlineExceeded

_WORD = re.compile(r"\w+")


class OverlapReranker:
    """``Reranker`` by words in common; ``asked`` keeps what it was given.

    Clear ``gate`` to answer late; set ``failure`` to raise it.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given."""
        self.asked.append((query, tuple(texts)))
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                # A turn of the loop, as every real reranker takes: there time-outs are noticed.
                await asyncio.sleep(0)
                await self.gate.wait()
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed during reranking.") from None
        if self.failure is not None:
            raise self.failure
        return [share_held(query, text) for text in texts]


def share_held(query: str, text: str) -> float:
    """The share of the query's words that the text holds."""
    wanted = set(_WORD.findall(query.lower()))
    return len(wanted & set(_WORD.findall(text.lower()))) / len(wanted) if wanted else 0.0
