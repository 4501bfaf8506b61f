"""The local embedder: prefixes, priority, bounds, deadlines and cancellation around a model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.embedding.centering import CenteredEmbedder, LanguageMeans
from forebay.embedding.local import LocalEmbedder, LocalSettings
from forebay.embedding.prefixes import E5
from forebay.embedding.workers import WorkerSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import DeadlineExceeded, EngineError, Overloaded
from forebay.kernel.stages import EmbedderSpec, at_work_s, in_line

_WAIT_S = 5


class Letters:
    """A tokenizer: one id a character."""

    pad_id = 0

    def encode(self, text: str, limit: int) -> list[int]:
        return [ord(character) for character in text][:limit]


class Recorder:
    """An encoder that notes its inputs and can be held."""

    has_states = True

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()

    def encode(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        self.seen.append(["".join(map(chr, row)) for row in rows])
        self.begun.set()
        assert self.open.wait(_WAIT_S)
        if any("bad" in text for text in self.seen[-1]):
            raise EngineError("bad")
        return np.array([[len(row), row[-1] if row else 0] for row in rows], np.float32)

    def states(self, row: Sequence[int]) -> NDArray[np.float32]:
        self.encode([row])
        return np.array([[place, token] for place, token in enumerate(row)], np.float32)


@asynccontextmanager
async def local(
    settings: LocalSettings | None = None,
) -> AsyncIterator[tuple[LocalEmbedder, Recorder]]:
    recorder = Recorder()
    embedder = LocalEmbedder(
        EmbedderSpec("letters", "0" * 32, 2, 64),
        Letters(),
        recorder,
        prefixes=E5,
        settings=settings or LocalSettings(pool=WorkerSettings(workers=1, query_workers=0)),
        clock=SystemClock(),
    )
    try:
        yield embedder, recorder
    finally:
        recorder.open.set()
        await embedder.close()


async def begun(recorder: Recorder) -> None:
    assert await asyncio.to_thread(recorder.begun.wait, _WAIT_S)


async def test_prefix_by_kind() -> None:
    async with local() as (embedder, recorder):
        for kind in ("query", "passage", "raw"):
            await embedder.embed(["x"], kind=kind)
    assert recorder.seen == [["query: x"], ["passage: x"], ["x"]]


async def test_batches_are_of_similar_length_and_answers_in_order() -> None:
    settings = LocalSettings(batch_size=2, pool=WorkerSettings(workers=1, query_workers=0))
    async with local(settings) as (embedder, recorder):
        vectors = await embedder.embed(["aaaa", "b", "cc", "ddd", "e"], kind="raw")
    assert recorder.seen == [["b", "e"], ["cc", "ddd"], ["aaaa"]]
    found = np.frombuffer(vectors.data, "<f4").reshape(-1, 2)
    assert found[:, 0].tolist() == [4, 1, 2, 3, 1]


async def test_states_of_each_texts_tokens_in_order() -> None:
    settings = LocalSettings(batch_size=2, pool=WorkerSettings(workers=2, query_workers=0))
    async with local(settings) as (embedder, recorder):
        assert embedder.has_states
        found = await embedder.states(["ab", "退"], kind="query")
        assert await embedder.states([], kind="raw") == ()
    assert sorted(recorder.seen) == [["query: ab"], ["query: 退"]]
    assert [(each.tokens, each.dimensions) for each in found] == [(9, 2), (8, 2)]
    last = [np.frombuffer(each.data, "<f4").reshape(-1, 2)[-1].tolist() for each in found]
    assert last == [[8, ord("b")], [7, ord("退")]]


async def test_a_query_waits_for_one_run_only() -> None:
    async with local() as (embedder, recorder):
        recorder.open.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(embedder.embed([f"p{n}" for n in range(10)], kind="passage"))
            await begun(recorder)
            group.create_task(embedder.embed(["q"], kind="query"))
            await asyncio.sleep(0)
            recorder.open.set()
    assert recorder.seen.index(["query: q"]) == 1


async def test_one_call_holds_a_bounded_share_of_the_queue() -> None:
    settings = LocalSettings(
        max_jobs_per_call=4, pool=WorkerSettings(workers=1, query_workers=0, max_waiting_passages=4)
    )
    async with local(settings) as (embedder, recorder):
        vectors = await embedder.embed([str(n) for n in range(50)], kind="passage")
        assert len(vectors.ids) == len(recorder.seen) == 50
        recorder.open.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(embedder.embed(["a"] * 5, kind="passage"))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await embedder.embed(["b"] * 5, kind="passage")
            recorder.open.set()
        assert embedder.statistics().waiting == 0


async def test_cancelling_drops_what_has_not_begun() -> None:
    async with local() as (embedder, recorder):
        recorder.open.clear()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(embedder.embed(["a", "b", "c"], kind="raw"))
            await begun(recorder)
            work.cancel()
        assert work.cancelled()
        assert embedder.statistics().waiting == 0
        recorder.open.set()
        await embedder.embed(["z"], kind="raw")
    assert recorder.seen == [["a"], ["z"]]


async def test_a_failed_run_fails_its_call_and_drops_the_rest() -> None:
    async with local() as (embedder, recorder):
        with pytest.raises(EngineError):
            await embedder.embed(["bad"] * 3 + ["x"] * 20, kind="raw")
        assert embedder.statistics().waiting == 0
        await embedder.embed(["fine"], kind="raw")
    assert recorder.seen[-1] == ["fine"]


async def test_a_stuck_model_is_a_deadline() -> None:
    settings = LocalSettings(timeout_s=0.01, pool=WorkerSettings(workers=1, query_workers=0))
    async with local(settings) as (embedder, recorder):
        recorder.open.clear()
        with pytest.raises(DeadlineExceeded):
            await embedder.embed(["x"], kind="query")


@pytest.mark.parametrize("text", ["How long is the notice?", "通知期多长？"])
async def test_a_query_made_in_line_is_the_same(text: str) -> None:
    async with local() as (embedder, _):
        centered = CenteredEmbedder(embedder, LanguageMeans(*np.ones((2, 2, 2), np.float32)))
        for one in (embedder, centered):
            made = in_line(one, text)
            assert made is not None
            usual = await one.embed([text], kind="query")
            found = await asyncio.to_thread(made)
            assert (found.data, found.dimensions) == (usual.data, usual.dimensions)
            assert found.worked_s is not None


async def test_it_tells_working_from_waiting() -> None:
    async with local() as (embedder, recorder):
        assert embedder.at_work_s() == 0.0
        recorder.open.clear()
        first = asyncio.get_running_loop().create_task(embedder.embed(["a"], kind="query"))
        await begun(recorder)
        second = asyncio.get_running_loop().create_task(embedder.embed(["b"], kind="query"))
        await asyncio.sleep(0.1)
        assert at_work_s(CenteredEmbedder(embedder, LanguageMeans.shipped())) >= 0.09
        recorder.open.set()
        slow, quick = await first, await second
        assert slow.worked_s is not None and slow.worked_s >= 0.09
        assert quick.worked_s is not None and quick.worked_s < slow.worked_s, "it only waited"
        assert embedder.at_work_s() == 0.0
        recorder.open.clear()
        recorder.begun.clear()
        passage = asyncio.get_running_loop().create_task(embedder.embed(["c"], kind="passage"))
        await begun(recorder)
        assert embedder.at_work_s() == 0.0, "no query is in work"
        recorder.open.set()
        await passage
