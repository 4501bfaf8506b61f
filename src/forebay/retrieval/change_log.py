"""What came to an index and what left it, kept for a while: enough to score it for any query.

Columns grow at their end, and what was handed out is never written again: readers hold a view and
need no lock. Bounded in chunks and in versions; whoever asks for more is told that it is not known.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

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

CHUNKS_MAX = 4096
"""Chunks kept, living and removed each; some six megabytes when full."""
VERSIONS_MAX = 16_384
CHANGE_CHUNKS_MAX = 1024
"""A change of more chunks is not kept: nearly every query is touched by it."""

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


class Held(msgspec.Struct, frozen=True):
    """Which chunks hold which of some terms, by their rows and places, and how often."""

    rows: Ids
    places: Ids
    counts: Ids


class Comers(msgspec.Struct, frozen=True):
    """Chunks that came or got a vector after a version; one row for each time.

    ``living`` is False in all but a living chunk's last row. ``renewed``: it lived before, and its
    vector is what is new. ``lengths`` are in terms.
    """

    ids: Ids
    living: Mask
    embedded: Mask
    renewed: Mask
    lengths: Floats
    chinese: Mask
    vectors: Floats32
    keys: Sequence[frozenset[str]]
    postings: Mapping[int, array[int]]
    first: int

    def holding(self, terms: Sequence[int]) -> Held:
        """Return which of the chunks hold which of ``terms``, given by their hashes."""
        least = self.first * _COUNTS
        lists = [self.postings.get(term, _NOTHING) for term in terms]
        # Copies: the log may be appended to, in another thread, at any moment.
        lists = [found[bisect_left(found, least) :] for found in lists]
        places = np.repeat(np.arange(len(lists)), [len(found) for found in lists])
        packed = np.frombuffer(b"".join(lists), np.uint32).astype(np.int64)
        rows = packed // _COUNTS - self.first
        inside = rows < len(self.ids)
        return Held(rows[inside], places[inside], (packed % _COUNTS)[inside])

    def meets(self, row: int, demands: Sequence[Sequence[str]]) -> bool:
        """Whether a chunk, by its row, may be seen."""
        keys = self.keys[self.first + row]
        return all(not keys.isdisjoint(wanted) for wanted in demands)


class LoggedChanges:
    """The log up to ``version``; immutable."""

    def __init__(self, log: ChangeLog, version: int, chunks: int) -> None:
        self.version = version
        self.chunks = chunks
        self.fingerprint = log.fingerprint
        self._versions = log.versions.view
        self._removed = (log.removed_at.view, log.removed.view)
        self._rows = log.rows.view()
        self._living = log.living.view.copy()

    def knows(self, since: int) -> bool:
        """Whether all that happened after ``since`` is here; only versions that were shown are."""
        place = int(self._versions.searchsorted(since))
        return place < len(self._versions) and int(self._versions[place]) == since

    def removed(self, since: int) -> frozenset[int]:
        """The chunks that left after ``since``."""
        at, ids = self._removed
        return frozenset(ids[at.searchsorted(since, side="right") :].tolist())

    def comers(self, since: int) -> Comers | None:
        """The chunks that came or got a vector after ``since``; None when there are none."""
        rows = self._rows
        first = int(rows.at.searchsorted(since, side="right"))
        if first == len(rows.ids):
            return None
        return Comers(
            rows.ids[first:],
            self._living[first:],
            rows.embedded[first:],
            rows.born[first:] <= since,
            rows.lengths[first:],
            rows.chinese[first:],
            rows.vectors[first:],
            rows.keys,
            rows.postings,
            first,
        )


class _RowsView(msgspec.Struct, frozen=True):
    at: Ids
    ids: Ids
    born: Ids
    embedded: Mask
    vectors: Floats32
    lengths: Floats
    chinese: Mask
    keys: Sequence[frozenset[str]]
    postings: Mapping[int, array[int]]


class Row(msgspec.Struct, frozen=True):
    """What the log keeps of a chunk beside its vector; ``born``: the version it came with."""

    chunk_id: int
    born: int
    facts: bytes
    keys: frozenset[str]


class _Rows:
    """Chunks in the order of the versions in which they came or got a vector."""

    def __init__(self, dimensions: int) -> None:
        self.at, self.ids, self.born = Column(np.int64), Column(np.int64), Column(np.int64)
        self.embedded, self.vectors = Column(np.bool_), Column(np.float32, dimensions)
        self._lengths, self._chinese = Column(np.float64), Column(np.bool_)
        self.made: list[Row] = []
        self._keys: list[frozenset[str]] = []
        self._postings: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self.made)

    def extend(
        self, rows: Sequence[Row], versions: npt.ArrayLike, vectors: Floats32, embedded: Mask
    ) -> None:
        """Append rows; ``versions`` one or one for each."""
        for number, row in enumerate(rows, len(self)):
            hashes = packed_hashes([row.facts]).tolist()
            for term, count in zip(hashes, packed_counts(row.facts), strict=True):
                found = self._postings.get(term)
                if found is None:
                    found = self._postings[term] = array("I")
                found.append(number * _COUNTS + count)
        self._lengths.extend([packed_length(row.facts) for row in rows])
        self._chinese.extend([packed_chinese(row.facts) for row in rows])
        self.at.extend(np.broadcast_to(versions, len(rows)))
        self.ids.extend([row.chunk_id for row in rows])
        self.born.extend([row.born for row in rows])
        self.embedded.extend(embedded)
        self.vectors.extend(vectors)
        self.made += rows
        self._keys += [row.keys for row in rows]

    def view(self) -> _RowsView:
        """What has been appended so far."""
        return _RowsView(
            self.at.view,
            self.ids.view,
            self.born.view,
            self.embedded.view,
            self.vectors.view,
            self._lengths.view,
            self._chinese.view,
            self._keys,
            self._postings,
        )


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
        chunks_max: int = CHUNKS_MAX,
        versions_max: int = VERSIONS_MAX,
    ) -> None:
        self._feed = feed
        self._kb = kb
        self._chunks_max = chunks_max
        self._versions_max = versions_max
        self.view: LoggedChanges | None = None
        self._begin(None, 0)

    def _begin(self, fingerprint: str | None, dimensions: int) -> None:
        self.fingerprint = fingerprint
        self.versions: Column[np.int64] = Column(np.int64)
        self.removed_at, self.removed = Column(np.int64), Column(np.int64)
        self.living = Column(np.bool_)
        self.rows = _Rows(dimensions)
        self._dimensions = dimensions
        self._row_of: dict[int, int] = {}

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
            except ForebayError:
                pass
        self._begin(vectors.fingerprint, vectors.dimensions)
        self.versions.extend([version])
        self.view = LoggedChanges(self, version, lexical.chunks)

    def _append(self, changes: ChangeSet, lexical: LexicalView, vectors: VectorView) -> bool:
        """False when the log cannot go on."""
        if len(changes.added) + len(changes.embedded) + len(changes.removed) > CHANGE_CHUNKS_MAX:
            return False
        came = sorted({*changes.added, *changes.embedded})
        rows = self._rows(came, changes, lexical)
        if rows is None:
            return False
        stored, embedded = vectors.stored(np.array(came, np.int64))
        gone = [self._row_of.pop(i) for i in changes.removed if i in self._row_of]
        gone += [self._row_of[i] for i in came if i in self._row_of]
        self.living.view[gone] = False
        self._row_of |= {i: len(self.rows) + place for place, i in enumerate(came)}
        if rows:
            self.rows.extend(rows, changes.version, stored, embedded)
            self.living.extend(np.ones(len(rows), np.bool_))
        self.removed_at.extend(np.full(len(changes.removed), changes.version))
        self.removed.extend(changes.removed)
        self.versions.extend([changes.version])
        self._forget()
        return True

    def _rows(
        self, came: Sequence[int], changes: ChangeSet, lexical: LexicalView
    ) -> list[Row] | None:
        """Return what is to be kept of chunks, mostly from memory; None: they are not all there."""
        added, recent = frozenset(changes.added), lexical.recent.added
        known = {i: self.rows.made[self._row_of[i]] for i in came if i in self._row_of}
        missing = [i for i in came if i not in known]
        elsewhere = [i for i in missing if i not in recent]
        keys = {i: recent[i].keys for i in missing if i in recent}
        keys |= {
            row.chunk_id: frozenset(row_keys(row)) for row in self._feed.rows(self._kb, elsewhere)
        }
        for chunk_id, facts in zip(missing, lexical.facts(missing), strict=True):
            if facts is None or chunk_id not in keys:
                return None
            born = changes.version if chunk_id in added else 0
            known[chunk_id] = Row(chunk_id, born, facts, keys[chunk_id])
        return [known[i] for i in came]

    def _forget(self) -> None:
        """Keep the bounds: the oldest half goes, and what a later row of the same chunk repeats."""
        within = max(len(self.rows), len(self.removed)) <= self._chunks_max
        if within and len(self.versions) <= self._versions_max:
            return
        living = np.flatnonzero(self.living.view)
        cuts = [int(self.versions.view[0])]
        for versions, bound in (
            (self.rows.at.view[living], self._chunks_max),
            (self.removed_at.view, self._chunks_max),
            (self.versions.view, self._versions_max),
        ):
            if len(versions) > bound // 2:
                cuts.append(int(versions[-1 - bound // 2]))
        old, cut = self.rows, max(cuts)
        kept = living[old.at.view[living] > cut]
        versions, removed_at, removed = (
            self.versions.view,
            self.removed_at.view,
            self.removed.view,
        )
        self._begin(self.fingerprint, self._dimensions)
        self.versions.extend(versions[versions >= cut])
        self.removed_at.extend(removed_at[removed_at > cut])
        self.removed.extend(removed[removed_at > cut])
        rows = [old.made[place] for place in kept.tolist()]
        if rows:
            self.rows.extend(
                rows, old.at.view[kept], old.vectors.view[kept], old.embedded.view[kept]
            )
        self.living.extend(np.ones(len(rows), np.bool_))
        self._row_of = {row.chunk_id: place for place, row in enumerate(rows)}
