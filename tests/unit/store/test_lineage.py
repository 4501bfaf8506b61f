"""What is kept outside a store for a version must be of that store's own history."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from forebay.store import StoreReader, StoreWriter
from forebay.store.schema import LINEAGE_VERSIONS
from forebay.testing.feed_suite import draft_of
from tests.unit.store import schema_v1


def test_every_version_has_a_mark_of_its_own(store: StoreWriter) -> None:
    store.create("k")
    for text in ("one", "two", "three"):
        store.commit("k", [draft_of("d", text)], [])
    version = store.reader.version("k")
    marks = [store.reader.mark("k", number) for number in range(version + 1)]
    assert None not in marks[version - 3 :]
    assert len(set(marks[version - 3 :])) == 4
    assert store.reader.mark("k", version + 1) is None
    assert store.reader.mark("other", version) is None


def test_copies_go_their_own_ways(tmp_path: Path) -> None:
    with closing(StoreWriter(tmp_path / "a")) as store:
        store.create("k")
        version = store.commit("k", [draft_of("d", "one")], []).version
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    marks = {}
    for name in ("a", "b"):
        with closing(StoreWriter(tmp_path / name)) as store:
            assert store.commit("k", [draft_of("d", name)], []).version == version + 1
            reader = store.reader
            marks[name] = (
                reader.identity(),
                reader.mark("k", version),
                reader.mark("k", version + 1),
            )
    assert marks["a"][:2] == marks["b"][:2]
    assert marks["a"][2] != marks["b"][2]


def test_a_dropped_and_remade_kb_has_other_marks(store: StoreWriter) -> None:
    store.create("k")
    version = store.commit("k", [draft_of("d", "one")], []).version
    mark = store.reader.mark("k", version)
    store.drop("k")
    assert store.reader.mark("k", version) is None
    store.create("k")
    assert store.reader.mark("k", store.reader.version("k")) not in (None, mark)


def test_old_marks_are_let_go(store: StoreWriter) -> None:
    store.create("k")
    first = store.reader.version("k")
    connection = store._connection
    connection.execute("UPDATE kb SET version = version + ?", (LINEAGE_VERSIONS - 1,))
    assert store.reader.mark("k", first) is not None
    connection.execute("UPDATE kb SET version = version + 1")
    assert store.reader.mark("k", first) is None


def test_a_store_of_the_first_schema_gets_them(tmp_path: Path) -> None:
    schema_v1.build(tmp_path)
    with closing(StoreWriter(tmp_path)) as store, closing(StoreReader(tmp_path)) as reader:
        assert store.reader.mark("handbook", 3) == reader.mark("handbook", 3) is not None
        assert len(reader.identity()) == 16
