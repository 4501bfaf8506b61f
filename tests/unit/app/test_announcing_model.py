"""One folder: a writer that may die between any two steps, readers that look when they like.

No query that starts after an acknowledgement is answered from an older version, be it from an
index or from results that are kept under the version they were made from.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forebay.app.indexes import IndexSet
from forebay.app.serving_versions import ProcessVersions
from forebay.kernel.errors import NotFound
from forebay.store import StoreReader
from forebay.store.announced import Announced

KB = "kb"
READERS = 3
readers = st.integers(0, READERS - 1)


class Folder:
    """What is on disk: the record, and the files that the indexes show."""

    def __init__(self) -> None:
        self.record: int | None = 1
        self.shown: int | None = 1
        self.floor = 1

    def versions(self) -> dict[str, int]:
        return {} if self.record is None else {KB: self.record}


class Index:
    """A reader's index: it sees files when it refreshes."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.searched: int | None = None

    def version(self, _kb: str) -> int | None:
        return self.searched

    def refresh(self, _kb: str) -> int:
        self.searched = max(self.searched or 0, self._folder.shown or 0)
        return self.searched

    def drop(self, _kb: str) -> None:
        self.searched = None


class Query(NamedTuple):
    """Under way: what it may be answered from, and what had been acknowledged at its start."""

    reader: int
    version: int
    acknowledged: int
    drops: int


async def _never(_work: object) -> None:
    raise AssertionError("the model makes every step itself")


class Announcing(RuleBasedStateMachine):
    """``step``: idle -> committed -> shown -> announced -> idle (acknowledged)."""

    def __init__(self) -> None:
        super().__init__()
        self._place = tempfile.TemporaryDirectory()
        self.path = Path(self._place.name)
        self.folder = Folder()
        self.step = "idle"
        self.alive = True
        self.acknowledged: int | None = 1
        self.drops = 0
        self.kept: dict[int, int] = {}
        self.queries: list[Query] = []
        self.table = Announced(self.path, writable=True)
        self.table.announce(KB, 1)
        self.processes = [self._reader() for _ in range(READERS)]

    def teardown(self) -> None:
        self._place.cleanup()

    def _reader(self) -> tuple[Index, ProcessVersions]:
        index, table = Index(self.folder), Announced(self.path, writable=False)
        record = cast("StoreReader", self.folder)
        return index, ProcessVersions(cast("IndexSet", index), table, record, _never)

    # The writer

    def _at(self, step: str) -> bool:
        return self.alive and self.step == step

    @precondition(lambda self: self._at("idle"))
    @rule(drop=st.booleans())
    def commit(self, drop: bool) -> None:
        if drop and self.folder.record is not None:
            self.folder.floor, self.folder.record = self.folder.record + 1, None
            self.drops += 1
        else:
            self.folder.record = (self.folder.record or self.folder.floor) + 1
        self.step = "committed"

    @precondition(lambda self: self._at("committed"))
    @rule()
    def show(self) -> None:
        self.folder.shown = self.folder.record
        self.step = "shown"

    @precondition(lambda self: self._at("shown"))
    @rule()
    def announce(self) -> None:
        if self.folder.record is None:
            self.table.gone(KB)
        else:
            self.table.announce(KB, self.folder.record)
        self.step = "announced"

    @precondition(lambda self: self._at("announced"))
    @rule()
    def acknowledge(self) -> None:
        self.acknowledged = self.folder.record
        self.step = "idle"

    @precondition(lambda self: self.alive)
    @rule()
    def die(self) -> None:
        self.alive, self.step = False, "idle"

    @precondition(lambda self: not self.alive)
    @rule()
    def begin_again(self) -> None:
        """As a writer does when it opens the folder."""
        self.table = Announced(self.path, writable=True)
        self.folder.shown = self.folder.record
        if self.folder.record is not None:
            self.table.announce(KB, self.folder.record)
        self.table.only(self.folder.versions())
        # Who asks the new writer is told what the record holds.
        self.alive, self.acknowledged = True, self.folder.record

    @precondition(lambda self: self._at("idle"))
    @rule()
    def another_kb(self) -> None:
        """Slots of dropped kbs go to others."""
        self.table.announce("another", 1)
        self.table.gone("another")

    # Readers

    @rule(reader=readers)
    def refresh(self, reader: int) -> None:
        index, _ = self.processes[reader]
        if self.folder.record is not None and self.folder.shown is not None:
            index.refresh(KB)

    @rule(reader=readers)
    def start_anew(self, reader: int) -> None:
        self.processes[reader] = self._reader()

    @rule(reader=readers)
    def ask(self, reader: int) -> None:
        _, versions = self.processes[reader]
        served = versions.current(KB)
        version = served.version if served is not None else None
        if version is None:
            try:
                version = versions._bring_up(KB)
            except NotFound:
                assert self.folder.record is None
                return
        if version is None:
            assert self.step == "committed" or not self.alive, "nobody waits for nothing"
            return
        assert self.acknowledged is not None or self.step != "idle" or not self.alive, "it is gone"
        self.queries.append(Query(reader, version, self.acknowledged or 0, self.drops))

    @precondition(lambda self: self.queries)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        query = self.queries.pop(data.draw(st.integers(0, len(self.queries) - 1)))
        index, _ = self.processes[query.reader]
        found = self.kept.get(query.version)
        if found is None:
            found = index.searched
            if found is None:  # dropped meanwhile
                return
            if not found and self.drops > query.drops:
                # And made anew, of which the files show nothing yet.
                return
            self.kept[found] = found
        assert found >= query.acknowledged

    @invariant()
    def what_may_be_served_is_not_older_than_what_was_acknowledged(self) -> None:
        for _, versions in self.processes:
            served = versions.current(KB)
            if served is not None:
                assert served.version >= (self.acknowledged or 0)
                assert self.acknowledged is not None or self.folder.record is not None, "dropped"


Announcing.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnnouncing = Announcing.TestCase
