"""Vectors of sentences in the record: no version has them, and they go with their chunks."""

from __future__ import annotations

import sqlite3

import pytest

from forebay.kernel.errors import NotFound
from forebay.kernel.sentences import SentenceScale
from forebay.kernel.stages import EmbedderSpec
from forebay.store import StoreReader, StoreWriter
from forebay.testing.feed_suite import draft_of, unit_vectors

E5, OTHER = 11, 12


def lacking(store: StoreWriter, after: tuple[int, int] = (0, 0), limit: int = 9) -> list[int]:
    unread = store.reader.lacking_sentences("kb", E5, after, limit)
    return [row.chunk_id for row in unread.rows]


@pytest.fixture
def filled(store: StoreWriter) -> StoreWriter:
    store.commit("kb", [draft_of("a", "one", "two"), draft_of("b", "three")], [])
    store.store_vectors("kb", unit_vectors([1, 2, 3]), "f")
    return store


def test_chunks_lack_theirs_once_they_have_vectors_of_their_own(store: StoreWriter) -> None:
    store.commit("kb", [draft_of("a", "one", "two"), draft_of("b", "three")], [])
    assert lacking(store) == []
    store.store_vectors("kb", unit_vectors([3]), "f")
    store.store_vectors("kb", unit_vectors([1, 2]), "f")
    first = store.reader.lacking_sentences("kb", E5, (0, 0), 2)
    assert [row.text for row in first.rows] == ["three", "one"], "as they were embedded"
    assert first.kept == 0
    rest = store.reader.lacking_sentences("kb", E5, first.after, 2)
    assert [row.text for row in rest.rows] == ["two"]
    assert store.reader.lacking_sentences("kb", E5, rest.after, 2).after == rest.after


def test_what_is_kept_is_read_by_every_process_and_changes_no_version(
    filled: StoreWriter,
) -> None:
    version = filled.reader.version("kb")
    assert filled.store_sentences("kb", E5, {1: b"uno", 3: b"tres", 99: b"gone"}) == 2
    assert filled.reader.version("kb") == version
    reader = StoreReader(filled.folder)
    assert reader.sentences("kb", E5, [3, 2, 1]) == {1: b"uno", 3: b"tres"}
    assert reader.sentences(None, E5, [3, 2, 1]) == {1: b"uno", 3: b"tres"}
    filled.create("empty")
    assert reader.sentences("empty", E5, [1]) == {}
    assert lacking(filled) == [2]
    assert filled.reader.lacking_sentences("kb", E5, (0, 0), 9).kept == 2
    assert reader.check() == ()
    reader.close()
    with pytest.raises(NotFound):
        filled.store_sentences("other", E5, {1: b""})


def test_what_another_maker_made_is_not_read_and_made_anew(filled: StoreWriter) -> None:
    filled.store_sentences("kb", OTHER, {1: b"old"})
    assert filled.reader.sentences("kb", E5, [1]) == {}
    assert lacking(filled) == [1, 2, 3]
    filled.store_sentences("kb", E5, {1: b"new"})
    assert filled.reader.sentences("kb", E5, [1]) == {1: b"new"}
    assert filled.reader.sentences("kb", OTHER, [1]) == {}


def test_they_go_with_the_document(filled: StoreWriter) -> None:
    filled.store_sentences("kb", E5, {1: b"uno", 2: b"dos", 3: b"tres"})
    filled.commit("kb", [], ["a"])
    assert filled.reader.sentences("kb", E5, [1, 2, 3]) == {3: b"tres"}
    assert filled.reader.check() == ()
    filled.drop("kb")
    filled.maintain()
    with sqlite3.connect(filled.folder / "record.sqlite3") as connection:
        assert connection.execute("SELECT count(*) FROM sentence").fetchone() == (0,)


def test_a_replaced_document_keeps_those_of_chunks_that_stayed(filled: StoreWriter) -> None:
    filled.store_sentences("kb", E5, {1: b"uno", 2: b"dos"})
    filled.commit("kb", [draft_of("a", "one", "zwei")], [])
    assert filled.reader.check() == ()
    [kept] = [row for row in filled.reader.rows("kb", range(1, 20)) if row.text == "one"]
    [new] = [row for row in filled.reader.rows("kb", range(1, 20)) if row.text == "zwei"]
    found = filled.reader.sentences("kb", E5, [kept.chunk_id, new.chunk_id])
    assert found == {kept.chunk_id: b"uno"} and kept.chunk_id > 3
    # Another title is part of what is embedded.
    filled.commit("kb", [draft_of("a", "one", "zwei", title="T")], [])
    assert filled.reader.sentences("kb", E5, range(1, 20)) == {}


def test_re_embedding_begins_them_anew(filled: StoreWriter) -> None:
    filled.store_sentences("kb", E5, {1: b"uno"})
    filled.begin_reembed("kb", EmbedderSpec("bge", "f-bge", 8, 512))
    assert filled.reader.sentences("kb", E5, [1]) == {}
    assert lacking(filled) == [], "their chunks come first"
    assert filled.reader.check() == ()


def test_a_makers_scale_is_kept_once(filled: StoreWriter) -> None:
    assert filled.reader.sentence_scale(E5) is None
    filled.store_scale(E5, SentenceScale(0.25, 0.1))
    filled.store_scale(E5, SentenceScale(0.26, 0.1))
    assert filled.reader.sentence_scale(E5) == SentenceScale(0.26, 0.1)
    assert filled.reader.sentence_scale(OTHER) is None
