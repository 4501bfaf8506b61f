"""Who may read what under a chunk's key, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import CommitReceipt, DocumentInfo
from forebay.kernel.errors import KeyRetired, NotFound
from forebay.pipeline.chunk_keys import ChunkParts, ChunkService, FoundChunk, GuardedKnowledge
from forebay.pipeline.messages import Knowledge
from forebay.store import StoreWriter
from forebay.testing.feed_suite import draft_of


class Guard:
    """Stops the names it is told to; notes what it was asked."""

    def __init__(self) -> None:
        self.stops = False
        self.asked: list[str] = []

    async def may_exist(self, kb: str, name: str, deadline: Deadline) -> bool:
        self.asked.append(name)
        return not self.stops


class Heat:
    def of(self, chunk_id: int) -> int:
        return chunk_id

    def ttl_s(self, chunk_id: int) -> float:
        return 60.0 * chunk_id


class World:
    def __init__(self, store: StoreWriter, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.guard = Guard()
        parts = ChunkParts(store.reader, self.guard, Heat(), clock, 100.0)
        self.chunks = ChunkService(parts, asyncio.to_thread)

    async def put(self, text: str, *groups: str, **metadata: str) -> str:
        draft = draft_of("d", text, groups=groups, metadata=metadata)
        self.store.commit("kb", [draft], [])
        [key] = await self.chunks.keys("kb", "d")
        return key

    async def read(self, key: str, *groups: str) -> FoundChunk:
        return await self.chunks.chunk(context(*groups), "kb", key)


def context(*groups: str) -> RequestContext:
    clock = VirtualClock()
    return RequestContext(
        request_id="r",
        principal=Principal(groups=frozenset(groups) if groups else None),
        deadline=Deadline.after(10.0, clock),
        clock=clock,
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = VirtualClock(1000.0)
    with closing(StoreWriter(tmp_path, clock=clock)) as store:
        yield World(store, clock)


async def test_what_lives_is_told_with_its_heat_and_labels(world: World) -> None:
    key = await world.put("text", priority="high")
    found = await world.read(key)
    assert found.keyed.kept is not None and found.keyed.kept.text == "text"
    assert (found.heat, found.ttl_s, found.priority) == (1, 60.0, "high")
    assert (await world.read(await world.put("text", priority="royal"))).priority == "normal"


async def test_an_old_text_ends_with_its_time_not_with_upkeep(world: World) -> None:
    old = await world.put("old")
    await world.put("new")
    world.clock.advance(40.0)
    assert (await world.read(old)).ttl_s == 60.0
    world.clock.advance(60.0)
    with pytest.raises(NotFound) as raised:
        await world.read(old)
    assert not isinstance(raised.value, KeyRetired)


async def test_who_may_not_read_the_document_learns_nothing(world: World) -> None:
    old = await world.put("old", "hr")
    new = await world.put("new", "hr")
    assert (await world.read(old, "hr", "it")).keyed.state == "superseded"
    world.store.commit("kb", [draft_of("e", "other", groups=("hr",))], ["d"])
    said = set()
    for key in (old, new, f"doc-{'0' * 32}-chunk-0-v1", "nonsense"):
        with pytest.raises(NotFound) as raised:
            await world.read(key, "it")
        said.add((type(raised.value), raised.value.message))
    assert len(said) == 1
    with pytest.raises(KeyRetired, match="was removed"):
        await world.read(new, "hr")


async def test_a_retired_key_says_where_to_look(world: World) -> None:
    first = await world.put("first")
    new = await world.put("second", "hr")
    with pytest.raises(KeyRetired) as raised:
        await world.read(first)
    assert (raised.value.successor, raised.value.document_id) == (new, "d")


async def test_what_the_guard_stops_is_not_looked_for(world: World) -> None:
    key = await world.put("text")
    await world.read(key)
    assert world.guard.asked == ["c" + key[4:36]]
    world.guard.stops = True
    with pytest.raises(NotFound):
        await world.read(key)
    with pytest.raises(NotFound):
        await world.read("nonsense")  # no key: nobody has to be asked
    assert len(world.guard.asked) == 2


async def test_documents_are_guarded_too() -> None:
    class Inner:
        put = documents = kbs = kb = None
        asked = 0

        async def document(
            self, ctx: RequestContext, kb: str, _id: str
        ) -> tuple[DocumentInfo, str]:
            self.asked += 1
            raise NotFound("inner")

        async def delete(self, ctx: RequestContext, kb: str, _id: str) -> CommitReceipt:
            self.asked += 1
            return CommitReceipt(kb, 1, ())

    guard, inner = Guard(), Inner()
    knowledge = GuardedKnowledge(cast(Knowledge, inner), guard)
    with pytest.raises(NotFound, match="inner"):
        await knowledge.document(context(), "kb", "x")
    await knowledge.delete(context(), "kb", "x")
    guard.stops = True
    for ask in (knowledge.document, knowledge.delete):
        with pytest.raises(NotFound, match="'x'"):
            await ask(context(), "kb", "x")
    assert (inner.asked, guard.asked) == (2, ["dx"] * 4)
