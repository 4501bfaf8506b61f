"""The last rung of retrieval: keywords looked up in memory, read from the record alone.

Nothing of the word index is used, so that this works while that is damaged. Postings are made of
the record when the rung is first needed, newest chunks first, and forgotten when it has not been
for a while: what has been read so far is searched, and the coverage says how much that is. Reading
takes a share of a core, and has an end: of a large knowledge base the oldest chunks are left.

score(q, d) = share of the query's worth that d holds; a term is worth ln(1 + N / df).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.kernel.clock import Clock
from forebay.kernel.context import Coverage, RequestContext
from forebay.kernel.documents import ChunkRow
from forebay.kernel.errors import ForebayError, Gone
from forebay.kernel.stages import IndexFeed, SearchRequest, SearchResult
from forebay.retrieval.counts import term_hash
from forebay.retrieval.searching import Answer, Indexes, Lap, Ranked, Search, Searching, fetch
from forebay.retrieval.segments import Ids
from forebay.retrieval.settings import RetrievalSettings
from forebay.retrieval.terms import Analyzer

KEYWORD = "keyword"
_ROWS_AT_ONCE = 256
_BLOCK_CHUNKS = 8192
_CANDIDATES_MAX = 2048
_DEAD_MAX = 4096
"""More dead chunks than this among those read, and all is read anew."""
_WANTED_S = 2.0
"""Who has not been asked for so long reads no further: a rung that was needed for a moment, because
the machine was busy, must not keep it busy for a minute."""
Hashes = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int32]


class _Block(msgspec.Struct, frozen=True):
    """Some chunks: their ids, and which term (by hash, ascending) which of them holds."""

    ids: Ids
    hashes: Hashes
    rows: Rows

    def joined(self, other: _Block) -> _Block:
        hashes = np.concatenate([self.hashes, other.hashes])
        rows = np.concatenate([self.rows, other.rows + np.int32(len(self.ids))])
        order = hashes.argsort(kind="stable")
        return _Block(np.concatenate([self.ids, other.ids]), hashes[order], rows[order])


class KeywordIndex:
    """Terms of one knowledge base's chunks, from its record; one thread at a time.

    ``advance`` brings it nearer to the whole, ``search`` looks at what there is.
    """

    def __init__(self, feed: IndexFeed, kb: str, analyzer: Analyzer) -> None:
        self._feed = feed
        self._kb = kb
        self._analyzer = analyzer
        self._blocks: list[_Block] = []
        self._dead: set[int] = set()
        self._unread: list[int] = []
        self._left: set[int] = set()
        self._version = 0
        self._chunks = 0

    @property
    def whole(self) -> bool:
        """Whether every chunk has been read that will be."""
        return not self._unread

    @property
    def coverage(self) -> float:
        """The share of the living chunks that has been read."""
        read = self._chunks - len(self._unread) - len(self._left)
        return max(0.0, read / self._chunks) if self._chunks else 1.0

    def refresh(self) -> None:
        """Learn what came and went; what came is read by ``advance``."""
        try:
            since = self._version if len(self._dead) <= _DEAD_MAX else 0
            changes = self._feed.changes(self._kb, since)
        except Gone:
            since, changes = 0, self._feed.changes(self._kb, 0)
        if not since:
            self._blocks, self._dead, self._unread, self._chunks = [], set(), [], 0
            self._left = set()
        gone = set(changes.removed)
        if gone:
            self._dead |= gone
            self._left -= gone
            self._unread = [one for one in self._unread if one not in gone]
        self._chunks += len(changes.added) - len(gone)
        # The newest are read first: from the end.
        self._unread += changes.added
        self._version = changes.version

    def advance(self) -> None:
        """Read some more chunks."""
        wanted, self._unread = self._unread[-_ROWS_AT_ONCE:], self._unread[:-_ROWS_AT_ONCE]
        if not wanted:
            return
        block = self._read(self._feed.rows(self._kb, wanted))
        while self._blocks and len(self._blocks[-1].ids) <= len(block.ids) < _BLOCK_CHUNKS:
            block = self._blocks.pop().joined(block)
        self._blocks.append(block)

    def leave_rest(self) -> None:
        """Read no more of what is there now, which is the oldest; what comes is read."""
        self._left.update(self._unread)
        self._unread = []

    def search(self, text: str, limit: int) -> tuple[Ids, npt.NDArray[np.float64]]:
        """Return at most ``limit`` chunks that hold a term, best first, and their scores."""
        terms = self._analyzer.query(text)
        wanted = np.array(sorted({term_hash(term) for term in terms}), np.uint32)
        held = [_held(block, wanted) for block in self._blocks]
        frequencies = np.zeros(len(wanted))
        for _, places in held:
            frequencies += np.bincount(places, minlength=len(wanted))
        worth = np.log1p(max(1, self._chunks) / np.maximum(frequencies, 1.0))
        total = float(worth.sum()) or 1.0
        ids, scores = [np.empty(0, np.int64)], [np.empty(0)]
        for block, (rows, places) in zip(self._blocks, held, strict=True):
            sums = np.bincount(rows, worth[places], minlength=len(block.ids))
            found = sums.nonzero()[0]
            ids.append(block.ids[found])
            scores.append(sums[found] / total)
        all_ids, all_scores = np.concatenate(ids), np.concatenate(scores)
        if self._dead:
            alive = ~np.isin(all_ids, np.fromiter(self._dead, np.int64, len(self._dead)))
            all_ids, all_scores = all_ids[alive], all_scores[alive]
        order = np.lexsort((-all_ids, -all_scores))[:limit]
        return all_ids[order], all_scores[order]

    def _read(self, rows: Sequence[ChunkRow]) -> _Block:
        hashes: list[int] = []
        places: list[int] = []
        for place, row in enumerate(rows):
            text = "\n".join((row.title, *row.heading_path, row.context, row.text))
            terms = {term_hash(term) for term in self._analyzer.query(text)}
            hashes += terms
            places += [place] * len(terms)
        ids = np.array([row.chunk_id for row in rows], np.int64)
        found = np.array(hashes, np.uint32)
        order = found.argsort(kind="stable")
        return _Block(ids, found[order], np.array(places, np.int32)[order])


def _held(block: _Block, wanted: Hashes) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Return the rows of a block that hold a wanted term, and which term, pair by pair."""
    first = block.hashes.searchsorted(wanted, side="left")
    counts = block.hashes.searchsorted(wanted, side="right") - first
    places = np.repeat(np.arange(len(wanted)), counts)
    ends = counts.cumsum()
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return block.rows[np.repeat(first, counts) + within], places


class _Kept(msgspec.Struct):
    index: KeywordIndex
    used_at: float
    reading: bool = False
    spent_s: float = 0.0


class KeywordRetriever:
    """``Retriever`` by keywords, in a thread of its own; ended by ``close``."""

    def __init__(self, indexes: Indexes, settings: RetrievalSettings, clock: Clock) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="keyword")
        self._searching = Searching(indexes, settings, self._executor)
        self._analyzer = Analyzer(stemming=settings.lexical.stemming)
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._lock = Lock()
        self._closed = False
        self._forgetting: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Retriever``; raises what the record raises."""
        settings = self._searching.settings
        self._loop = asyncio.get_running_loop()
        with self._searching.entered(ctx, request) as search:
            budget_s = min(settings.keyword_read_ms / 1000.0, ctx.deadline.remaining() / 4)

            def work(_: Lap) -> tuple[Answer, float]:
                return self._found(search, budget_s)

            answer, coverage = await self._searching.work(ctx, "search.keyword", work)
        self._forget_later()
        ctx.rung = KEYWORD
        return SearchResult(
            answer.hits,
            KEYWORD,
            search.snapshot.version,
            coverage=Coverage(words=round(coverage, 4), vectors=0.0),
        )

    def close(self) -> None:
        """End the thread; nothing is kept."""
        self._closed = True
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._kept.clear()

    def statistics(self) -> dict[str, float]:
        """Knowledge bases kept, and the least share of one that has been read."""
        kept = [one.index.coverage for one in list(self._kept.values())]
        return {"kept": len(kept), "coverage": min(kept, default=1.0)}

    def _found(self, search: Search, budget_s: float) -> tuple[Answer, float]:
        kept = self._keep(search)
        index = kept.index
        began_at = self._clock.now()
        index.refresh()
        # One reads; who waits behind looks at what there is, or a line of them lasts for minutes.
        while not index.whole and (
            not index.coverage
            or (self._searching.in_flight < 2 and self._clock.now() < began_at + budget_s)
        ):
            index.advance()
        self._spend(kept, self._clock.now() - began_at)
        limit = _CANDIDATES_MAX if search.demands else search.limit
        text = search.request.query[: self._searching.settings.lexical.query_max_characters]
        ids, scores = index.search(text, limit)
        unseen = np.full(len(ids), np.nan)
        ranked = Ranked(ids, scores, np.zeros(len(ids)), unseen)
        distinct = self._searching.settings.distinct
        answer = Answer(fetch(search, ranked, distinct=distinct, by_words=False)[0], None)
        if not index.whole and not kept.reading:
            kept.reading = True
            self._go_on(kept, 0.0)
        return answer, index.coverage

    def _keep(self, search: Search) -> _Kept:
        kb = search.request.kb
        with self._lock:
            kept = self._kept.get(kb)
            if kept is None:
                kept = _Kept(KeywordIndex(search.feed, kb, self._analyzer), 0.0)
                self._kept[kb] = kept
            kept.used_at = self._clock.now()
            return kept

    def _spend(self, kept: _Kept, seconds: float) -> None:
        """Note reading; when that was enough for one knowledge base, its oldest chunks are left."""
        kept.spent_s += seconds
        if kept.spent_s >= self._searching.settings.keyword_total_s:
            kept.index.leave_rest()

    def _go_on(self, kept: _Kept, took_s: float) -> None:
        """Read on when nobody waits; each piece is short, so that searches come between.

        It rests for its share of a core's sake, in proportion to what the last piece took.
        """
        share, loop = self._searching.settings.keyword_busy_share, self._loop
        # Whoever closes does not wait for this, and a loop that has ended reads nothing more.
        with suppress(RuntimeError):
            if loop is None or share >= 1.0:
                self._executor.submit(self._read_on, kept)
            else:
                rest_s = took_s * (1.0 - share) / share
                loop.call_soon_threadsafe(loop.call_later, rest_s, self._submit, kept)

    def _submit(self, kept: _Kept) -> None:
        with suppress(RuntimeError):
            self._executor.submit(self._read_on, kept)

    def _read_on(self, kept: _Kept) -> None:
        began_at = self._clock.now()
        try:
            kept.index.advance()
        except ForebayError:
            # The next search meets the same, and says it.
            kept.reading = False
            return
        took_s = self._clock.now() - began_at
        self._spend(kept, took_s)
        wanted = self._clock.now() - kept.used_at < _WANTED_S
        kept.reading = wanted and not kept.index.whole and not self._closed
        if kept.reading:
            self._go_on(kept, took_s)

    def _forget_later(self) -> None:
        if self._forgetting is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(
                self._searching.settings.keyword_idle_s, self._forget
            )

    def _forget(self) -> None:
        """Let go of what was not needed for a while."""
        self._forgetting = None
        idle_s = self._searching.settings.keyword_idle_s
        with self._lock:
            before = self._clock.now() - idle_s
            for kb in [kb for kb, one in self._kept.items() if one.used_at <= before]:
                del self._kept[kb]
        if self._kept:
            self._forget_later()
