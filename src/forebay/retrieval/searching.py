"""What every rung of retrieval does alike: enter, work in the pool, fetch the texts it may show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

import msgspec

from forebay.kernel.caching import Evidence, LegList
from forebay.kernel.context import RequestContext, StageRecord
from forebay.kernel.documents import Hit
from forebay.kernel.errors import DeadlineExceeded, InvalidRequest, Overloaded, StoreError
from forebay.kernel.stages import HitVectors, IndexFeed, SearchRequest, SearchResult
from forebay.kernel.turns import Turn
from forebay.retrieval.duplicates import Distinct, nearness
from forebay.retrieval.engine import IndexDamaged
from forebay.retrieval.evidence import Fused
from forebay.retrieval.fusion import Floats
from forebay.retrieval.index import KbIndex, Snapshot
from forebay.retrieval.keys import filter_keys, passes
from forebay.retrieval.lexical_base import Demands
from forebay.retrieval.patience import KeptTime, Trial
from forebay.retrieval.pool import OldestFirst
from forebay.retrieval.segments import Ids
from forebay.retrieval.settings import RetrievalSettings

T = TypeVar("T")
Lap = Callable[[str], None]
"""Says that the stage of this name begins."""
Indexes = Callable[[str], KbIndex]

WORDS_PART, VECTORS_PART = "bm25", "vector"
"""The parts that rungs are made of, by the names under which their failures are told."""

_ROWS_AT_ONCE = 64
SPARE = 20
"""Candidates a leg hands over beyond the hits asked for, so that the other leg can lift them."""
SPARE_RANKED = 10
"""The same under a reranker, which asks for more hits than it shows; some may be copies."""

_WIDER = 8
"""So many times more are asked for when copies of what was found left places empty."""

_FEW = 8
"""Up to so many texts are compared faster than their facts."""

_SHOWN_WITHIN_S, _LOOK_EVERY_S = 2.0, 0.002
"""An index shows a commit that long after the record has it, at most; and how often to look."""

_AGAIN = 3
"""Searches of one request that may be overtaken by a change before what is left has to do."""

_TWINS = 1e-7
"""Hits closer than this are the same text twice: no statistics can tell them apart."""


class Ranked(msgspec.Struct, frozen=True):
    """Candidates best first, with the raw scores of both legs (NaN: unseen).

    ``packed``: the facts of each; empty: nobody looked them up.
    """

    ids: Ids
    scores: Floats
    bm25: Floats
    cosine: Floats
    packed: Sequence[bytes | None] = ()


class Search(msgspec.Struct, frozen=True):
    """One request's constants.

    ``gone``: chunks it found in the snapshot that the record no longer has so; threads add to it.
    """

    ctx: RequestContext
    request: SearchRequest
    feed: IndexFeed
    snapshot: Snapshot
    demands: Demands
    limit: int
    gone: list[int] = msgspec.field(default_factory=list)


class Answer(msgspec.Struct, frozen=True):
    """Hits with their texts, and what they rested on (None: nobody can tell)."""

    hits: tuple[Hit, ...]
    evidence: Evidence | None
    vectors: HitVectors | None = None


def search_executor(threads: int) -> ThreadPoolExecutor:
    """Return the pool searches run in, the oldest first."""
    return OldestFirst(threads)


class Searching:
    """The indexes of a process, and the pool that searches them; one for each rung.

    ``executor`` comes from ``search_executor``.
    """

    def __init__(
        self,
        indexes: Indexes,
        settings: RetrievalSettings,
        executor: Executor,
        *,
        spare: int = SPARE,
    ) -> None:
        """``spare``: candidates of a leg beyond the hits asked for."""
        self.settings = settings
        self._spare = spare
        self._indexes = indexes
        self._executor = executor
        self._in_flight = 0
        self._kept = KeptTime()
        self._awaited: dict[str, tuple[int, float]] = {}

    @property
    def in_flight(self) -> int:
        """Searches at work or in line."""
        return self._in_flight

    def trial(self, ctx: RequestContext, timeout_ms: int) -> Trial:
        """One request's use of a part that may work for ``timeout_ms``."""
        return Trial(self._kept, ctx, timeout_ms)

    @contextmanager
    def entered(self, ctx: RequestContext, request: SearchRequest) -> Iterator[Search]:
        """Pin a snapshot for one search.

        Raises ``InvalidRequest`` for a ``top_k`` out of bounds, ``Overloaded`` beyond
        ``in_flight_max``, and what the index lookup raises for an unknown kb.
        """
        if not 1 <= request.top_k <= self.settings.top_k_max:
            raise InvalidRequest(
                f"top_k must be between 1 and {self.settings.top_k_max}.", param="top_k"
            )
        if self._in_flight >= self.settings.in_flight_max:
            raise Overloaded("Too many searches are running; try again shortly.")
        self._in_flight += 1
        try:
            index = self._indexes(request.kb)
            snapshot = index.snapshot()
            if ctx.kb_version is None:
                ctx.kb_version = snapshot.version
            demands = filter_keys(request.filter, ctx.principal.groups)
            limit = max(self.settings.candidates, request.top_k + self._spare)
            yield Search(ctx, request, index.feed, snapshot, demands, limit)
        finally:
            self._in_flight -= 1

    async def followed(
        self, search: Search, retrieve: Callable[[Search], Awaitable[SearchResult]]
    ) -> SearchResult:
        """Search, and anew where a change took away what was found before the index showed it.

        The record is ahead of the index for some milliseconds: what a commit replaced is no longer
        there to be read, and what replaced it not yet there to be found.
        """
        result = await retrieve(search)
        for _ in range(_AGAIN):
            if not search.gone:
                return result
            snapshot = await self._after(search)
            if snapshot is None:
                break
            search = msgspec.structs.replace(search, snapshot=snapshot, gone=[])
            search.ctx.kb_version = snapshot.version
            result = await retrieve(search)
        # Nobody may keep what lacks something.
        return msgspec.structs.replace(result, evidence=None) if search.gone else result

    async def _after(self, search: Search) -> Snapshot | None:
        """What the index shows after the search's snapshot; None: nothing, or not in time.

        All wait for a version's end until one time: what an index holds in error must not slow
        every search, and whoever has little time must not end the wait of others.
        """
        kb, version = search.request.kb, search.snapshot.version
        index, now = self._indexes(kb), asyncio.get_running_loop().time
        own_end = now() + search.ctx.deadline.remaining() / 2
        while (snapshot := index.snapshot()).version == version:
            known, ends_at = self._awaited.get(kb, (-1, 0.0))
            if known != version:
                ends_at = now() + _SHOWN_WITHIN_S
                self._awaited[kb] = version, ends_at
            if now() >= min(ends_at, own_end):
                return None
            await asyncio.sleep(_LOOK_EVERY_S)
        return snapshot

    async def work(self, ctx: RequestContext, stage: str, work: Callable[[Lap], T]) -> T:
        """Run ``work`` in the pool, its wait for a thread told apart.

        Each change of threads costs a tenth of a millisecond, so that one ``work`` may be several
        stages; it calls its argument where another than ``stage`` begins. ``DeadlineExceeded``
        when the request's deadline passes.
        """
        loop, clock = asyncio.get_running_loop(), ctx.clock
        limit = loop.time() + ctx.deadline.remaining()
        laps: list[tuple[str, float]] = []

        def lap(name: str) -> None:
            if name != laps[-1][0]:
                laps.append((name, clock.now()))

        def timed() -> T:
            laps.append((stage, clock.now()))
            try:
                return work(lap)
            except Exception:
                raise
            # A panic inside an engine is no Exception; it must end this search, not the loop.
            except BaseException as error:
                raise StoreError("The search index is damaged; restart to rebuild it.") from error

        try:
            with ctx.stage(stage) as record:
                try:
                    async with asyncio.timeout_at(limit):
                        return await loop.run_in_executor(
                            self._executor, Turn(ctx.started_at, timed)
                        )
                except TimeoutError as error:
                    raise DeadlineExceeded(
                        "The request's deadline passed during the search."
                    ) from error
        finally:
            _tell_apart(ctx, record, tuple(laps))


def _tell_apart(
    ctx: RequestContext, record: StageRecord, laps: Sequence[tuple[str, float]]
) -> None:
    """Divide what was recorded as one stage; the last one that began has the outcome."""
    if not laps:
        return
    ended_at, outcome = record.started_at + record.worked_s, record.outcome
    record.waited_s = max(0.0, laps[0][1] - record.started_at)
    ends = (*(at for _, at in laps[1:]), ended_at)
    for (name, begun_at), end_at in zip(laps, ends, strict=True):
        if name != record.name:
            record.outcome = "ok"
            record = StageRecord(name, begun_at, outcome=outcome, attributes={})
            ctx.stages.append(record)
        record.worked_s = max(0.0, end_at - begun_at)


async def beyond_copies(
    search: Search, retrieve: Callable[[Search], Awaitable[SearchResult]]
) -> SearchResult:
    """Search once more, wider, when copies of few texts were all that the legs handed over.

    Nobody may keep what is found then: a change can bring back the narrow search.
    """
    result = await retrieve(search)
    found = result.evidence
    if found is None or found.fused.full:
        return result
    if not (found.words.full or (found.vectors is not None and found.vectors.full)):
        return result
    wide = msgspec.structs.replace(search, limit=search.limit * _WIDER)
    return msgspec.structs.replace(await retrieve(wide), evidence=None)


def fetch(
    search: Search, ranked: Ranked, *, distinct: bool, by_words: bool = True, wanted: int = 0
) -> tuple[tuple[Hit, ...], Fused]:
    """Fetch texts, best first, until ``wanted`` remain; return these, and how they led.

    What has vanished or is newer than the snapshot is noted as gone, what does not meet the demands
    dropped: the legs have filtered already, but no text leaves on their word alone. ``distinct``:
    nor does what says nothing that a better hit does not say. ``by_words``: the word index may be
    asked. ``wanted`` 0: ``top_k``.
    """
    hits: list[Hit] = []
    places: list[int] = []
    wanted = wanted or search.request.top_k
    step = min(_ROWS_AT_ONCE, wanted + 2)
    copies = _copies(search, ranked, step if by_words else 0) if distinct else None
    for start in range(0, len(ranked.ids), step):
        ids: Sequence[int] = ranked.ids[start : start + step].tolist()
        rows = {row.chunk_id: row for row in search.feed.rows(search.request.kb, ids)}
        columns = (ranked.scores, ranked.bm25, ranked.cosine)
        told = list(
            zip(*(column[start : start + step].tolist() for column in columns), strict=True)
        )
        for place, chunk_id in enumerate(ids, start):
            row = rows.get(chunk_id)
            if row is None or row.version > search.snapshot.version:
                search.gone.append(chunk_id)
                continue
            if not passes(row, search.demands) or (copies and not copies.adds(row, place)):
                continue
            score, bm25, cosine = told[place - start]
            places.append(place)
            hits.append(
                Hit(
                    chunk=row,
                    score=min(1.0, max(0.0, score)),
                    bm25=bm25 if bm25 > 0.0 else None,
                    cosine=None if math.isnan(cosine) else cosine,
                )
            )
            if len(hits) == wanted:
                return tuple(hits), _led(ranked, places, wanted)
    return tuple(hits), _led(ranked, places, wanted)


def _copies(search: Search, ranked: Ranked, most: int) -> Distinct:
    first = ranked.ids[:most]
    if len(first) < _FEW:
        return Distinct()
    try:
        return Distinct(
            nearness(ranked.packed[:most] or search.snapshot.lexical.facts(first.tolist()))
        )
    except IndexDamaged:
        return Distinct()


def _led(ranked: Ranked, places: Sequence[int], wanted: int) -> Fused:
    if not places:
        return Fused(LegList(), math.inf, math.inf)
    scores = ranked.scores[: places[-1] + 2].tolist()
    hits = LegList(
        tuple(ranked.ids[places].tolist()),
        tuple(scores[place] for place in places),
        len(places) == wanted,
    )
    leads = (better - worse for better, worse in pairwise(scores))
    lead = min((lead for lead in leads if lead > _TWINS), default=math.inf)
    last = places[-1]
    edge = scores[last] - scores[last + 1] if last + 1 < len(scores) else math.inf
    # Which of two copies is left out is a matter of their order.
    whole = len(places) == last + 1
    return Fused(hits, lead, edge if whole else min(edge, lead))
