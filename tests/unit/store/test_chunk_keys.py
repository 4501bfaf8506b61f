"""Keys of chunks: what keeps them, what retires them, what can be read under them and for whom."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay.kernel.chunk_keys import ChunkKey, KeyedChunk, document_digest, parse_key
from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import NotFound
from forebay.store import StoreSettings, StoreWriter
from forebay.testing.feed_suite import draft_of
from tests.unit.store import schema_v1
from tests.unit.store.test_record import folder_bytes

NONE = ChunkKey(bytes(16), 0, 1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1000.0)


@pytest.fixture
def kept(tmp_path: Path, clock: VirtualClock) -> Iterator[StoreWriter]:
    with closing(StoreWriter(tmp_path / "keyed", clock=clock)) as store:
        yield store


def put(store: StoreWriter, *texts: str, **fields: object) -> list[ChunkKey]:
    store.commit("kb", [draft_of("d", *texts, **fields)], [])
    return list(store.reader.chunk_keys("kb", "d"))


def of(store: StoreWriter, key: ChunkKey) -> KeyedChunk:
    return store.reader.chunk("kb", key)


def text_of(store: StoreWriter, key: ChunkKey) -> str | None:
    found = of(store, key).kept
    return None if found is None else found.text


def test_a_key_is_spelt_and_read_back() -> None:
    key = ChunkKey(document_digest("kb", "d", "t", "hash"), 7, 12)
    assert str(key) == f"doc-{key.digest.hex()}-chunk-7-v12"
    assert parse_key(str(key)) == key
    for wrong in ("", "doc-00-chunk-1-v1", f"{key}0x", str(key).upper(), str(key) + "\n"):
        assert parse_key(wrong) is None
    others = {document_digest(*"abcd"), document_digest("a", "bc", "", "d"), key.digest}
    assert len(others) == 3


def test_keys_are_there_with_the_commit(kept: StoreWriter) -> None:
    keys = put(kept, "one", "two")
    assert [(key.ordinal, key.version) for key in keys] == [(0, 1), (1, 1)]
    assert [text_of(kept, key) for key in keys] == ["one", "two"]
    found = of(kept, keys[1])
    assert (found.state, found.document_id, found.readers) == ("living", "d", ((),))
    assert found.chunk is not None and found.chunk.ordinal == 1
    with pytest.raises(NotFound):
        of(kept, NONE)


def test_only_what_changed_gets_new_keys(kept: StoreWriter) -> None:
    one, two, three = put(kept, "one", "two", "three")
    first, new, changed, last = put(kept, "one", "new", "2", "three")
    assert (first, last) == (one, three)
    assert (new.version, changed.version, new.ordinal, changed.ordinal) == (2, 2, 1, 2)
    # What stands where the old one stood is where to look; the old text can be read all the same.
    old = of(kept, two)
    assert (old.state, old.document_id, old.successor) == ("superseded", "d", new)
    assert text_of(kept, two) == "two" and text_of(kept, changed) == "2"
    # A kept key outlives any number of changes, wherever its chunk moves.
    put(kept, "0", "three", "one")
    keys = put(kept, "three", "0", "one", tags=("t",))
    assert (keys[0], keys[2]) == (three, one)
    assert put(kept, "three", "0", "one", tags=("t",)) == keys
    with pytest.raises(NotFound):  # the key that its place would have, had it not kept its own
        of(kept, ChunkKey(keys[1].digest, 0, 4))


def test_equal_chunks_keep_their_keys_in_order(kept: StoreWriter) -> None:
    a, b, c = put(kept, "x", "x", "y")
    assert put(kept, "x", "y")[:2] == [a, c]
    assert (of(kept, b).state, of(kept, b).successor) == ("superseded", None)
    assert len({*put(kept, "x", "x", "x"), b}) == 4


def test_another_title_makes_every_text_another(kept: StoreWriter) -> None:
    [old] = put(kept, "x")
    [new] = put(kept, "x", title="Title")
    assert new != old and of(kept, old).successor == new


def test_a_removed_document_is_deprecated_at_once(kept: StoreWriter) -> None:
    [old] = put(kept, "first SECRET", groups=("staff",))
    [new] = put(kept, "SECOND", groups=("staff",))
    kept.commit("kb", [], ["d"])
    for key in (old, new):
        found = of(kept, key)
        assert (found.state, found.document_id, found.successor) == ("deprecated", None, None)
        assert (found.kept, found.readers) == (None, (("staff",),))
    kept.maintain()
    assert b"SECRET" not in folder_bytes(kept.folder)
    # One with its name is another: what was removed does not come back.
    [again] = put(kept, "SECOND", groups=("staff",))
    assert again != new and of(kept, new).state == "deprecated"


@pytest.mark.parametrize(
    ("before", "after", "readable"),
    [
        ((), ("hr",), False),
        (("hr", "it"), ("hr",), False),
        (("hr",), (), True),
        (("hr",), ("hr", "it"), True),
        ((), (), True),
    ],
)
def test_a_withdrawn_right_ends_old_texts(
    kept: StoreWriter, before: tuple[str, ...], after: tuple[str, ...], *, readable: bool
) -> None:
    [first] = put(kept, "first", groups=before)
    [second] = put(kept, "second", groups=before)
    put(kept, "third", groups=after)
    states = {of(kept, key).state for key in (first, second)}
    assert states == {"superseded" if readable else "deprecated"}
    assert of(kept, first).readers == (before, after)


def test_old_texts_end_after_their_time(kept: StoreWriter, clock: VirtualClock) -> None:
    [old] = put(kept, "SECRET")
    put(kept, "new")
    clock.advance(72 * 3600.0)
    kept.maintain()
    assert text_of(kept, old) == "SECRET"
    clock.advance(1.0)
    kept.maintain()
    with pytest.raises(NotFound):
        of(kept, old)
    assert b"SECRET" not in folder_bytes(kept.folder)


def test_there_is_a_bound(tmp_path: Path) -> None:
    options = StoreSettings(retired_keys_max=3)
    with closing(StoreWriter(tmp_path, options)) as store:
        keys = [put(store, f"text {number}")[0] for number in range(8)]
        store.maintain()
        gone = [number for number in range(7) if not readable(store, keys[number])]
        assert gone == [0, 1, 2, 3]


def test_no_text_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    with closing(StoreWriter(tmp_path, StoreSettings(retired_keys_s=0.0))) as store:
        [old] = put(store, "old")
        [new] = put(store, "new")
        assert (of(store, old).state, of(store, old).successor) == ("deprecated", new)


def readable(store: StoreWriter, key: ChunkKey) -> bool:
    try:
        return of(store, key).kept is not None
    except NotFound:
        return False


def test_a_commit_that_changes_a_document_twice_retires_what_lived(kept: StoreWriter) -> None:
    [old] = put(kept, "old")
    kept.commit("kb", [draft_of("d", "between"), draft_of("d", "new")], [])
    [new] = kept.reader.chunk_keys("kb", "d")
    assert (new.version, of(kept, old).state) == (2, "superseded")
    between = ChunkKey(document_digest("kb", "d", "", "between"), 0, 2)
    with pytest.raises(NotFound):
        of(kept, between)
    assert kept.reader.check() == ()


def test_a_dropped_kb_takes_its_keys_along(kept: StoreWriter) -> None:
    [old] = put(kept, "old")
    [new] = put(kept, "new")
    kept.drop("kb")
    put(kept, "old")
    for key in (old, new):
        with pytest.raises(NotFound):
            of(kept, key)
    with kept.transaction() as connection:
        [[rows]] = connection.execute("SELECT count(*) FROM retired_key")
        assert rows == 0


def test_an_old_store_gets_keys(tmp_path: Path) -> None:
    schema_v1.build(tmp_path)
    with closing(StoreWriter(tmp_path)) as store:
        keys = store.reader.chunk_keys("handbook", "leave.md")
        digest = document_digest("handbook", "leave.md", "Leave", "hash")
        assert keys == (ChunkKey(digest, 0, 2), ChunkKey(digest, 1, 2))
        found = store.reader.chunk("handbook", keys[0])
        assert found.kept is not None and found.kept.text == "Leave: 15 days."


def test_what_is_known_since_a_version(kept: StoreWriter) -> None:
    put(kept, "one", "same")
    before = kept.reader.known("kb", 0)
    put(kept, "two", "same")
    put(kept, "three", "same")
    kept.commit("kb", [draft_of("e", "x")], [])
    after = kept.reader.known("kb", before.version)
    assert (before.documents, len(before.digests), after.version) == (("d",), 1, 4)
    # Also of a version that nobody looked at, and of keys that were kept.
    assert set(after.documents) == {"d", "e"} and len(after.digests) == 4


class KeyMachine(RuleBasedStateMachine):
    """Against texts by key: a key never names another text, and no removed text can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-keys-"))
        self.store = StoreWriter(self.folder, StoreSettings(synchronous="normal"))
        self.texts: dict[ChunkKey, str] = {}
        self.documents: dict[str, dict[ChunkKey, str]] = {"a": {}, "b": {}}
        self.readable: dict[str, set[ChunkKey]] = {"a": set(), "b": set()}

    @rule(
        name=st.sampled_from("ab"),
        texts=st.lists(st.sampled_from(["x", "y", "z", "w"]), max_size=5),
    )
    def put(self, name: str, texts: list[str]) -> None:
        before = self.documents[name]
        receipt = self.store.commit("kb", [draft_of(name, *texts)], [])
        keys = self.store.reader.chunk_keys("kb", name)
        assert len(set(keys)) == len(keys) == len(texts)
        now = dict(zip(keys, texts, strict=True))
        for key, text in now.items():
            assert self.texts.setdefault(key, text) == text
            # New keys are of this very version, and only where no equal chunk was left to keep.
            assert key in before or key.version == receipt.version
        for text in set(texts):
            had = sum(old == text for old in before.values())
            kept = sum(text == now[key] for key in before.keys() & now.keys())
            assert kept == min(had, texts.count(text))
        self.readable[name] |= before.keys()
        self.documents[name] = now

    @rule(name=st.sampled_from("ab"))
    def remove(self, name: str) -> None:
        if "kb" in self.store.reader.versions():
            self.store.commit("kb", [], [name])
            self.documents[name] = {}
            self.readable[name] = set()

    @invariant()
    def as_modelled(self) -> None:
        assert self.store.reader.check(deep=False) == ()
        living = {key for keys in self.documents.values() for key in keys}
        readable = living.union(*self.readable.values())
        for key, text in self.texts.items():
            found = of(self.store, key)
            assert (found.state == "living") == (key in living)
            assert (found.kept.text if found.kept else None) == (text if key in readable else None)
            if found.successor is not None:
                assert found.successor in self.texts

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestKeyMachine = KeyMachine.TestCase
TestKeyMachine.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
