"""What came to an index and what left it, kept for a while: enough to score it for any query.

Columns grow at their end, and what was handed out is never written again: readers hold a view and
need no lock. Bounded in chunks and in versions; whoever asks for more is told that it is not known.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.kernel.documents import ChangeSet
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.counts import (
    Floats,
    Mask,
    packed_chinese,
    packed_counts,
    packed_hashes,
    packed_length,
)
from forebay.retrieval.fusion import Ids
from forebay.retrieval.keys import row_keys
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.segments import Floats32
from forebay.retrieval.vector_view import VectorView

log = logging.getLogger(__name__)

ROWS_MAX = 8192
"""Times a chunk came or got a vector, and removals, that are kept; some 40 MB when full."""
VERSIONS_MAX = 16_384
CHANGE_CHUNKS_MAX = 512
"""A change of more chunks is not kept: noting it would hold up whoever searches."""

S = TypeVar("S", bound=np.generic)
_COUNTS = 256
"""A posting is a row times this, plus how often the chunk holds the term."""
_NOTHING: array[int] = array("I")


class Column(Generic[S]):
    """A growing array; ``view`` stays as it is whatever is appended."""

    def __init__(self, dtype: type[S], width: int | None = None) -> None:
        self._tail: tuple[int, ...] = () if width is None else (width,)
        self._cells = np.empty((0, *self._tail), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> npt.NDArray[S]:
        """What has been appended so far."""
        return self._cells[: self._length]

    def drop(self, count: int) -> None:
        """Forget the first ``count``."""
        self._cells = self.view[count:].copy()
        self._length = len(self._cells)

    def extend(self, values: npt.ArrayLike) -> None:
        """Append ``values``."""
        fresh = np.asarray(values, self._cells.dtype)
        end = self._length + len(fresh)
        if end > len(self._cells):
            grown = np.empty((max(16, end, 2 * len(self._cells)), *self._tail), self._cells.dtype)
            grown[: self._length] = self.view
            self._cells = grown
        self._cells[self._length : end] = fresh
        self._length = end


class Part:
    """Which rows from ``begin`` on hold a term: of half of what is kept, forgotten at once."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self._postings: dict[int, array[int]] = {}

    def add(self, row: int, facts: bytes) -> None:
        """Note the terms of a chunk; rows ascend."""
        at = (row - self.begin) * _COUNTS
        known = self._postings
        for term, count in zip(packed_hashes([facts]).tolist(), packed_counts(facts), strict=True):
            found = known.get(term)
            if found is None:
                found = known[term] = array("I")
            found.append(at + count)

    def lists(self, terms: Sequence[int], first: int) -> list[array[int]]:
        """Return copies of the postings of each term from row ``begin + first`` on: at any moment
        another thread may append to them.
        """
        least, known = first * _COUNTS, self._postings
        found = [known.get(term, _NOTHING) for term in terms]
        return [each[bisect_left(each, least) :] for each in found]


class Held(msgspec.Struct, frozen=True):
    """Which chunks hold which of some terms, by their rows and places, and how often."""

    rows: Ids
    places: Ids
    counts: Ids


class Comers(msgspec.Struct, frozen=True):
    """Chunks that came or got a vector after a version; one row for each time.

    ``living`` is False in all but a living chunk's last row. ``renewed``: it lived before, and its
    vector is what is new. ``lengths`` are in terms. Row 0 is ``made[place]``, and the log's row
    number ``first``.
    """

    ids: Ids
    living: Mask
    embedded: Mask
    renewed: Mask
    lengths: Floats
    chinese: Mask
    vectors: Floats32
    made: Sequence[Row]
    place: int
    parts: Sequence[Part]
    first: int

    def holding(self, terms: Sequence[int]) -> Held:
        """Return which of the chunks hold which of ``terms``, given by their hashes."""
        rows, places, counts = [], [], []
        for part in self.parts:
            found = part.lists(terms, max(0, self.first - part.begin))
            sizes = [len(each) for each in found]
            packed = np.frombuffer(b"".join(found), np.uint32).astype(np.int64)
            rows.append(packed // _COUNTS + (part.begin - self.first))
            places.append(np.repeat(np.arange(len(found)), sizes))
            counts.append(packed % _COUNTS)
        row = np.concatenate(rows)
        # What was appended after this view was made is none of its.
        inside = row < len(self.ids)
        return Held(row[inside], np.concatenate(places)[inside], np.concatenate(counts)[inside])

    def meets(self, row: int, demands: Sequence[Sequence[str]]) -> bool:
        """Whether a chunk, by its row, may be seen."""
        keys = self.made[self.place + row].keys
        return all(not keys.isdisjoint(wanted) for wanted in demands)


class LoggedChanges:
    """The log up to ``version``; immutable."""

    def __init__(self, log: ChangeLog, version: int, chunks: int) -> None:
        rows = log.rows
        self.version = version
        self.chunks = chunks
        self.fingerprint = log.fingerprint
        self._versions = log.versions.view
        self._removed_at, self._removed = log.removed_at.view, log.removed.view
        self._at, self._ids, self._born = rows.at.view, rows.ids.view, rows.born.view
        self._living = rows.living.view.copy()
        self._embedded, self._vectors = rows.embedded.view, rows.vectors.view
        self._lengths, self._chinese = rows.lengths.view, rows.chinese.view
        self._made, self._parts, self._begin = rows.made, rows.parts, rows.begin

    def knows(self, since: int) -> bool:
        """Whether all that happened after ``since`` is here; only versions that were shown are."""
        place = int(self._versions.searchsorted(since))
        return place < len(self._versions) and int(self._versions[place]) == since

    def removed(self, since: int) -> frozenset[int]:
        """The chunks that left after ``since``."""
        first = int(self._removed_at.searchsorted(since, side="right"))
        return frozenset(self._removed[first:].tolist())

    def comers(self, since: int) -> Comers | None:
        """The chunks that came or got a vector after ``since``; None when there are none."""
        first = int(self._at.searchsorted(since, side="right"))
        if first == len(self._ids):
            return None
        begin = self._begin + first
        return Comers(
            self._ids[first:],
            self._living[first:],
            self._embedded[first:],
            self._born[first:] <= since,
            self._lengths[first:],
            self._chinese[first:],
            self._vectors[first:],
            self._made,
            first,
            [p for p in self._parts if p is self._parts[-1] or begin < self._parts[-1].begin],
            begin,
        )


class Row(msgspec.Struct, frozen=True):
    """What the log keeps of a chunk beside its vector; ``born``: the version it came with."""

    chunk_id: int
    born: int
    facts: bytes
    keys: frozenset[str]


class _Rows:
    """Chunks in the order of the versions in which they came or got a vector.

    ``begin`` is the number of the first row that is kept; numbers go on for ever.
    """

    def __init__(self, dimensions: int) -> None:
        self.at, self.ids, self.born = Column(np.int64), Column(np.int64), Column(np.int64)
        self.living, self.embedded = Column(np.bool_), Column(np.bool_)
        self.vectors = Column(np.float32, dimensions)
        self.lengths, self.chinese = Column(np.float64), Column(np.bool_)
        self.made: list[Row] = []
        self.begin = 0
        self.parts: tuple[Part, ...] = (Part(0),)
        self._row_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.made)

    def known(self, chunk_id: int) -> Row | None:
        """The last row of a chunk, dead or alive."""
        row = self._row_of.get(chunk_id)
        return None if row is None else self.made[row - self.begin]

    def extend(self, rows: Sequence[Row], version: int, vectors: Floats32, embedded: Mask) -> None:
        """Append rows; earlier ones of the same chunks are so no more."""
        self.bury([row.chunk_id for row in rows])
        for number, row in enumerate(rows, self.begin + len(self)):
            self.parts[-1].add(number, row.facts)
            self._row_of[row.chunk_id] = number
        self.at.extend(np.full(len(rows), version))
        self.ids.extend([row.chunk_id for row in rows])
        self.born.extend([row.born for row in rows])
        self.living.extend(np.ones(len(rows), np.bool_))
        self.embedded.extend(embedded)
        self.vectors.extend(vectors)
        self.lengths.extend([packed_length(row.facts) for row in rows])
        self.chinese.extend([packed_chinese(row.facts) for row in rows])
        self.made += rows

    def bury(self, chunk_ids: Sequence[int]) -> None:
        """Note that the rows of these chunks tell no longer how they are."""
        rows = [self._row_of[i] - self.begin for i in chunk_ids if i in self._row_of]
        self.living.view[rows] = False

    def next_part(self, rows_max: int) -> int | None:
        """Once half of ``rows_max`` is new, forget the older half; return its last version."""
        if self.begin + len(self) - self.parts[-1].begin < rows_max // 2:
            return None
        count = self.parts[-1].begin - self.begin
        last = int(self.at.view[count - 1]) if count else None
        columns: tuple[Column[Any], ...] = (
            *(self.at, self.ids, self.born, self.living, self.embedded),
            *(self.vectors, self.lengths, self.chinese),
        )
        for column in columns:
            column.drop(count)
        self.begin += count
        self.made = self.made[count:]
        self.parts = (self.parts[-1], Part(self.begin + len(self)))
        self._row_of = {i: row for i, row in self._row_of.items() if row >= self.begin}
        return last


class ChangeLog:
    """One index's; calls are serialised by the owner, ``view`` is for everyone.

    ``note`` is to be called with each state that is shown. Whatever makes the log unsure of what
    happened (the record does not know, too much at once, other vectors) begins it anew.
    """

    def __init__(
        self,
        feed: IndexFeed,
        kb: str,
        *,
        rows_max: int = ROWS_MAX,
        versions_max: int = VERSIONS_MAX,
    ) -> None:
        self._feed = feed
        self._kb = kb
        self._rows_max = rows_max
        self._versions_max = versions_max
        self.view: LoggedChanges | None = None
        self._begin(None, 0)

    def _begin(self, fingerprint: str | None, dimensions: int) -> None:
        self.fingerprint = fingerprint
        self._dimensions = dimensions
        self.versions = Column(np.int64)
        self.removed_at, self.removed = Column(np.int64), Column(np.int64)
        self.rows = _Rows(dimensions)

    def note(self, version: int, lexical: LexicalView, vectors: VectorView) -> None:
        """Take in what led to the state that is shown from now on."""
        before = self.view
        same = (self.fingerprint, self._dimensions) == (vectors.fingerprint, vectors.dimensions)
        if before is not None and same:
            if version == before.version:
                return
            try:
                changes = self._feed.changes(self._kb, before.version)
                # The record is ahead of what is shown: with the next state both will agree.
                if changes.version != version or vectors.version != version:
                    return
                if self._append(changes, lexical, vectors):
                    self.view = LoggedChanges(self, version, lexical.chunks)
                    return
            # Pruned changes, damaged files: whoever serves meets and tells them, too.
            except ForebayError as error:
                log.info("%s: changes are remembered from now on (%s)", self._kb, error.code)
            # A log that is wrong costs cached results; it must not keep a change from being shown.
            except Exception:
                log.exception("%s: changes could not be remembered", self._kb)
        self._begin(vectors.fingerprint, vectors.dimensions)
        self.versions.extend([version])
        self.view = LoggedChanges(self, version, lexical.chunks)

    def _append(self, changes: ChangeSet, lexical: LexicalView, vectors: VectorView) -> bool:
        """False when the log cannot go on."""
        if len(changes.added) + len(changes.embedded) + len(changes.removed) > CHANGE_CHUNKS_MAX:
            return False
        came = sorted({*changes.added, *changes.embedded})
        rows = self._rows_of(came, changes, lexical)
        if rows is None:
            return False
        stored, embedded = vectors.stored(np.array(came, np.int64))
        self.rows.bury(changes.removed)
        self.rows.extend(rows, changes.version, stored, embedded)
        self.removed_at.extend(np.full(len(changes.removed), changes.version))
        self.removed.extend(changes.removed)
        self.versions.extend([changes.version])
        self._forget()
        return True

    def _rows_of(
        self, came: Sequence[int], changes: ChangeSet, lexical: LexicalView
    ) -> list[Row] | None:
        """Return what is to be kept of chunks, mostly from memory; None: they are not all there."""
        added, recent = frozenset(changes.added), lexical.recent.added
        known = {i: logged for i in came if (logged := self.rows.known(i)) is not None}
        missing = [i for i in came if i not in known]
        keys = {i: recent[i].keys for i in missing if i in recent}
        for row in self._feed.rows(self._kb, [i for i in missing if i not in recent]):
            keys[row.chunk_id] = frozenset(row_keys(row))
        for chunk_id, facts in zip(missing, lexical.facts(missing), strict=True):
            if facts is None or chunk_id not in keys:
                return None
            # What is not remembered came before all that is.
            born = changes.version if chunk_id in added else 0
            known[chunk_id] = Row(chunk_id, born, facts, keys[chunk_id])
        return [known[i] for i in came]

    def _forget(self) -> None:
        """Keep the bounds: what happened up to a version goes, and that version stays known."""
        cuts = [self.rows.next_part(self._rows_max)]
        for column, bound in (
            (self.versions, self._versions_max),
            (self.removed_at, self._rows_max),
        ):
            if len(column) > bound:
                cuts.append(int(column.view[len(column) - bound // 2 - 1]))
        known = [cut for cut in cuts if cut is not None]
        if not known:
            return
        self.versions.drop(int(self.versions.view.searchsorted(max(known))))
        gone = int(self.removed_at.view.searchsorted(max(known), side="right"))
        self.removed_at.drop(gone)
        self.removed.drop(gone)
