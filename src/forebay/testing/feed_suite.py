"""What every record must do, whoever keeps it: a suite for pytest.

Subclass ``FeedConformance`` in a test module and provide a ``record`` fixture that is empty.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.documents import (
    ChangeSet,
    ChunkDraft,
    ChunkRow,
    CommitReceipt,
    DocumentDraft,
    KbInfo,
    Vectors,
)
from forebay.kernel.errors import Gone, NotFound, ReembedNeeded
from forebay.kernel.stages import EmbedderSpec


class FeedRecord(Protocol):
    """What the suite drives and reads."""

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt: ...

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int: ...

    def begin_reembed(self, kb: str, spec: EmbedderSpec) -> int: ...

    def pending(
        self, kb: str, limit: int, document_id: str | None = None
    ) -> Sequence[ChunkRow]: ...

    def drop(self, kb: str) -> None: ...

    def prune(self, kb: str, oldest_needed: int) -> None: ...

    def kb(self, name: str) -> KbInfo: ...

    def changes(self, kb: str, since: int) -> ChangeSet: ...

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]: ...

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors: ...


def draft_of(document_id: str, *texts: str, **fields: object) -> DocumentDraft:
    """A document of one chunk per text; keyword fields replace the draft's."""
    chunks, at = [], 0
    for ordinal, text in enumerate(texts):
        chunks.append(ChunkDraft(ordinal, at, at + len(text), text, len(text) // 4 + 1))
        at += len(text)
    draft = DocumentDraft(
        document_id, f"{document_id}.md", "|".join(texts), "", "".join(texts), tuple(chunks)
    )
    return msgspec.structs.replace(draft, **fields)


def unit_vectors(ids: Sequence[int], dimensions: int = 8) -> Vectors:
    """A unit vector per id, different for neighbouring ids."""
    values = array.array("f")
    for chunk_id in ids:
        values.extend(float(at == chunk_id % dimensions) for at in range(dimensions))
    return Vectors(tuple(ids), dimensions, values.tobytes())


def _raises(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


class FeedConformance:
    """One test per promise of the record and its ``IndexFeed``."""

    def test_versions_and_outcomes(self, record: FeedRecord) -> None:
        """A commit that changes something raises the version by one, any other by none."""
        first = record.commit("kb", [draft_of("a", "one", "two"), draft_of("b", "三", "四")], [])
        assert first.outcomes == (("a", "indexed"), ("b", "indexed"))
        assert not first.embedded
        same = record.commit("kb", [draft_of("a", "one", "two")], ["missing"])
        assert (same.version, same.outcomes) == (first.version, (("a", "unchanged"),))
        other = record.commit("kb", [draft_of("a", "one", "two", groups=("hr",))], ["b"])
        assert other.version == first.version + 1
        assert other.outcomes == (("b", "removed"), ("a", "replaced"))
        assert record.kb("kb").version == other.version

    def test_changes(self, record: FeedRecord) -> None:
        """Added, removed and embedded are exact from every version."""
        start = record.commit("kb", [draft_of("a", "one", "two")], []).version
        [one, two] = record.changes("kb", 0).added
        record.store_vectors("kb", unit_vectors([one, two]), "f")
        record.commit("kb", [draft_of("a", "one", "three"), draft_of("b", "four")], [])
        record.commit("kb", [], ["b"])
        now = record.changes("kb", 0)
        assert now.version == start + 3
        assert not now.removed
        assert len(now.added) == 2
        later = record.changes("kb", start)
        assert (later.added, later.removed) == (now.added, (one, two))
        assert later.embedded == now.added[:1]  # the same words kept their vector
        assert record.changes("kb", now.version) == ChangeSet(now.version, now.version)
        assert min(now.added) > two

    def test_rows_and_vectors(self, record: FeedRecord) -> None:
        """Rows and vectors come in the order asked, without what does not exist."""
        fields: Mapping[str, object] = {
            "title": "标题",
            "tags": ("x",),
            "groups": ("hr",),
            "metadata": {"year": "2026"},
            "language": "zh",
        }
        record.commit("kb", [draft_of("a", "one", "二\0", "", **fields)], [])
        ids = record.changes("kb", 0).added
        asked = [ids[2], 10**9, ids[0], ids[1]]
        rows = record.rows("kb", asked)
        assert [row.chunk_id for row in rows] == [ids[2], ids[0], ids[1]]
        assert [row.text for row in rows] == ["", "one", "二\0"]
        assert (rows[1].title, rows[1].tags, rows[1].groups) == ("标题", ("x",), ("hr",))
        assert rows[1].metadata == {"year": "2026"}
        assert record.vectors("kb", asked).ids == ()
        record.store_vectors("kb", unit_vectors([ids[1], 10**9, ids[0]]), "f")
        assert record.vectors("kb", asked) == unit_vectors([ids[0], ids[1]])
        assert [row.chunk_id for row in record.pending("kb", 10)] == [ids[2]]

    def test_reembedding(self, record: FeedRecord) -> None:
        """Another embedder's vectors are refused, and none are left once it takes over."""
        record.commit("kb", [draft_of("a", "one", "two")], [])
        ids = record.changes("kb", 0).added
        before = record.store_vectors("kb", unit_vectors(ids), "old")
        spec = EmbedderSpec("new model", "new", 16, 512)
        _raises(ReembedNeeded, lambda: record.store_vectors("kb", unit_vectors(ids, 16), "new"))
        assert record.begin_reembed("kb", spec) == before + 1
        assert record.begin_reembed("kb", spec) == before + 1
        info = record.kb("kb")
        assert (info.embedded_chunks, info.embedder) == (0, "new model")
        assert record.vectors("kb", ids).ids == ()
        _raises(ReembedNeeded, lambda: record.store_vectors("kb", unit_vectors(ids), "old"))
        record.store_vectors("kb", unit_vectors(ids[:1], 16), "new")
        assert record.kb("kb").embedded_chunks == 1
        assert record.changes("kb", before).embedded == ids[:1]

    def test_drop_and_prune(self, record: FeedRecord) -> None:
        """A log that is not kept says so, and a kb made anew is not taken for the old one."""
        first = record.commit("kb", [draft_of("a", "one")], []).version
        record.commit("kb", [draft_of("b", "two")], ["a"])
        last = record.commit("kb", [], ["b"]).version
        record.prune("kb", first + 1)
        _raises(Gone, lambda: record.changes("kb", first))
        assert len(record.changes("kb", first + 1).removed) == 1
        _raises(Gone, lambda: record.changes("kb", last + 1))
        record.drop("kb")
        _raises(NotFound, lambda: record.kb("kb"))
        _raises(NotFound, lambda: record.changes("kb", 0))
        assert record.commit("kb", [draft_of("a", "one")], []).version > last
        _raises(Gone, lambda: record.changes("kb", last))

    def test_kbs_are_apart(self, record: FeedRecord) -> None:
        """A kb's chunks are not another's, even when asked for by id."""
        record.commit("one", [draft_of("a", "x")], [])
        record.commit("two", [draft_of("a", "y")], [])
        [mine] = record.changes("one", 0).added
        assert record.rows("two", [mine]) == []
        version = record.kb("two").version
        assert record.store_vectors("two", unit_vectors([mine]), "f") == version
        assert record.vectors("one", [mine]).ids == ()
        record.drop("one")
        assert [row.text for row in record.rows("two", record.changes("two", 0).added)] == ["y"]
