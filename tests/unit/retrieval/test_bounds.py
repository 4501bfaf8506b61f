"""What changes mean for a query that was asked before: scores, rights, and what is not known."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import msgspec
import numpy as np
import pytest

from forebay.kernel.caching import Changes, Evidence
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import Embedder, SearchRequest, SearchResult
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    LoggedBounds,
    RetrievalSettings,
    WordsRetriever,
    search_executor,
)
from forebay.retrieval.bounds import ARRIVALS_MAX
from forebay.retrieval.change_log import CHANGE_CHUNKS_MAX, ChangeLog
from forebay.retrieval.evidence import constants_of
from forebay.retrieval.fusion import meaning_score
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

TERMS = ("parcel", "returned", "within", "some", "days", "of", "delivery")
TEXTS = [
    " ".join([f"number {i}", *(term for k, term in enumerate(TERMS, 2) if i % k == 0)])
    for i in range(60)
]
ASKED = "parcel returned within some days of delivery"
KEEN = RetrievalSettings(early_exit_confidence=1e-6)
"""Words alone answer by choice."""


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


class Library:
    """A record, the writer's index over it, and one question."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.folder, self.pool = folder, pool
        self.embedder = HashEmbedder(32)
        self.record = MemoryIndexFeed(32)
        self.fingerprint: str | None = self.embedder.spec.fingerprint
        self.add(*TEXTS)
        self.index = self.open(writable=True)
        self.bounds = LoggedBounds(lambda _: self.index)

    def open(self, *, writable: bool) -> KbIndex:
        return KbIndex.open(
            self.folder,
            "kb",
            self.record,
            writable=writable,
            fingerprint=lambda: self.fingerprint,
        )

    def vectors(self, *texts: str) -> list[np.ndarray]:
        found = asyncio.run(self.embedder.embed(texts, kind="passage"))
        return list(np.frombuffer(found.data, "<f4").reshape(len(texts), -1))

    def add(self, *texts: str, embed: bool = True, **fields: object) -> list[int]:
        ids = self.record.add(*texts, **fields)  # type: ignore[arg-type]
        if embed:
            self.record.embed(dict(zip(ids, self.vectors(*texts), strict=True)))
        return ids

    def ask(
        self,
        groups: frozenset[str] | None = None,
        *,
        index: KbIndex | None = None,
        settings: RetrievalSettings | None = None,
        embedder: Embedder | str | None = "own",
        query: str = ASKED,
    ) -> SearchResult:
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(groups=groups),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        retriever = HybridRetriever(
            lambda _: index or self.index,
            self.embedder if isinstance(embedder, str) else embedder,
            # Judging changes is the matter here, also of what was found with few vectors.
            settings or RetrievalSettings(early_exit_confidence=2.0, whole_share=0.0),
            self.pool,
        )
        return asyncio.run(retriever.retrieve(ctx, SearchRequest("kb", query, 3)))

    def evidence(self, groups: frozenset[str] | None = None) -> tuple[int, Evidence]:
        found = self.ask(groups)
        assert found.evidence is not None
        return found.kb_version, found.evidence

    def since(self, at: int, evidence: Evidence) -> Changes:
        self.index.refresh()
        found = self.bounds.changes("kb", at, evidence)
        assert found is not None and found.version == self.record.version
        return found


@pytest.fixture
def library(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[Library]:
    made = Library(tmp_path, pool)
    yield made
    made.index.close()


def test_evidence_is_what_the_hits_rest_on(library: Library) -> None:
    found = library.ask()
    evidence = found.evidence
    assert evidence is not None and evidence.vectors is not None
    assert evidence.chunks == len(TEXTS) and evidence.moved == 0
    assert evidence.fused.ids == tuple(hit.chunk.chunk_id for hit in found.hits)
    assert evidence.fused.scores == pytest.approx([hit.score for hit in found.hits])
    assert evidence.fused.full and evidence.words.full and evidence.vectors.full
    assert len(evidence.words.ids) == len(evidence.vectors.ids) == evidence.limit == 30
    assert 0.0 < evidence.lead < 1.0
    by_id = {hit.chunk.chunk_id: hit for hit in found.hits}
    for chunk_id, score in zip(evidence.words.ids, evidence.words.scores, strict=True):
        if chunk_id in by_id:
            assert by_id[chunk_id].bm25 == pytest.approx(score)


def test_more_arrivals_than_the_event_loop_may_look_at_are_too_much(library: Library) -> None:
    at, evidence = library.evidence()
    library.add(*[f"{ASKED} {number}" for number in range(ARRIVALS_MAX)])
    assert len(library.since(at, evidence).arrivals) == ARRIVALS_MAX
    library.add(ASKED)
    library.index.refresh()
    assert library.bounds.changes("kb", at, evidence) is None
    at, evidence = library.evidence()
    library.add("of nothing that was asked")
    assert library.since(at, evidence).arrivals == ()


def test_words_alone_by_choice_have_evidence_and_degraded_ones_have_none(library: Library) -> None:
    chosen = library.ask(settings=KEEN).evidence
    assert chosen is not None and chosen.vectors is None
    alone = library.ask(embedder=None).evidence
    assert alone is not None and alone.vectors is None
    degraded = WordsRetriever(
        lambda _: library.index, RetrievalSettings(), library.pool, chosen=False
    )
    clock = SystemClock()
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(20, clock), clock=clock
    )
    assert asyncio.run(degraded.retrieve(ctx, SearchRequest("kb", ASKED, 3))).evidence is None


def test_nothing_happened(library: Library) -> None:
    at, evidence = library.evidence()
    assert library.since(at, evidence) == Changes(at, len(TEXTS), 0)


def test_an_arrival_has_the_scores_it_would_have_had(library: Library) -> None:
    at, evidence = library.evidence()
    [new] = library.add("parcel returned within five days of delivery")
    [arrival] = library.since(at, evidence).arrivals
    assert arrival.chunk_id == new and arrival.cosine is not None
    query = asyncio.run(library.embedder.embed([ASKED], kind="query"))
    cosine = np.frombuffer(query.data, "<f4") @ library.record.stored[new]
    assert arrival.cosine == pytest.approx(float(cosine), abs=1e-5)
    [hit] = [hit for hit in library.ask().hits if hit.chunk.chunk_id == new]
    assert arrival.words == pytest.approx(hit.bm25, rel=0.05)  # live statistics moved a little


def test_the_same_text_again_has_the_same_score(library: Library) -> None:
    at, evidence = library.evidence()
    best = evidence.fused.ids[0]
    [new] = library.add(library.record.live[best].text)
    [arrival] = library.since(at, evidence).arrivals
    assert arrival.chunk_id == new
    place = evidence.words.ids.index(best)
    assert arrival.words == pytest.approx(evidence.words.scores[place], rel=1e-12)
    assert arrival.fused == pytest.approx(evidence.fused.scores[0], abs=1e-5)


def test_what_enters_no_list_is_counted_only(library: Library) -> None:
    at, evidence = library.evidence()
    library.add("nothing of the kind", embed=False)
    found = library.since(at, evidence)
    assert (found.moved, found.chunks, found.arrivals) == (1, len(TEXTS) + 1, ())


def test_what_makes_a_word_common_shifts_the_scores_of_those_who_asked_for_it(
    library: Library,
) -> None:
    at, evidence = library.evidence()
    library.add("nothing of what was asked for")
    strange = library.since(at, evidence).shift
    library.add("some of it")
    common = library.since(at, evidence).shift
    for _ in range(3):
        library.add("delivery")
    more = library.since(at, evidence).shift
    assert strange <= common < more < 2.0
    # Its worth as it was pinned and as it is now, by the index itself.
    before, now = constants_of(evidence), constants_of(library.evidence()[1])
    assert before is not None and before.meaning is not None
    assert now is not None and {*now.terms} == {*before.terms}
    was, worth = (dict(zip(c.terms, c.idf, strict=True)) for c in (before, now))
    totals = sum(was.values()), sum(worth.values())
    moved = sum(abs(worth[term] / totals[1] - was[term] / totals[0]) for term in was)
    assert more == pytest.approx(moved * before.meaning.weight, rel=1e-6)


def test_without_a_vector_the_most_it_can_be_is_told(library: Library) -> None:
    at, evidence = library.evidence()
    [new] = library.add("parcel returned within some days of late delivery", embed=False)
    [early] = library.since(at, evidence).arrivals
    assert early.chunk_id == new and early.cosine is None
    [hit] = [hit for hit in library.ask().hits if hit.chunk.chunk_id == new]
    assert early.fused >= hit.score - 0.02
    library.record.embed({new: library.vectors("x y z")[0]})
    late = library.since(at, evidence)
    assert late.altered == frozenset() and late.moved == 1
    assert [a.cosine is not None for a in late.arrivals] == [True]


def test_a_vector_that_came_later_alters(library: Library) -> None:
    [new] = library.add("a parcel", embed=False)
    library.index.refresh()
    at, evidence = library.evidence()
    library.record.embed({new: library.vectors("a parcel")[0]})
    found = library.since(at, evidence)
    assert found.altered == {new} and found.moved == 0


def test_candidates_without_vectors_make_every_arrival_unbounded(library: Library) -> None:
    library.add("parcel returned within some days of delivery", embed=False)
    library.index.refresh()
    at, evidence = library.evidence()
    library.add("parcel returned within some days")
    assert [a.fused for a in library.since(at, evidence).arrivals] == [math.inf]


def test_a_term_nobody_knew_is_news(library: Library) -> None:
    found = library.ask(query="a parcel for Zorblax")
    assert found.evidence is not None
    [new] = library.add("Zorblax", embed=False)
    [arrival] = library.since(found.kb_version, found.evidence).arrivals
    assert (arrival.chunk_id, arrival.fused) == (new, math.inf)


def test_rights_and_removals(library: Library) -> None:
    at, evidence = library.evidence(frozenset({"staff"}))
    text = "parcel returned within some days"
    library.add(text, groups=("board",))
    [seen] = library.add(text, groups=("staff", "board"))
    [open_to_all] = library.add(text)
    library.record.remove(1, 2)
    [brief] = library.add(text)
    library.index.refresh()
    library.record.remove(brief)
    found = library.since(at, evidence)
    assert [a.chunk_id for a in found.arrivals] == [seen, open_to_all]
    assert found.removed >= {1, 2} and found.moved >= 5


def test_chinese_chunks_are_foreign_to_an_english_question(library: Library) -> None:
    at, evidence = library.evidence()
    text = "within some days of delivery"
    library.add(text, language="zh")
    library.add(text, language="en")
    foreign, own = library.since(at, evidence).arrivals
    assert foreign.words == own.words and foreign.cosine == own.cosine
    constants = constants_of(evidence)
    assert constants is not None and constants.meaning is not None and own.cosine is not None
    means = meaning_score(np.array([own.cosine]), constants.meaning.background)[0]
    assert (foreign.fused > own.fused) == (0.6 * means > own.words / constants.ideal)


def test_a_reader_knows_as_much_as_the_writer(library: Library) -> None:
    reader = library.open(writable=False)
    try:
        found = library.ask(index=reader)
        assert found.evidence is not None
        bounds = LoggedBounds(lambda _: reader)
        library.add("parcel returned within some days")
        library.record.remove(3)
        library.index.refresh()
        reader.refresh()
        told = bounds.changes("kb", found.kb_version, found.evidence)
        assert told == library.bounds.changes("kb", found.kb_version, found.evidence)
        assert told is not None and told.removed == {3} and len(told.arrivals) == 1
    finally:
        reader.close()


def test_folds_and_merges_lose_nothing(library: Library) -> None:
    at, evidence = library.evidence()
    [new] = library.add("parcel returned within some days")
    library.index.refresh()
    library.index.maintain(force=True)
    library.add("nothing of the kind")
    assert [a.chunk_id for a in library.since(at, evidence).arrivals] == [new]


def test_a_change_that_goes_to_the_files_at_once_is_known_too(library: Library) -> None:
    at, evidence = library.evidence()
    ids = library.add(*[f"nothing of the kind {i}" for i in range(200)], embed=False)
    [new] = library.add("parcel returned within some days")
    found = library.since(at, evidence)
    assert found.moved == len(ids) + 1
    assert new in [a.chunk_id for a in found.arrivals]


def test_a_build_from_nothing_loses_nothing(library: Library) -> None:
    at, evidence = library.evidence()
    [new] = library.add("parcel returned within some days")
    vars(library.index)["_damage"].set()
    library.record.remove(4)
    found = library.since(at, evidence)
    assert [a.chunk_id for a in found.arrivals] == [new] and found.removed == {4}
    assert found == library.since(at, evidence)


@pytest.mark.parametrize("why", ["too much", "another embedder", "pruned", "restart", "foreign"])
def test_what_is_not_known_is_not_told(library: Library, why: str) -> None:
    at, evidence = library.evidence()
    match why:
        case "too much":
            library.add(*["one of many"] * (CHANGE_CHUNKS_MAX + 1), embed=False)
        case "another embedder":
            library.fingerprint = "another"
        case "pruned":
            library.add("one")
            library.record.prune()
        case "restart":
            library.index.close()
            library.index = library.open(writable=True)
            at -= 1
        case "foreign":
            evidence = msgspec.structs.replace(evidence, constants=b"\x91\x00")
    library.index.refresh()
    assert library.bounds.changes("kb", at, evidence) is None
    found = library.ask(embedder=None)
    assert found.evidence is not None
    library.add("one more", embed=False)
    library.index.refresh()
    assert library.bounds.changes("kb", found.kb_version, found.evidence) is not None


def test_a_log_that_breaks_keeps_no_change_from_being_shown(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, evidence = library.evidence()
    with monkeypatch.context() as broken:
        broken.setattr(ChangeLog, "_append", lambda *_: 1 // 0)
        [new] = library.add("parcel returned within some days of delivery")
        assert library.index.refresh() == library.record.version
    assert library.ask().hits[0].chunk.chunk_id == new
    assert library.bounds.changes("kb", at, evidence) is None


def test_a_version_that_was_never_shown_is_not_known(library: Library) -> None:
    at, evidence = library.evidence()
    library.add("one")
    library.index.refresh()
    assert library.bounds.changes("kb", at + 1, evidence) is None
    assert library.bounds.changes("kb", at + 99, evidence) is None


def test_the_log_keeps_its_bounds_and_what_it_still_knows_is_right(library: Library) -> None:
    vars(library.index)["_log"] = log = ChangeLog(library.record, "kb", rows_max=8, versions_max=12)
    library.index.refresh()
    shown: list[int] = []
    known = []
    came: dict[int, int] = {}
    for number in range(40):
        snapshot = library.index.snapshot()
        log.note(snapshot.version, snapshot.lexical, snapshot.vectors)
        shown.append(snapshot.version)
        assert len(log.rows) <= 8 and len(log.versions) <= 12 and len(log.removed) <= 8
        view = log.view
        assert view is not None
        past = [version for version in shown if view.knows(version)]
        known.append(len(past))
        for version in past:
            comers = view.comers(version)
            told = set() if comers is None else set(comers.ids[comers.living].tolist())
            assert told == {
                i for i, at in came.items() if at > version and i in library.record.live
            }
        if number % 3 == 2:
            library.record.remove(min(library.record.live))
        else:
            [new] = library.add(f"chunk {number}", embed=False)
            came[new] = library.record.version
        library.index.refresh()
    assert min(known[10:]) >= 4


def test_what_is_told_is_whole_while_changes_go_on(library: Library) -> None:
    at, evidence = library.evidence()
    done = Event()

    def change() -> None:
        try:
            for _ in range(150):
                library.add("parcel returned within some days of delivery", embed=False)
                library.index.refresh()
        finally:
            done.set()

    thread = Thread(target=change)
    thread.start()
    told = 0
    while not done.is_set() or told < 2:
        found = library.bounds.changes("kb", at, evidence)
        assert found is not None
        # One chunk a version, each of which enters the words' list.
        assert found.moved == len(found.arrivals) == found.version - at
        told += 1
    thread.join()
