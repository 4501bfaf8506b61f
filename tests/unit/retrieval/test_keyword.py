"""The rung of keywords: found from the record alone, honest about what it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.retrieval import KbIndex, KeywordRetriever, RetrievalSettings
from forebay.retrieval.engine import GuardedSearcher, IndexDamaged
from forebay.retrieval.keyword import KeywordIndex
from forebay.retrieval.terms import Analyzer
from forebay.testing.index_feed import MemoryIndexFeed

TEXTS = (
    "Parcels may be returned within thirty days of delivery.",
    "The boiler FB-2041 is serviced once a year by a technician.",
    "退货需要在收到商品后七天内申请。",
    "GitHub备份脚本上传失败时，请检查令牌。",
    "Invoices are sent by email at the end of each month.",
)


class Shelf:
    """A record, an index that is of no use, and the rung over it."""

    def __init__(self, folder: Path) -> None:
        self.record = MemoryIndexFeed(8)
        self.index = KbIndex.open(folder, "kb", self.record, writable=True)
        self.rung = KeywordRetriever(lambda kb: self.index, RetrievalSettings(), SystemClock())

    def add(self, *texts: str, groups: tuple[str, ...] = ()) -> list[int]:
        ids = self.record.add(*texts, groups=groups)
        self.index.refresh()
        return ids

    async def ask(
        self, query: str, top_k: int = 3, groups: frozenset[str] | None = None, within_s: float = 20
    ) -> SearchResult:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(groups=groups),
            deadline=Deadline.after(within_s, clock),
            clock=clock,
        )
        result = await self.rung.retrieve(ctx, SearchRequest("kb", query, top_k))
        assert result.rung == ctx.rung == "keyword"
        assert result.evidence is None, "nobody may keep it"
        return result


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    made = Shelf(tmp_path)

    def broken(*_: object) -> None:
        raise IndexDamaged

    made.add(*TEXTS)
    monkeypatch.setattr(GuardedSearcher, "_guarded", broken)
    yield made
    made.rung.close()
    made.index.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("when can a parcel be returned?", 0),
        ("FB-2041", 1),
        ("fb 2041 technician", 1),
        ("退货 申请", 2),
        ("退", 2),
        ("备份脚本上传失败", 3),
        ("上传 失败", 3),
        ("备份", 3),
        ("invoice", 4),
    ],
)
async def test_texts_are_found_without_the_word_index(shelf: Shelf, query: str, found: int) -> None:
    result = await shelf.ask(query)
    assert result.hits[0].chunk.text == TEXTS[found]
    assert 0.0 < result.hits[0].score <= 1.0
    assert result.hits[0].bm25 is None and result.hits[0].cosine is None
    assert result.coverage is not None
    assert (result.coverage.words, result.coverage.vectors) == (1.0, 0.0)


@pytest.mark.parametrize("query", ["C++ (foo", '"x', "*", "", "\ud800", "zzz", "x" * 100_000])
async def test_any_text_is_answered(shelf: Shelf, query: str) -> None:
    await shelf.ask(query)


async def test_changes_are_seen_and_what_is_gone_is_not(shelf: Shelf) -> None:
    assert not (await shelf.ask("crane")).hits
    [new] = shelf.record.add("The crane lifts nine tons.")
    # The word index cannot take it in; what is newer than the snapshot waits for it.
    assert not (await shelf.ask("crane")).hits
    shelf.record.remove(new)
    shelf.record.remove(1)
    assert not (await shelf.ask("parcels returned")).hits


async def test_no_text_leaves_for_whoever_has_no_right(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.add(*[f"alpha salary {n}" for n in range(300)], groups=("hr",))
    shelf.add("alpha for everyone")
    outside = await shelf.ask("alpha salary", 50, frozenset({"it"}))
    assert [hit.chunk.text for hit in outside.hits] == ["alpha for everyone"]
    assert len((await shelf.ask("alpha salary", 50, frozenset({"hr"}))).hits) == 50
    shelf.rung.close()
    shelf.index.close()


class Ticking:
    """A clock that moves whenever it is looked at."""

    def __init__(self, step_s: float = 0.05) -> None:
        self.at = 0.0
        self.step_s = step_s

    def now(self) -> float:
        self.at += self.step_s
        return self.at


async def test_while_it_reads_it_says_how_much_it_has_read_newest_first(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.add(*[f"alpha number {n}" for n in range(2000)])
    shelf.rung.close()
    # A quarter of the time that is left goes to reading: five looks at this clock, or six pieces.
    settings = RetrievalSettings(keyword_read_ms=10_000)
    shelf.rung = KeywordRetriever(lambda kb: shelf.index, settings, Ticking(1.0))
    first = await shelf.ask("alpha", within_s=20)
    assert first.coverage is not None and first.coverage.words is not None
    assert 0.0 < first.coverage.words < 1.0
    assert first.hits[0].chunk.text == "alpha number 1999"
    async with asyncio.timeout(20):
        while (await shelf.ask("alpha")).coverage != first.coverage.__class__(1.0, 0.0):
            await asyncio.sleep(0.02)
    assert (await shelf.ask("alpha 1234")).hits[0].chunk.text == "alpha number 1234"
    assert shelf.rung.statistics() == {"kept": 1, "coverage": 1.0}
    shelf.rung.close()
    assert shelf.rung.statistics()["kept"] == 0
    shelf.index.close()


async def test_what_nobody_needs_is_forgotten(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.add(*TEXTS)
    shelf.rung.close()
    shelf.rung = KeywordRetriever(
        lambda kb: shelf.index, RetrievalSettings(keyword_idle_s=0.05), SystemClock()
    )
    assert (await shelf.ask("boiler")).hits
    async with asyncio.timeout(20):
        while shelf.rung.statistics()["kept"]:
            await asyncio.sleep(0.01)
    assert (await shelf.ask("boiler")).hits
    shelf.rung.close()
    shelf.index.close()


def test_blocks_are_joined_and_each_term_is_found() -> None:
    record = MemoryIndexFeed(8)
    record.add(*[f"common word{n}" for n in range(1500)])
    index = KeywordIndex(record, "kb", Analyzer(stemming=True))
    index.refresh()
    while not index.whole:
        index.advance()
    assert len(index._blocks) <= 4
    for n in (0, 1, 255, 256, 777, 1499):
        ids, scores = index.search(f"common word{n}", 3)
        assert ids[0] == n + 1 and scores[0] == pytest.approx(1.0)
        assert scores[1] < 0.5
    assert index.coverage == 1.0


def test_a_record_that_forgot_what_happened_is_read_anew() -> None:
    record = MemoryIndexFeed(8)
    record.add("one", "two")
    index = KeywordIndex(record, "kb", Analyzer(stemming=True))
    index.refresh()
    index.advance()
    record.remove(1)
    record.add("three")
    record.prune()
    index.refresh()
    index.advance()
    assert index.coverage == 1.0
    assert not len(index.search("one", 3)[0])
    assert list(index.search("three", 3)[0]) == [3]


async def test_who_is_needed_no_longer_reads_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.retrieval.keyword._ROWS_AT_ONCE", 2)
    shelf = Shelf(tmp_path)
    shelf.add(*[f"alpha number {n}" for n in range(400)])
    shelf.rung.close()
    shelf.rung = KeywordRetriever(lambda kb: shelf.index, RetrievalSettings(), Ticking())
    reached = []
    for _ in range(2):
        await shelf.ask("alpha")
        kept = shelf.rung._kept["kb"]
        async with asyncio.timeout(20):
            while kept.reading:
                await asyncio.sleep(0.005)
        reached.append(kept.index.coverage)
    assert 0.0 < reached[0] < reached[1] < 1.0
    shelf.rung.close()
    shelf.index.close()


async def test_reading_takes_its_share_of_a_core_and_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.retrieval.keyword._ROWS_AT_ONCE", 2)
    shelf = Shelf(tmp_path)
    shelf.add(*[f"alpha number {n}" for n in range(400)], "闸门 甲")
    shelf.rung.close()
    settings = RetrievalSettings(keyword_total_s=0.5, keyword_busy_share=0.9)
    shelf.rung = KeywordRetriever(lambda kb: shelf.index, settings, Ticking())
    rests: list[float] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def at_once(delay: float, *work: Any, **more: Any) -> asyncio.TimerHandle:
        if work[0] == shelf.rung._submit:
            rests.append(delay)
            delay = 0.0
        return later(delay, *work, **more)

    monkeypatch.setattr(loop, "call_later", at_once)
    result = await shelf.ask("alpha")
    kept = shelf.rung._kept["kb"]
    async with asyncio.timeout(20):
        while kept.reading:
            await asyncio.sleep(0.005)
    # Each look at this clock takes .05 s, so that a piece took that, and rests a ninth of it.
    assert rests == pytest.approx([0.0, *[0.05 / 9] * (len(rests) - 1)])
    assert kept.index.whole and 0.0 < kept.index.coverage < 0.5
    # What is left is the oldest; what comes afterwards is read.
    assert (await shelf.ask("闸门")).hits and not (await shelf.ask("3")).hits
    before = kept.index.coverage
    shelf.add("omega is new")
    assert (await shelf.ask("omega")).hits
    assert result.coverage is not None and 1.0 > kept.index.coverage > before
    shelf.rung.close()
    shelf.index.close()


def test_chunks_that_were_left_and_are_removed_count_no_more() -> None:
    record = MemoryIndexFeed(8)
    record.add(*[f"word{n}" for n in range(600)])
    index = KeywordIndex(record, "kb", Analyzer(stemming=True))
    index.refresh()
    index.advance()
    index.leave_rest()
    assert index.whole and index.coverage == pytest.approx(256 / 600)
    for chunk in range(1, 345):
        record.remove(chunk)
    index.refresh()
    assert index.coverage == 1.0
