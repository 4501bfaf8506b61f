"""Text around hits: exact spans, nothing twice, within the budget, never of another document."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.context import ContextSettings, Surroundings
from forebay.kernel.documents import ChunkRow, DocumentInfo, Hit
from forebay.kernel.errors import NotFound

PIECES = (
    "The pump is old. ",
    "退货需要发票。",
    "Built in 1998.\n",
    "Call 5-30.\n\n",
    "Yes. ",
)
Part = tuple[str, tuple[str, ...]]
HEADINGS = (("Top",), ("Top", "A"), ("Top", "A", "Deep"), ("Top", "B"), ())


class Record:
    """Documents in memory, cut into chunks that overlap or leave gaps."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.chunks: dict[int, ChunkRow] = {}
        self.next = 1

    def add(self, name: str, parts: Sequence[Part], overlap: int = 0) -> None:
        text = ""
        for ordinal, (part, path) in enumerate(parts):
            start = max(0, len(text) - overlap)
            text += part
            self.chunks[self.next] = ChunkRow(
                chunk_id=self.next,
                document_id=name,
                ordinal=ordinal,
                start=start,
                end=len(text.rstrip()),
                text=text[start:].rstrip(),
                context="",
                tokens=len(part),
                page=ordinal + 1,
                heading_path=path,
                title=name,
                source=name,
                language="",
                tags=(),
                groups=(),
                metadata={},
                version=1,
            )
            self.next += 1
        self.texts[name] = text

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> list[ChunkRow]:
        return [self.chunks[i] for i in chunk_ids if i in self.chunks]

    def document(self, kb: str, document_id: str) -> DocumentInfo:
        text = self.document_text(kb, document_id)
        return DocumentInfo(
            document_id, "", "", "", "", "", (), (), {}, (), 1, len(text), 1, 0.0, True
        )

    def document_text(self, kb: str, document_id: str) -> str:
        if document_id not in self.texts:
            raise NotFound("gone", param="id")
        return self.texts[document_id]

    def hits(self, *ids: int) -> list[Hit]:
        return [Hit(self.chunks[i], 1.0 / place) for place, i in enumerate(ids, 1)]


def around(tokens: int, chunks: int = 2, passages: int = 5) -> ContextSettings:
    return ContextSettings(
        surrounding_tokens=tokens, surrounding_chunks=chunks, max_passages=passages
    )


@pytest.fixture
def record() -> Record:
    made = Record()
    made.add("a", [(f"Part {i} of a. ", ("Top",)) for i in range(9)])
    made.add("b", [(f"Part {i} of b. ", ("Top",)) for i in range(3)])
    return made


def widen(record: Record, settings: ContextSettings, *ids: int) -> tuple[Hit, ...]:
    return Surroundings(record, settings).widen("kb", record.hits(*ids))


def test_neighbours_stand_around_the_hit_in_reading_order(record: Record) -> None:
    [passage] = widen(record, around(1000, 1), 5)
    assert passage.chunk.text == "Part 3 of a. Part 4 of a. Part 5 of a."
    assert (passage.chunk.chunk_id, passage.chunk.page, passage.score) == (5, 4, 1.0)
    assert record.texts["a"][passage.chunk.start : passage.chunk.end] == passage.chunk.text


def test_the_best_hit_and_what_follows_come_first_in_the_budget(record: Record) -> None:
    first, second = widen(record, around(len("Part 0 of a. ")), 2, 7)
    assert first.chunk.text == "Part 1 of a. Part 2 of a."
    assert second.chunk.text == "Part 6 of a."


def test_hits_that_touch_are_one_passage_at_the_place_of_the_better(record: Record) -> None:
    best, other = widen(record, around(1), 3, 11, 4, 2)
    assert best.chunk.text == "Part 1 of a. Part 2 of a. Part 3 of a."
    assert (best.chunk.chunk_id, other.chunk.chunk_id) == (3, 11)


def test_passages_that_grow_into_each_other_become_one(record: Record) -> None:
    [passage] = widen(record, around(1000, 1), 7, 4)
    assert passage.chunk.text.count("Part") == 5 and passage.chunk.chunk_id == 7


def test_no_budget_leaves_hits_as_they_are(record: Record) -> None:
    assert list(widen(record, around(0), 3, 4)) == record.hits(3, 4)
    assert len(widen(record, around(0, passages=1), 3, 4)) == 1


def test_nothing_of_another_document_or_a_sibling_section() -> None:
    record = Record()
    record.add("a", [("Intro. ", ("Top",)), ("A one. ", ("Top", "A")), ("A two. ", ("Top", "A"))])
    record.add("b", [("B. ", ("Top", "A"))])
    record.add("c", [("C a. ", ("Top", "A")), ("C b. ", ("Top", "B"))])
    [passage] = widen(record, around(1000), 3)
    assert passage.chunk.text == "Intro. A one. A two."
    assert passage.chunk.heading_path == ("Top",)
    assert widen(record, around(1000), 5)[0].chunk.text == "C a."
    assert widen(record, around(1000), 6)[0].chunk.text == "C b."


def test_a_document_that_was_replaced_keeps_its_hits_as_they_were(record: Record) -> None:
    hits = record.hits(5)
    record.texts["a"] = "Another text."
    assert Surroundings(record, around(1000)).widen("kb", hits) == tuple(hits)
    del record.texts["a"]
    assert Surroundings(record, around(1000)).widen("kb", hits) == tuple(hits)
    record.add("a", [("Part 0 of a, the second edition.", ("Top",))])
    for i in range(1, 10):
        del record.chunks[i]
    assert Surroundings(record, around(1000)).widen("kb", hits) == tuple(hits)


def test_a_table_header_is_not_shown_twice() -> None:
    record = Record()
    record.add("t", [("name | price\n", ()), ("pump | 5\n", ()), ("hose | 7\n", ())])
    record.chunks[3] = msgspec.structs.replace(record.chunks[3], context="name | price")
    [whole] = widen(record, around(1000), 3)
    assert whole.chunk.context == "" and whole.chunk.text.startswith("name | price")
    [part] = widen(record, around(1000, 1), 3)
    assert part.chunk.context == "name | price" and part.chunk.text == "pump | 5\nhose | 7"


@example(1059)
@given(st.integers(0, 2**32))
def test_spans_are_exact_and_no_text_stands_twice(seed: int) -> None:
    chance = random.Random(seed)
    record, overlap = Record(), chance.choice([0, 0, 3])
    for name in "abc"[: chance.randint(1, 3)]:
        parts = [
            ("".join(chance.choices(PIECES, k=chance.randint(1, 3))), chance.choice(HEADINGS))
            for _ in range(chance.randint(1, 10))
        ]
        record.add(name, parts, overlap=overlap)
    ids = chance.sample(sorted(record.chunks), min(len(record.chunks), chance.randint(1, 6)))
    hits = record.hits(*ids)
    settings = around(chance.choice([0, 20, 100, 1000]), chance.randint(1, 4), len(hits))
    passages = Surroundings(record, settings).widen("kb", hits)
    covered = {hit.chunk.chunk_id: 0 for hit in hits}
    for passage in passages:
        chunk = passage.chunk
        assert record.texts[chunk.document_id][chunk.start : chunk.end] == chunk.text
        for hit in hits:
            own = hit.chunk
            inside = own.document_id == chunk.document_id and chunk.start <= own.start
            covered[own.chunk_id] += inside and own.end <= chunk.end
    assert set(covered.values()) == {1} if not overlap else all(covered.values())
    assert [p.score for p in passages] == sorted((p.score for p in passages), reverse=True)
    added = sum(p.chunk.tokens for p in passages) - sum(hit.chunk.tokens for hit in hits)
    assert 0 <= added <= settings.surrounding_tokens
