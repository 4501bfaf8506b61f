"""Early exits and copies, through the retriever: what is asked, what is shown, what may be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import QueryKind, SearchRequest, SearchResult, WideSearch
from forebay.retrieval import (
    FusionSettings,
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

RETURNS = "Parcels may be returned within thirty days of delivery, with the invoice."
RUECKGABE = "退货需要在收到商品后七天内申请，并附上发票。"
OTHERS = [
    f"The {part} of line {i} is checked by the technician every {i + 2} weeks."
    for i, part in enumerate(["boiler", "pump", "belt", "valve", "motor", "fan"] * 6)
]
SURE = "Within how many days of delivery may parcels be returned with the invoice?"
BOTH = RetrievalSettings(early_exit_confidence=2.0)


class Counting(HashEmbedder):
    """Counts the queries it embeds."""

    asked = 0

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        self.asked += kind == "query"
        return await super().embed(texts, kind=kind)


class Library:
    """A record and its index."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.embedder = Counting(64)
        self.record = MemoryIndexFeed(64)
        self.add(*OTHERS, RETURNS)
        self.index = KbIndex.open(
            folder,
            "kb",
            self.record,
            writable=True,
            fingerprint=lambda: self.embedder.spec.fingerprint,
        )

    def add(self, *texts: str, groups: tuple[str, ...] = (), **fields: str) -> list[int]:
        ids = self.record.add(*texts, groups=groups, **fields)
        vectors = asyncio.run(self.embedder.embed(texts, kind="passage"))
        rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
        self.record.embed(dict(zip(ids, rows, strict=True)))
        return ids

    def ask(
        self,
        query: str,
        *,
        top_k: int = 3,
        kind: QueryKind | None = None,
        groups: frozenset[str] | None = None,
        settings: RetrievalSettings | None = None,
        shown: int = 0,
    ) -> SearchResult:
        self.index.refresh()
        clock = SystemClock()
        ctx = RequestContext(
            request_id="r",
            principal=Principal(groups=groups),
            deadline=Deadline.after(20, clock),
            clock=clock,
        )
        retriever = HybridRetriever(
            lambda _: self.index, self.embedder, settings or RetrievalSettings(), self.pool
        )
        request = SearchRequest("kb", query, top_k, kind=kind)
        if shown:
            request = WideSearch(**msgspec.structs.asdict(request), shown=shown)
        found = asyncio.run(retriever.retrieve(ctx, request))
        assert not ctx.degradations and ctx.rung == found.rung
        return found


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with search_executor(1) as executor:
        yield executor


@pytest.fixture
def library(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[Library]:
    made = Library(tmp_path, pool)
    yield made
    made.index.close()


def texts(found: SearchResult) -> list[str]:
    return [hit.chunk.text for hit in found.hits]


def test_sure_words_spare_the_embedder_and_may_be_kept(library: Library) -> None:
    found = library.ask(SURE)
    assert (found.rung, library.embedder.asked) == ("bm25", 0)
    assert texts(found)[0] == RETURNS
    assert found.evidence is not None and found.evidence.vectors is None


def test_what_leaves_early_reads_no_more_than_is_shown(library: Library) -> None:
    alone, found = library.ask(SURE, top_k=2), library.ask(SURE, top_k=20, shown=2)
    assert found.rung == "bm25"
    assert texts(found) == texts(alone)
    assert found.evidence is not None and alone.evidence is not None
    assert found.evidence.fused == alone.evidence.fused
    both = library.ask("How often is the technician there?", top_k=20, shown=2)
    assert both.rung == "vector+bm25" and len(both.hits) == 20, "these can be ordered anew"


def test_doubtful_words_ask_for_vectors(library: Library) -> None:
    assert library.ask("How often is the technician there?").rung == "vector+bm25"
    assert library.embedder.asked == 1


def test_who_compares_gets_both_legs(library: Library) -> None:
    assert library.ask(SURE, kind="comparison").rung == "vector+bm25"
    assert library.ask(SURE, kind="fact").rung == "bm25"
    bridging = SURE.replace("parcels", "the parcels that were delivered")
    assert library.ask(bridging, kind="fact").rung == "vector+bm25"


def test_a_question_in_another_language_is_not_sure_of_its_words(library: Library) -> None:
    query = "收到 FB-2041 之后几天内可以申请退货？"
    library.add("The FB-2041 may be returned within thirty days.", language="en")
    assert library.ask(query).rung == "vector+bm25"
    library.add(RUECKGABE, language="zh")
    assert library.ask(RUECKGABE).rung == "bm25"
    assert library.ask("How many days for a refund of 张伟?").rung == "vector+bm25"


def test_close_to_the_confidence_less_drift_is_trusted(library: Library) -> None:
    def leads(confidence: float) -> float:
        settings = RetrievalSettings(early_exit_confidence=confidence)
        found = library.ask(SURE, settings=settings, top_k=1)
        assert found.evidence is not None
        return min(found.evidence.lead, found.evidence.edge)

    low, high = 0.01, 0.999999
    for _ in range(40):
        middle = (low + high) / 2
        settings = RetrievalSettings(early_exit_confidence=middle)
        if library.ask(SURE, settings=settings).rung == "bm25":
            low = middle
        else:
            high = middle
    assert leads(low) < 1e-4 and leads(high) < 1e-4
    assert leads(low / 2) > 1e-3


@pytest.mark.parametrize("settings", [RetrievalSettings(), BOTH])
def test_copies_are_shown_once_and_the_next_takes_the_place(
    library: Library, settings: RetrievalSettings
) -> None:
    library.add(RETURNS, RETURNS.rstrip("."), RETURNS.replace("thirty", "ten"))
    found = texts(library.ask(SURE, settings=settings))
    assert sorted(text.rstrip(".") for text in found[:2]) == sorted(
        [RETURNS.rstrip("."), RETURNS.replace("thirty", "ten").rstrip(".")]
    )
    assert len(found) == 3 and "technician" in found[2]


def test_every_copy_is_shown_to_who_wants_them(library: Library) -> None:
    library.add(RETURNS, RETURNS)
    found = library.ask(SURE, settings=RetrievalSettings(distinct=False))
    assert texts(found) == [RETURNS] * 3


def test_the_copy_that_is_kept_is_one_the_caller_may_read(library: Library) -> None:
    [own] = library.add(RETURNS.replace("thirty", "nine"), groups=("staff",))
    [theirs] = library.add(RETURNS.replace("thirty", "nine"), groups=("board",))
    for group, chunk in (("staff", own), ("board", theirs)):
        hits = library.ask(SURE.replace("Within", "Nine"), groups=frozenset({group})).hits
        assert chunk in [hit.chunk.chunk_id for hit in hits]
        assert [hit.chunk.text for hit in hits].count(RETURNS.replace("thirty", "nine")) == 1


@pytest.mark.parametrize("settings", [RetrievalSettings(), BOTH])
def test_copies_that_fill_the_lists_do_not_fill_the_answer(
    library: Library, settings: RetrievalSettings
) -> None:
    library.add(*[RETURNS] * 60)
    found = library.ask("parcels returned, invoice, technician", settings=settings)
    assert len(found.hits) == 3 and texts(found).count(RETURNS) == 1
    assert found.evidence is None


def test_a_kind_leans_on_words_as_it_is_told(library: Library) -> None:
    plain = library.ask("technician boiler", kind="faq", settings=BOTH)
    leaning = RetrievalSettings(
        early_exit_confidence=2.0, fusion=FusionSettings(kinds={"faq": 0.0})
    )
    meant = library.ask("technician boiler", kind="faq", settings=leaning)
    other = library.ask("technician boiler", kind="fact", settings=leaning)
    assert [hit.score for hit in other.hits] == [hit.score for hit in plain.hits]
    assert [hit.score for hit in meant.hits] != [hit.score for hit in plain.hits]
