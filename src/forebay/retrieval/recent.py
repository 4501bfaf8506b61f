"""What happened since the files were written: chunks in memory, and which of the files' are dead.

A change is searchable once it is here; nothing of it has to reach the disk, because the record
has it. The writer puts many of them into the files at once, and every process makes its own from
the record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock

import msgspec
import numpy as np
import tantivy

from forebay.retrieval.counts import (
    Facts,
    FactsTable,
    Hashes,
    Mask,
    packed_chinese,
    packed_hashes,
    packed_length,
)
from forebay.retrieval.lexical_base import NO_IDS, Demands, Ids

_ALLOWED_SETS_MAX = 32


class Entry(msgspec.Struct, frozen=True):
    """A chunk: its facts, its keys, and what the engine will be given of it."""

    facts: bytes
    keys: frozenset[str]
    document: tantivy.Document


class Recent:
    """Living chunks that are not in the files, and chunks of the files that live no more.

    Immutable but for bounded caches. ``dead`` maps to the facts the files have.
    """

    def __init__(
        self, added: Mapping[int, Entry] | None = None, dead: Mapping[int, bytes] | None = None
    ) -> None:
        self.added: Mapping[int, Entry] = added or {}
        self.dead: Mapping[int, bytes] = dead or {}
        self._lock = Lock()
        self._allowed: OrderedDict[Demands, Ids] = OrderedDict()

    def __len__(self) -> int:
        return len(self.added) + len(self.dead)

    @cached_property
    def ids(self) -> Ids:
        """The living chunks, in the order of the table's rows."""
        return np.fromiter(self.added, np.int64, len(self.added))

    @cached_property
    def _table(self) -> FactsTable:
        return FactsTable([entry.facts for entry in self.added.values()])

    @cached_property
    def _dead_hashes(self) -> Hashes:
        return packed_hashes(list(self.dead.values()))

    @cached_property
    def length(self) -> int:
        """Terms of the living chunks less those of the dead ones."""
        alive = sum(packed_length(entry.facts) for entry in self.added.values())
        return alive - sum(packed_length(data) for data in self.dead.values())

    @cached_property
    def chinese(self) -> int:
        """How many of the living chunks are of Chinese documents."""
        return sum(packed_chinese(entry.facts) for entry in self.added.values())

    def frequency(self, term_key: int) -> int:
        """Return how many more chunks hold a term, by its hash, than the files say."""
        if not len(self):
            return 0
        key = np.uint32(term_key)
        alive = np.count_nonzero(self._table.hashes == key)
        return int(alive) - int(np.count_nonzero(self._dead_hashes == key))

    def matching(self, terms: Sequence[str], demands: Demands) -> tuple[Ids, Facts]:
        """Return chunks that hold one of ``terms`` and meet ``demands``."""
        facts = self._table.of(terms)
        wanted: Mask = np.asarray(facts.frequencies.any(axis=1))
        if demands:
            wanted &= np.isin(self.ids, self.allowed(demands))
        return self.ids[wanted], facts.rows(wanted)

    def allowed(self, demands: Demands) -> Ids:
        """Return the living chunks that meet ``demands``, ascending."""
        if not self.added:
            return NO_IDS
        with self._lock:
            known = self._allowed.get(demands)
        if known is None:
            passing = [
                chunk_id
                for chunk_id, entry in self.added.items()
                if all(not entry.keys.isdisjoint(keys) for keys in demands)
            ]
            known = np.sort(np.array(passing, np.int64))
            with self._lock:
                self._allowed[demands] = known
                if len(self._allowed) > _ALLOWED_SETS_MAX:
                    self._allowed.popitem(last=False)
        return known

    def living(self, ids: Ids) -> Ids:
        """Return those of the files' ``ids`` that still live."""
        if not self.dead:
            return ids
        return ids[~np.isin(ids, np.fromiter(self.dead, np.int64, len(self.dead)))]

    def after(self, folded: Recent) -> Recent:
        """Return what remains when ``folded``, an earlier state of this, is in the files."""
        added = {i: entry for i, entry in self.added.items() if i not in folded.added}
        dead = {i: data for i, data in self.dead.items() if i not in folded.dead}
        dead |= {i: e.facts for i, e in folded.added.items() if i not in self.added}
        return Recent(added, dead)


def changed_terms(before: Recent, now: Recent) -> tuple[Hashes, Hashes]:
    """Return the term hashes of what left and of what came, one per chunk and term."""
    gone = [entry.facts for i, entry in before.added.items() if i not in now.added]
    gone += [data for i, data in now.dead.items() if i not in before.dead]
    fresh = [entry.facts for i, entry in now.added.items() if i not in before.added]
    fresh += [data for i, data in before.dead.items() if i not in now.dead]
    return packed_hashes(gone), packed_hashes(fresh)
