"""The retriever in a process that has too much to do: whole answers, and nobody is blamed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from forebay.kernel.documents import Vectors
from forebay.kernel.errors import PartFailed
from forebay.retrieval import search_executor
from forebay.testing.embedding import HashEmbedder
from tests.unit.retrieval.test_retriever import TEXTS, Library, ask, both, context

TIMEOUT_MS = 300
BLOCKED_S = 0.5
"""More than the time-out, and far less than the eight of them after which a search gives up."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


@pytest.fixture
async def library(tmp_path: Path, pool: ThreadPoolExecutor) -> Library:
    made = Library(tmp_path, pool)
    await made.add(*TEXTS)
    return made


class Beside(HashEmbedder):
    """An embedder whose loop does something else while its text is in work."""

    def __init__(self, block_s: float) -> None:
        super().__init__(64)
        self._block_s = block_s

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        time.sleep(self._block_s)
        return await super().embed(texts, kind=kind)


async def test_a_loop_that_was_blocked_is_no_fault_of_the_embedders(library: Library) -> None:
    retriever = library.retriever(Beside(BLOCKED_S), both(vector_timeout_ms=TIMEOUT_MS))
    result = await retriever.retrieve(context(), ask("退货申请"))
    assert result.rung == "vector+bm25" and result.evidence is not None, "it may be kept"
    [vector] = [use for use in result.uses if use.part == "vector"]
    assert vector.took_s < 0.1


async def test_a_wait_for_a_thread_is_nobodys_fault(
    library: Library, pool: ThreadPoolExecutor
) -> None:
    settings = both(vector_timeout_ms=TIMEOUT_MS, words_timeout_ms=TIMEOUT_MS)
    pool.submit(time.sleep, BLOCKED_S)
    result = await library.retriever(library.embedder, settings).retrieve(
        context(), ask("退货申请")
    )
    assert result.rung == "vector+bm25"
    assert all(use.took_s < 0.1 for use in result.uses)


async def test_who_gets_no_turn_says_so_and_blames_nobody(
    library: Library, pool: ThreadPoolExecutor
) -> None:
    settings = both(vector_timeout_ms=TIMEOUT_MS, words_timeout_ms=TIMEOUT_MS)
    free = threading.Event()
    pool.submit(free.wait, 20)
    try:
        with pytest.raises(PartFailed) as failed:
            await library.words(settings=settings).retrieve(context(), ask("退货申请"))
    finally:
        free.set()
    found = failed.value
    assert (found.reason, found.at_fault, found.busy) == ("bm25_load", False, True)
    assert found.late_s >= 8 * TIMEOUT_MS / 1000


async def test_an_embedders_own_line_is_no_fault_of_its(library: Library) -> None:
    class InLine(Beside):
        at_work, takes_s = 0.01, BLOCKED_S

        def at_work_s(self) -> float:
            return self.at_work

        async def embed(
            self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
        ) -> Vectors:
            await asyncio.sleep(self.takes_s)
            made = await super().embed(texts, kind=kind)
            return Vectors(made.ids, made.dimensions, made.data, worked_s=0.01)

    embedder = InLine(0.0)
    retriever = library.retriever(embedder, both(vector_timeout_ms=TIMEOUT_MS))
    result = await retriever.retrieve(context(), ask("退货申请"))
    [vector] = [use for use in result.uses if use.part == "vector"]
    assert result.rung == "vector+bm25" and vector.took_s < 0.1
    embedder.at_work = embedder.takes_s = 3600.0
    with pytest.raises(PartFailed) as failed:
        await retriever.retrieve(context(), ask("退货申请"))
    assert (failed.value.reason, failed.value.at_fault) == ("vector_timeout", True)
