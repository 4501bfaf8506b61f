"""A backup holds everything, is one file, and is refused when any byte of it is off."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.errors import Conflict, InvalidRequest, NotFound
from forebay.kernel.stages import EmbedderSpec
from forebay.store import StoreWriter
from forebay.testing.feed_suite import draft_of, unit_vectors

SPEC = EmbedderSpec("e5", "f-e5", 8, 512)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StoreWriter]:
    writer = StoreWriter(tmp_path / "other")
    writer.commit("taken", [draft_of("x", "x")], [])
    yield writer
    writer.close()


@pytest.fixture
def backup(store: StoreWriter, tmp_path: Path) -> Path:
    store.commit("noise", [draft_of("a", "x", "y")], [])
    odd = draft_of("odd", "text", "次の\0", "")
    chunk = ChunkDraft(1, 0, 4, "another text than the span", 7, 2, ("第一章", "b"), "| head |")
    store.commit(
        "手册",
        [
            draft_of("a", "one", "two", title="T", groups=("hr",), tags=("x",)),
            draft_of("empty"),
            msgspec.structs.replace(
                odd, chunks=(odd.chunks[0], chunk), metadata={"k": "v"}, warnings=("w",)
            ),
        ],
        [],
    )
    store.begin_reembed("手册", SPEC)
    ids = store.reader.changes("手册", 0).added
    store.store_vectors("手册", unit_vectors([ids[0], ids[2]]), SPEC.fingerprint)
    store.commit("手册", [draft_of("late", "three")], ["none"])
    path = tmp_path / "kb.zip"
    store.reader.export_kb("手册", path)
    return path


def contents(store: StoreWriter, kb: str) -> list[object]:
    """All that a backup must keep: not ids and versions."""
    reader = store.reader
    found: list[object] = []
    for info in reader.documents(kb, limit=1000):
        found += [
            msgspec.structs.replace(info, version=0),
            reader.document_text(kb, info.document_id),
        ]
    ids = reader.changes(kb, 0).added
    rows = reader.rows(kb, ids)
    for row in sorted(rows, key=lambda row: (row.document_id, row.ordinal)):
        found += [
            msgspec.structs.replace(row, version=0, chunk_id=0),
            reader.vectors(kb, [row.chunk_id]).data,
        ]
    return found


def test_a_backup_holds_everything(store: StoreWriter, other: StoreWriter, backup: Path) -> None:
    info = other.import_kb(backup)
    assert (info.name, info.version) == ("手册", 1)
    was = store.reader.kb("手册")
    assert msgspec.structs.replace(info, version=was.version) == was
    assert contents(other, "手册") == contents(store, "手册")
    state = other.reader.embedder("手册")
    assert state is not None
    assert (state.spec, state.reembedding) == (SPEC, False)
    assert other.reader.check() == ()
    again = store.import_kb(backup, "copy")
    assert again.name == "copy"
    assert contents(store, "copy") == contents(store, "手册")
    assert store.reader.check() == ()


def test_a_backup_of_a_restored_kb_is_the_same(
    store: StoreWriter, other: StoreWriter, backup: Path, tmp_path: Path
) -> None:
    other.import_kb(backup)
    other.reader.export_kb("手册", tmp_path / "second.zip")
    with zipfile.ZipFile(backup) as one, zipfile.ZipFile(tmp_path / "second.zip") as two:
        for name in one.namelist():
            assert one.read(name) == two.read(name)


def test_an_unfinished_re_embedding_goes_on_after_a_restore(
    store: StoreWriter, other: StoreWriter, tmp_path: Path
) -> None:
    store.commit("kb", [draft_of("a", "one", "two")], [])
    store.begin_reembed("kb", SPEC)
    store.begin_reembed("kb", msgspec.structs.replace(SPEC, fingerprint="new", name="new"))
    store.store_vectors("kb", unit_vectors([1]), "new")
    store.reader.export_kb("kb", tmp_path / "kb.zip")
    other.import_kb(tmp_path / "kb.zip")
    state = other.reader.embedder("kb")
    assert state is not None
    assert (state.spec.name, state.reembedding) == ("new", True)
    [row] = other.pending("kb", 10)
    assert row.text == "two"


def test_an_empty_kb_and_an_existing_name(
    store: StoreWriter, other: StoreWriter, tmp_path: Path
) -> None:
    store.create("empty")
    store.reader.export_kb("empty", tmp_path / "kb.zip")
    assert other.import_kb(tmp_path / "kb.zip").documents == 0
    with pytest.raises(Conflict):
        other.import_kb(tmp_path / "kb.zip")
    with pytest.raises(Conflict):
        other.import_kb(tmp_path / "kb.zip", "taken")
    with pytest.raises(NotFound):
        store.reader.export_kb("none", tmp_path / "none.zip")
    assert not (tmp_path / "none.zip").exists()


def test_no_path_to_write_to_or_read_from(store: StoreWriter, tmp_path: Path) -> None:
    store.create("kb")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        store.reader.export_kb("kb", tmp_path / "no" / "kb.zip")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        store.import_kb(tmp_path / "missing.zip")


def change(path: Path, edit: Callable[[dict[str, bytes]], None]) -> None:
    """Edit the members of a backup and write it again with sound checksums of the zip's own."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def swap(member: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        assert old in members[member]
        members[member] = members[member].replace(old, new, 1)

    return edit


def cut(member: str, by: int) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        members[member] = members[member][:-by]

    return edit


def drop(member: str) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        del members[member]

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (swap("documents.jsonl", b'"one', b'"two'), "damaged"),
        (swap("documents.jsonl", b"{", b"["), "damaged"),
        (swap("documents.jsonl", b'"id":"a"', b'"id":"late"'), "damaged|twice"),
        (swap("manifest.json", b'"documents": 4', b'"documents": 5'), "damaged"),
        (swap("manifest.json", b'"chunks": ', b'"chunks": "'), "damaged"),
        (swap("manifest.json", b"forebay-kb", b"someone-kb"), "no export of a knowledge base"),
        (swap("manifest.json", b'"format_version": 1', b'"format_version": 2'), "upgrade Forebay"),
        (swap("manifest.json", b'"dimensions": 8', b'"dimensions": 4'), "damaged"),
        (swap("manifest.json", b'"dimensions": 8', b'"dimensions": -8'), "damaged"),
        (cut("documents.jsonl", 1), "damaged"),
        (cut("vectors.f16", 2), "damaged"),
        (drop("vectors.f16"), "damaged"),
        (drop("manifest.json"), "no export of a knowledge base"),
    ],
)
def test_a_changed_backup_is_refused_whole(
    other: StoreWriter, backup: Path, edit: Callable[[dict[str, bytes]], None], said: str
) -> None:
    change(backup, edit)
    refused(other, backup, said)


def refused(store: StoreWriter, path: Path, said: str) -> None:
    before = store.reader.kbs()
    with pytest.raises(InvalidRequest, match=said):
        store.import_kb(path)
    assert store.reader.kbs() == before
    assert store.reader.check() == ()


def test_a_flipped_bit_or_a_cut_is_refused(other: StoreWriter, backup: Path) -> None:
    data = backup.read_bytes()
    restored = 0
    for at in range(0, len(data), 41):
        backup.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            other.import_kb(backup, f"kb{at}")
        except InvalidRequest:
            pass
        else:  # bytes of the zip that say nothing of the content, such as dates
            restored += 1
            assert other.reader.kb(f"kb{at}").documents == 4
            other.drop(f"kb{at}")
        if at % 3 == 0:
            backup.write_bytes(data[:at])
            refused(other, backup, "damaged|backup")
    assert restored < 20
    assert [info.name for info in other.reader.kbs()] == ["taken"]


def test_a_foreign_file_is_refused(other: StoreWriter, tmp_path: Path) -> None:
    for content in (b"", b"PK"):
        (tmp_path / "file").write_bytes(content)
        refused(other, tmp_path / "file", "damaged")
    for content in (b"# Notes\n", os.urandom(5000)):
        (tmp_path / "file").write_bytes(content)
        refused(other, tmp_path / "file", "no export of a knowledge base; `forebay kb export`")


def test_a_large_kb_streams(store: StoreWriter, other: StoreWriter, tmp_path: Path) -> None:
    documents = [
        DocumentDraft(
            f"d{n}", "s", str(n), "t", "word " * 2000,
            tuple(
                ChunkDraft(i, i * 500, i * 500 + 500, "word " * 100, 9) for i in range(20)
            ),
        )
        for n in range(200)
    ]  # fmt: skip
    store.commit("kb", documents, [])
    store.store_vectors("kb", unit_vectors(store.reader.changes("kb", 0).added[::2]), "f")
    store.reader.export_kb("kb", tmp_path / "kb.zip")
    assert other.import_kb(tmp_path / "kb.zip").embedded_chunks == 2000
    assert contents(other, "kb") == contents(store, "kb")
