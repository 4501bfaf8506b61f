"""What the record keeps beyond the rules of every feed: embedders, order, traces, threads."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.kernel.clock import SystemClock, VirtualClock
from forebay.kernel.documents import ChangeSet, ChunkDraft, Vectors
from forebay.kernel.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ReembedNeeded,
    StoreBusy,
    StoreError,
    Unavailable,
)
from forebay.kernel.stages import EmbedderSpec
from forebay.policy.connections import ConnectionSettings, ConnectionSizer
from forebay.store import StoreReader, StoreSettings, StoreWriter
from forebay.store.database import ReaderPool
from forebay.testing.feed_suite import draft_of, unit_vectors

SPEC = EmbedderSpec("e5", "f-e5", 8, 512)
OTHER = EmbedderSpec("bge", "f-bge", 8, 512)


def test_a_document_comes_back_whole(store: StoreWriter) -> None:
    draft = draft_of(
        "手册/报销.md",
        "差旅费，",
        "凭票报销。\0\r\n",
        title="报销制度",
        language="zh",
        tags=("财务",),
        groups=("hr", "fin"),
        metadata={"b": "2", "a": "1"},
        warnings=("encoding guessed",),
        media_type="text/markdown",
    )
    chunk = msgspec.structs.replace(
        draft.chunks[0], page=3, heading_path=("第一章", "1.1"), context="| 表头 |"
    )
    draft = msgspec.structs.replace(draft, chunks=(chunk, draft.chunks[1]))
    store.commit("kb", [draft], [])
    reader = store.reader
    info = reader.document("kb", draft.document_id)
    assert reader.document_text("kb", draft.document_id) == draft.text
    assert (info.title, info.tags, info.groups) == (draft.title, draft.tags, draft.groups)
    assert (info.metadata, info.warnings) == ({"a": "1", "b": "2"}, draft.warnings)
    assert (info.chunks, info.characters, info.version) == (2, len(draft.text), 1)
    assert not info.embedded
    [row, _] = reader.rows("kb", reader.changes("kb", 0).added)
    assert (row.page, row.heading_path, row.context) == (3, ("第一章", "1.1"), "| 表头 |")
    assert draft.text[row.start : row.end] == row.text


def test_metadata_order_is_no_change(store: StoreWriter) -> None:
    store.commit("kb", [draft_of("a", "x", metadata={"a": "1", "b": "2"})], [])
    again = store.commit("kb", [draft_of("a", "x", metadata={"b": "2", "a": "1"})], [])
    assert again.outcomes == (("a", "unchanged"),)


def test_the_same_document_twice_in_one_commit_is_one_document(store: StoreWriter) -> None:
    receipt = store.commit("kb", [draft_of("a", "x"), draft_of("a", "x")], [])
    assert receipt.outcomes == (("a", "indexed"), ("a", "unchanged"))
    assert store.reader.kb("kb").documents == 1
    store.commit("kb", [draft_of("a", "y"), draft_of("a", "z")], [])
    assert store.reader.changes("kb", 1).removed == (1,)
    assert store.reader.document_text("kb", "a") == "z"


def test_documents_come_in_pages(store: StoreWriter) -> None:
    names = sorted((f"d{n}" for n in range(25)), key=str.encode)
    store.commit("kb", [draft_of(name, "x") for name in names], [])
    seen: list[str] = []
    while page := store.reader.documents("kb", after=seen[-1] if seen else None, limit=10):
        seen += [info.document_id for info in page]
    assert seen == names
    assert set(store.reader.stamps("kb")) == set(names)
    assert store.reader.stamps("none") == {}


def test_what_does_not_exist_is_not_found(store: StoreWriter) -> None:
    for call in (store.reader.kb, store.reader.version, store.drop):
        with pytest.raises(NotFound):
            call("none")
    with pytest.raises(NotFound):
        store.commit("none", [], ["a"])
    store.create("kb")
    with pytest.raises(Conflict):
        store.create("kb")
    with pytest.raises(NotFound):
        store.reader.document("kb", "a")
    with pytest.raises(NotFound):
        store.reader.document_text("kb", "a")


@pytest.mark.parametrize(
    "draft",
    [draft_of("a", "half \ud800"), draft_of("\udfff", "x"), draft_of("", "x")],
    ids=["text", "id", "empty id"],
)
def test_what_is_not_text_is_refused_and_changes_nothing(store: StoreWriter, draft: object) -> None:
    store.commit("kb", [draft_of("first", "x")], [])
    with pytest.raises(InvalidRequest):
        store.commit("kb", [draft_of("second", "y"), draft], ["first"])  # type: ignore[list-item]
    assert [info.document_id for info in store.reader.documents("kb")] == ["first"]
    assert store.reader.version("kb") == 1
    assert store.commit("kb", [draft_of("third", "y")], []).version == 2
    # ids taken by the failed commit are not given again
    assert store.reader.changes("kb", 1).added > (2,)
    assert store.reader.check() == ()


def test_a_changed_document_keeps_the_vectors_of_unchanged_chunks(store: StoreWriter) -> None:
    store.commit("kb", [draft_of("a", "one", "two", "three")], [])
    store.store_vectors("kb", unit_vectors([1, 2, 3]), "f")
    receipt = store.commit("kb", [draft_of("a", "one", "2", "three")], [])
    assert not receipt.embedded
    changes = store.reader.changes("kb", 2)
    assert changes == ChangeSet(2, 3, (4, 5, 6), (1, 2, 3), (4, 6))
    assert store.reader.vectors("kb", [6]).data == store.reader.vectors("kb", [6]).data
    assert store.reader.vectors("kb", [4]).data == unit_vectors([1]).data
    assert [row.chunk_id for row in store.pending("kb", 9)] == [5]
    # A title is part of what is embedded.
    store.commit("kb", [draft_of("a", "one", "2", "three", title="T")], [])
    assert store.reader.kb("kb").embedded_chunks == 0


def test_re_embedding_is_asked_for_begun_and_ends(store: StoreWriter) -> None:
    reader = store.reader
    store.commit("kb", [draft_of("a", "one", "two")], [])
    assert reader.embedder("kb") is None
    reader.check_embedder("kb", SPEC)
    store.begin_reembed("kb", SPEC)
    store.store_vectors("kb", unit_vectors([1, 2]), SPEC.fingerprint)
    reader.check_embedder("kb", SPEC)
    with pytest.raises(ReembedNeeded, match="re-embed needed"):
        reader.check_embedder("kb", OTHER)
    begun = store.begin_reembed("kb", OTHER)
    for spec in (SPEC, OTHER):
        with pytest.raises(ReembedNeeded):
            reader.check_embedder("kb", spec)
    # New documents do not prolong it.
    store.commit("kb", [draft_of("b", "three")], [])
    store.store_vectors("kb", unit_vectors([1]), OTHER.fingerprint)
    assert reader.kb("kb").embedded_chunks == 1
    store.store_vectors("kb", unit_vectors([2]), OTHER.fingerprint)
    reader.check_embedder("kb", OTHER)
    state = reader.embedder("kb")
    assert state is not None
    assert (state.spec, state.since, state.reembedding) == (OTHER, begun, False)


@pytest.mark.parametrize(
    "vectors",
    [
        Vectors((1,), 8, b"\0" * 31),
        Vectors((1,), 4, unit_vectors([1], 4).data),
        Vectors((1,), 8, np.full(8, np.nan, "<f4").tobytes()),
        Vectors((1,), 8, np.full(8, 1e30, "<f4").tobytes()),
    ],
    ids=["bytes", "dimensions", "nan", "huge"],
)
def test_vectors_that_are_none_are_refused(store: StoreWriter, vectors: Vectors) -> None:
    store.commit("kb", [draft_of("a", "one")], [])
    store.begin_reembed("kb", SPEC)
    with pytest.raises(InvalidRequest):
        store.store_vectors("kb", vectors, SPEC.fingerprint)
    assert store.reader.kb("kb").embedded_chunks == 0


def test_half_precision_keeps_cosines(store: StoreWriter) -> None:
    draw = np.random.default_rng(7)
    matrix = draw.standard_normal((200, 384)).astype("<f4")
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    store.commit("kb", [draft_of("a", *(f"t{n}" for n in range(200)))], [])
    ids = store.reader.changes("kb", 0).added
    store.store_vectors("kb", Vectors(ids, 384, matrix.tobytes()), "f")
    stored = store.reader.vectors("kb", ids)
    back = np.frombuffer(stored.data, "<f4").reshape(200, 384)
    assert np.abs(np.linalg.norm(back, axis=1) - 1).max() < 1e-6
    assert (1 - (back * matrix).sum(axis=1)).max() < 1e-5
    queries = draw.standard_normal((50, 384)).astype("<f4")
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    assert np.abs(queries @ back.T - queries @ matrix.T).max() < 1e-3
    top, before = (np.argsort(-(queries @ rows.T))[:, :10] for rows in (back, matrix))
    kept = [len(set(a) & set(b)) for a, b in zip(top, before, strict=True)]
    assert np.mean(kept) >= 9.9


COPY_ALL = "import shutil, sys; shutil.copytree(*sys.argv[1:])"


def folder_bytes(folder: Path) -> bytes:
    """Every byte of the folder, read by another process: closing a file here would free locks."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "copy")
        subprocess.run([sys.executable, "-c", COPY_ALL, str(folder), str(copy)], check=True)
        return b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())


def secret(number: int) -> str:
    return f"SECRET{number:05d}X"


def secret_draft(number: int) -> object:
    word = secret(number)
    texts = [f"{word} {'x' * (number * 97 * k % 5000)}" for k in range(1, number % 9 + 2)]
    return draft_of(f"{word}-{number * 7919 % 1000}", *texts, title=word, metadata={"m": word})


def test_a_removed_document_leaves_no_trace(store: StoreWriter) -> None:
    drafts = [secret_draft(number) for number in range(300)]
    for at in range(0, 300, 20):
        store.commit("kb", drafts[at : at + 20], [])  # type: ignore[arg-type]
        removed = [draft.document_id for draft in drafts[at : at + 20 : 3]]  # type: ignore[attr-defined]
        store.commit("kb", [], removed)
    living = {info.title for info in store.reader.documents("kb", limit=1000)}
    assert store.maintain({"kb": store.reader.version("kb")}).log_emptied
    found = folder_bytes(store.folder)
    for number in range(300):
        assert (secret(number).encode() in found) == (secret(number) in living)
    store.drop("kb")
    store.maintain()
    assert b"SECRET" not in folder_bytes(store.folder)
    assert store.reader.check() == ()


def test_a_large_file_is_rewritten_when_it_is_time(tmp_path: Path) -> None:
    clock = VirtualClock(1000)
    settings = StoreSettings(rewrite_always_bytes=0, rewrite_after_s=3600)
    store = StoreWriter(tmp_path, settings, clock)
    store.commit("kb", [draft_of(f"d{n}", "x" * 3000) for n in range(50)], ["d1"])
    store.commit("kb", [], ["d1"])
    assert not store.maintain().rewritten
    assert store.maintain(rewrite=True).rewritten
    store.commit("kb", [], ["d2"])
    assert not store.maintain().rewritten
    clock.advance(3600)
    assert store.maintain().rewritten
    assert not store.maintain().rewritten
    store.commit("kb", [], [f"d{n}" for n in range(3, 45)])
    assert store.maintain().rewritten  # most of the file is free
    store.close()


def test_a_drop_that_was_cut_short_is_finished_by_upkeep(store: StoreWriter) -> None:
    store.commit("kb", [draft_of(f"d{n}", "x", "y") for n in range(200)], [])
    with store.transaction() as connection:  # what the first transaction of a drop does
        connection.execute("UPDATE kb SET name = NULL")
    assert store.reader.kbs() == ()
    assert store.reader.versions() == {}
    assert store.reader.check() == ()
    store.commit("kb", [draft_of("new", "z")], [])
    store.maintain()
    assert store.reader.check() == ()
    assert [info.documents for info in store.reader.kbs()] == [1]


def test_one_writer_per_folder(store: StoreWriter) -> None:
    with pytest.raises(StoreBusy):
        StoreWriter(store.folder)
    store.commit("kb", [draft_of("a", "x")], [])
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.commit("kb", [draft_of("b", "x")], [])
    with pytest.raises(Unavailable):
        store.reader.kb("kb")
    again = StoreWriter(store.folder)
    assert again.reader.version("kb") == 1
    again.close()


def test_a_reader_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        StoreReader(tmp_path)


def test_readers_see_whole_commits_while_a_writer_commits(tmp_path: Path) -> None:
    """Documents come and go in pairs; whoever reads sees both or none, at growing versions."""
    store = StoreWriter(tmp_path, StoreSettings(synchronous="normal"))
    store.commit("kb", [draft_of("left", "0"), draft_of("right", "0")], [])
    reader = StoreReader(tmp_path, StoreSettings(max_readers=3))
    done = threading.Event()
    problems: list[object] = []

    def read() -> None:
        last = 0
        while not done.is_set():
            changes = reader.changes("kb", 0)
            if len(changes.added) != 2 or changes.version < last:
                problems.append(changes)
            last = max(changes.version, reader.version("kb"))
            texts = {row.text for row in reader.rows("kb", changes.added)}
            if len(texts) > 1:
                problems.append(texts)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(1, 300):
        store.commit("kb", [draft_of("left", str(number)), draft_of("right", str(number))], [])
        if number % 50 == 0:
            store.maintain({"kb": number})
    done.set()
    for thread in threads:
        thread.join(timeout=30)
    assert problems == []
    assert reader.version("kb") == 300
    reader.close()
    store.close()


def test_connections_that_nobody_used_for_five_minutes_are_closed(store: StoreWriter) -> None:
    store.create("kb")
    clock = VirtualClock()
    pool = ReaderPool(store.folder, StoreSettings(), clock)
    with pool.snapshot() as first, pool.snapshot() as second:
        assert first is not second
    for _ in range(2):
        clock.advance(200)
        with pool.snapshot() as used:
            assert used is first  # the one that came back last
    # By now the other one has been idle for longer.
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        second.execute("SELECT 1")
    with pool.snapshot() as used, pool.snapshot() as other:
        assert used is first
        assert other is not second
    pool.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")
    with pytest.raises(Unavailable), pool.snapshot():
        pass


def test_open_readers_follow_the_rates_of_late(store: StoreWriter) -> None:
    store.create("kb")
    clock = VirtualClock()
    sizer = ConnectionSizer(ConnectionSettings(least=2, most=8, memory_s=5.0))
    pool = ReaderPool(store.folder, StoreSettings(), clock, sizer)

    def crowd(readers: int, seconds: float) -> int:
        """So many read at once; how many connections are open after it."""
        with ExitStack() as stack:
            for _ in range(readers):
                stack.enter_context(pool.snapshot())
            clock.advance(seconds)
        return len(pool._idle)

    assert crowd(6, 0.001) == 2, "a moment is not worth keeping"
    assert crowd(6, 60.0) == 8 - 2, "all six of the size that this rate is worth"
    for _ in range(20):
        clock.advance(10)
        after = crowd(1, 0.001)
    assert after == 2
    assert sizer.busy == pool._busy == 0
    pool.close()


def test_reads_wait_a_bounded_time(store: StoreWriter) -> None:
    store.create("kb")
    reader = StoreReader(store.folder, StoreSettings(max_readers=1, read_wait_ms=10))
    with reader._pool.snapshot(), pytest.raises(Unavailable):
        reader.kb("kb")
    assert reader.kb("kb").version == 0
    reader.close()


def test_chunk_texts_may_differ_from_their_span(store: StoreWriter) -> None:
    draft = msgspec.structs.replace(
        draft_of("a", "hello"), chunks=(ChunkDraft(0, 0, 3, "other", 1),)
    )
    store.commit("kb", [draft], [])
    [row] = store.reader.rows("kb", [1])
    assert row.text == "other"


POLL = """
import pathlib, sys, time
from forebay.store import StoreReader
reader = StoreReader(pathlib.Path(sys.argv[1]))
seen = 0
while seen < 5:
    version = reader.version("kb")
    if version != seen:
        seen = version
        texts = [row.text for row in reader.rows("kb", reader.changes("kb", seen - 1).added)]
        sys.stdout.write(f"{seen} {texts[0]}\\n")
        sys.stdout.flush()
    time.sleep(0.005)
"""


def test_another_process_sees_each_version(store: StoreWriter) -> None:
    store.commit("kb", [draft_of("a", "text 1")], [])
    reader = subprocess.Popen(
        [sys.executable, "-c", POLL, str(store.folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "1 text 1\n"
    for number in range(2, 6):
        store.commit("kb", [draft_of("a", f"text {number}")], [])
        began = SystemClock().now()
        assert reader.stdout.readline() == f"{number} text {number}\n"
        assert SystemClock().now() - began < 5  # 500 ms are promised; this machine is shared
        store.maintain({"kb": number})
    assert reader.wait(timeout=10) == 0
    reader.stdout.close()


def test_of_a_document_put_twice_the_last_counts(store: StoreWriter) -> None:
    assert store.commit("kb", [draft_of("a", "x"), draft_of("a")], []).embedded
    assert not store.commit("kb", [draft_of("a"), draft_of("a", "x")], []).embedded
