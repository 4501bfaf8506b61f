"""Words that are sure, and what another language says of the same beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    LoggedBounds,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.embedding import HashEmbedder
from forebay.testing.generation import context
from forebay.testing.index_feed import MemoryIndexFeed

ENGLISH = "Parcels may be returned within thirty days of delivery, with the invoice."
CHINESE = "包裹须在送达后七天内凭发票退回。"
ASKED = {
    "en": "Within how many days of delivery may parcels be returned with the invoice?",
    "zh": "包裹须在送达后几天内凭发票退回？",
}
PARTS = [
    f"The {part} of line {number} is checked by the technician every {number + 2} weeks."
    for number, part in enumerate(["boiler", "pump", "belt", "valve", "motor", "fan"] * 3)
]
TEILE = [
    f"{number}号车间的{part}每隔{number + 2}周检查一次。"
    for number, part in enumerate(["锅炉", "水泵", "皮带", "阀门", "电机", "风扇"] * 3)
]


class Library:
    """A record in two languages; the two statements about parcels have nearly one vector."""

    def __init__(
        self, folder: Path, pool: ThreadPoolExecutor, languages: tuple[str, ...] = ("en", "zh")
    ) -> None:
        self.pool, self.embedder = pool, HashEmbedder(64)
        self.record = MemoryIndexFeed(64)
        chance = np.random.default_rng(5)
        self.near = chance.standard_normal(64)
        for language in languages:
            for text in {"en": PARTS, "zh": TEILE}[language]:
                self.add(text, language, chance.standard_normal(64))
        self.add(ENGLISH, "en", self.near)
        self.index = KbIndex.open(
            folder,
            "kb",
            self.record,
            writable=True,
            fingerprint=lambda: self.embedder.spec.fingerprint,
        )

    def add(self, text: str, language: str, vector: np.ndarray) -> int:
        [chunk_id] = self.record.add(text, document=text[:12], language=language)
        unit = vector / np.linalg.norm(vector)
        self.record.embed({chunk_id: unit.astype(np.float32)})
        return chunk_id

    def ask(self, query: str, settings: RetrievalSettings | None = None) -> SearchResult:
        self.index.refresh()
        retriever = HybridRetriever(
            lambda _: self.index, self.embedder, settings or RetrievalSettings(), self.pool
        )
        return asyncio.run(retriever.retrieve(context(), SearchRequest("kb", query, 3)))


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with search_executor(1) as pool:
        made = Library(tmp_path, pool)
        yield made
        made.index.close()


@pytest.mark.parametrize(
    ("language", "other"), [("en", CHINESE), ("zh", ENGLISH)], ids=["en", "zh"]
)
def test_what_another_language_says_of_the_same_stands_beside_sure_words(
    library: Library, language: str, other: str
) -> None:
    library.add(CHINESE, "zh", library.near + 0.1)
    found = library.ask(ASKED[language])
    assert found.rung == "bm25"
    first, second = found.hits[:2]
    assert first.chunk.language == language and second.chunk.text == other
    assert first.score > second.score > 0.0
    # A cosine to a chunk is none to the question.
    assert second.cosine is None


def test_it_is_not_looked_for_where_nobody_wants_it(library: Library) -> None:
    library.add(CHINESE, "zh", library.near + 0.1)
    settings = RetrievalSettings(early_exit_foreign=0.0)
    texts = [hit.chunk.text for hit in library.ask(ASKED["en"], settings).hits]
    assert texts[0] == ENGLISH and CHINESE not in texts


def test_a_best_hit_without_a_vector_answers_alone(library: Library) -> None:
    library.record.add(CHINESE, document="late", language="zh")
    found = library.ask(ASKED["zh"])
    assert found.rung == "bm25" and found.hits[0].chunk.text == CHINESE
    assert ENGLISH not in [hit.chunk.text for hit in found.hits]


def test_a_statement_that_comes_later_is_told_to_who_keeps_the_result(library: Library) -> None:
    found = library.ask(ASKED["en"])
    assert found.evidence is not None and found.evidence.vectors is not None
    came = library.add(CHINESE, "zh", library.near + 0.1)
    library.index.refresh()
    bounds = LoggedBounds(lambda _: library.index)
    changes = bounds.changes("kb", found.kb_version, found.evidence)
    assert changes is not None
    [arrival] = changes.arrivals
    again = library.ask(ASKED["en"])
    assert arrival.chunk_id == came
    assert arrival.fused == pytest.approx(again.hits[1].score, abs=0.02)
    assert arrival.fused > found.evidence.fused.scores[-1]


def test_the_first_text_in_another_language_is_news_to_who_keeps_the_result(tmp_path: Path) -> None:
    with search_executor(1) as pool:
        library = Library(tmp_path, pool, ("en",))
        found = library.ask(ASKED["en"])
        assert found.evidence is not None and found.evidence.vectors is None
        library.add("It is about something else.", "en", -library.near)
        library.index.refresh()
        bounds = LoggedBounds(lambda _: library.index)
        quiet = bounds.changes("kb", found.kb_version, found.evidence)
        assert quiet is not None and not [one for one in quiet.arrivals if one.fused == np.inf]
        library.add(CHINESE, "zh", library.near + 0.1)
        library.index.refresh()
        news = bounds.changes("kb", found.kb_version, found.evidence)
        assert news is not None and [one.fused for one in news.arrivals][-1] == np.inf
        library.index.close()


def test_who_has_no_vector_yet_is_kept_by_nobody(library: Library) -> None:
    library.record.add(CHINESE, document="late", language="zh")
    assert library.ask(ASKED["zh"]).evidence is None
