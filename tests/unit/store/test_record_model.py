"""Random changes, crashes and upkeep against the record in memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.errors import Gone, NotFound
from forebay.kernel.stages import EmbedderSpec
from forebay.store import StoreSettings, StoreWriter
from forebay.testing.feed_suite import unit_vectors
from forebay.testing.store import MemoryFeed

KBS = ("handbook", "制度")
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def drafts(draw: st.DrawFn) -> DocumentDraft:
    texts = draw(st.lists(words, max_size=4))
    chunks, at = [], 0
    for ordinal, text in enumerate(texts):
        path = tuple(draw(st.lists(words, max_size=2)))
        chunks.append(
            ChunkDraft(ordinal, at, at + len(text), text, ordinal, ordinal or None, path, text[:2])
        )
        at += len(text)
    return DocumentDraft(
        document_id=draw(st.sampled_from(["a", "b", "c", "文件"])),
        source="s",
        content_hash="|".join(texts) + repr([chunk.heading_path for chunk in chunks]),
        title=draw(st.sampled_from(["", "标题"])),
        text="".join(texts),
        chunks=tuple(chunks),
        tags=tuple(draw(st.lists(words, max_size=1))),
        metadata=draw(st.dictionaries(words, words, max_size=1)),
    )


class RecordMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-store-"))
        self.model = MemoryFeed()
        self.options = StoreSettings(synchronous="normal")

    @initialize()
    def open(self) -> None:
        self.store = StoreWriter(self.folder, self.options)

    @rule(
        kb=st.sampled_from(KBS),
        puts=st.lists(drafts(), max_size=3),
        removes=st.lists(st.sampled_from(["a", "b", "c", "文件"]), max_size=2),
    )
    def commit(self, kb: str, puts: list[DocumentDraft], removes: list[str]) -> None:
        before = self.store.reader.versions().get(kb)
        try:
            expected = self.model.commit(kb, puts, removes)
        except NotFound:
            return
        receipt = self.store.commit(kb, puts, removes)
        assert receipt == expected
        if before is not None:
            changed = any(outcome != "unchanged" for _, outcome in receipt.outcomes)
            assert receipt.version == before + changed

    @rule(kb=st.sampled_from(KBS), data=st.data())
    def store_vectors(self, kb: str, data: st.DataObject) -> None:
        if kb not in self.store.reader.versions():
            return
        state = self.store.reader.embedder(kb)
        ids = [row.chunk_id for row in self.model.pending(kb, 100)]
        some = data.draw(st.lists(st.sampled_from([*ids, 10**6]), unique=True))
        dimensions = state.spec.dimensions if state is not None else 8
        vectors = unit_vectors(some, dimensions)
        fingerprint = state.spec.fingerprint if state is not None else "first"
        version = self.model.store_vectors(kb, vectors, fingerprint)
        assert self.store.store_vectors(kb, vectors, fingerprint) == version

    @rule(kb=st.sampled_from(KBS), dimensions=st.sampled_from([4, 8]))
    def reembed(self, kb: str, dimensions: int) -> None:
        if kb in self.store.reader.versions():
            spec = EmbedderSpec("model", f"f{dimensions}", dimensions, 512)
            assert self.store.begin_reembed(kb, spec) == self.model.begin_reembed(kb, spec)

    @rule(kb=st.sampled_from(KBS))
    def drop(self, kb: str) -> None:
        if kb in self.store.reader.versions():
            self.store.drop(kb)
            self.model.drop(kb)

    @rule(kb=st.sampled_from(KBS), back=st.integers(0, 3))
    def maintain(self, kb: str, back: int) -> None:
        if kb in self.store.reader.versions():
            oldest = max(0, self.store.reader.version(kb) - back)
            self.store.maintain({kb: oldest})
            self.model.prune(kb, oldest)

    @rule()
    def crash_in_a_transaction_and_reopen(self) -> None:
        """What a killed process leaves: the lock free, a transaction open, nothing said."""
        with self.store.outside_transaction() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE kb SET version = version + 7")
            connection.execute("DELETE FROM chunk")
        copy = Path(tempfile.mkdtemp(prefix="forebay-store-"))
        for file in self.folder.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy)
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = copy
        self.store = StoreWriter(self.folder, self.options)

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def same_as_the_model(self) -> None:
        reader = self.store.reader
        assert reader.check(deep=False) == ()
        for kb in reader.versions():
            info, expected = reader.kb(kb), self.model.kb(kb)
            assert (info.version, info.documents, info.chunks, info.characters) == (
                expected.version,
                expected.documents,
                expected.chunks,
                expected.characters,
            )
            assert info.embedded_chunks == expected.embedded_chunks
            for since in range(max(0, info.version - 3), info.version + 2):
                assert self.changes(self.store, kb, since) == self.changes(self.model, kb, since)
            ids = reader.changes(kb, 0).added
            assert reader.rows(kb, ids[::-1]) == self.model.rows(kb, ids[::-1])
            assert reader.vectors(kb, ids) == self.model.vectors(kb, ids)
            assert reader.pending(kb, 3) == self.model.pending(kb, 3)
            for name in ("a", "文件", "nobody's"):
                assert reader.pending(kb, 9, name) == self.model.pending(kb, 9, name)

    @staticmethod
    def changes(record: StoreWriter | MemoryFeed, kb: str, since: int) -> object:
        feed = record.reader if isinstance(record, StoreWriter) else record
        try:
            return feed.changes(kb, since)
        except Gone as error:
            return error.code

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestRecordMachine = RecordMachine.TestCase
TestRecordMachine.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
