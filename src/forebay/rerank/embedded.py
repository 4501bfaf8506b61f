"""A query and texts through one embedder, within the request's deadline, and their cosines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import DeadlineExceeded, InvalidRequest, Unavailable
from forebay.kernel.stages import Embedder


def check_count(texts: Sequence[str], most: int) -> None:
    """Raise ``InvalidRequest`` for more texts than are reranked at once."""
    if len(texts) > most:
        raise InvalidRequest(
            f"at most {most} documents can be reranked at once.", param="documents"
        )


async def embedded(
    embedder: Embedder, ctx: RequestContext, query: str, texts: Sequence[str]
) -> tuple[Vectors, Vectors]:
    """The vectors of a query and of passages; ``DeadlineExceeded`` when they come too late."""
    try:
        async with asyncio.timeout(ctx.deadline.remaining()):
            question = await embedder.embed([query], kind="query")
            passages = await embedder.embed(texts, kind="passage")
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed during reranking.") from None
    return question, passages


def cosines(question: Vectors, passages: Vectors) -> npt.NDArray[np.float32]:
    """One cosine per passage, in their order; ``Unavailable`` where two embedders made them."""
    if question.dimensions != passages.dimensions:
        raise Unavailable("the embedder changed while reranking; try again.")
    query = np.frombuffer(question.data, "<f4")
    rows = np.frombuffer(passages.data, "<f4").reshape(-1, question.dimensions)
    found: npt.NDArray[np.float32] = rows @ query
    return found
