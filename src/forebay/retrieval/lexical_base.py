"""One state of the engine's files: finding chunks by words, keys and numbers, and their facts."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy

from forebay.retrieval.counts import FactsCache
from forebay.retrieval.engine import GuardedSearcher
from forebay.retrieval.keys import ALIVE, language_key

Demands = tuple[tuple[str, ...], ...]
Ids = npt.NDArray[np.int64]

NO_IDS: Ids = np.empty(0, np.int64)
CHINESE = "zh"
_ALLOWED_SETS_MAX = 32
_HELD_MAX = 20_000
_FEW_IDS = 2048
_DENSE = 4
"""A run of ids with at most this many times their number between its ends is asked as a range."""
_FEW_KEYS = 8
_LAST_ID = 2**62
_FEW = 256
"""Up to this many ids, single term queries are faster than the engine's set query."""


class LexicalBase:
    """What is on disk, as one engine searcher sees it; safe to share between threads.

    ``length`` is the sum of the chunks' lengths in terms. Without a searcher it is empty.
    """

    def __init__(
        self, searcher: GuardedSearcher | None, schema: tantivy.Schema, facts: FactsCache
    ) -> None:
        self._searcher = searcher
        self._schema = schema
        self._facts = facts
        self._lock = Lock()
        self._allowed: OrderedDict[Demands, Ids] = OrderedDict()
        self._held: dict[str, int] = {}
        self._witness: tuple[str, int] = ("", 0)
        self._read = 0
        self.chunks = 0 if searcher is None else searcher.num_docs
        self.segments = 0 if searcher is None else searcher.num_segments
        self.length, self._counted = self._statistics()
        self.by_language = self._languages()

    def _statistics(self) -> tuple[float, int]:
        """Terms of all living chunks, and how many chunks the engine counts, dead ones too."""
        if self._searcher is None or not self.chunks:
            return 0.0, self.chunks
        everything = tantivy.Query.all_query()
        total = self._searcher.aggregate(everything, {"total": {"sum": {"field": "length"}}})
        return float(total["total"]["value"]), self._searcher.doc_freq("keys", ALIVE)

    def _languages(self) -> tuple[int, int]:
        """Chunks of Chinese documents and of others, dead ones too: some or none is what counts."""
        if self._searcher is None or not self.chunks:
            return 0, 0
        chinese = self._searcher.doc_freq("keys", language_key(CHINESE))
        return chinese, self._counted - chinese

    def frequency(self, term: str) -> int:
        """Return how many living chunks hold ``term``."""
        if self._searcher is None:
            return 0
        known = self._holding(term)
        if known > self._witness[1]:
            self._witness = (term, known)
        if known and self._counted != self.chunks:
            query = tantivy.Query.term_query(self._schema, "body", term, "freq")
            found: Any = self._searcher.search(query, limit=1)
            return int(found.count)
        return known

    def confirm(self) -> None:
        """Raise ``IndexDamaged`` when the files have lost terms that they had: microseconds.

        Every chunk of every segment holds one key; of the words, the most frequent one that was
        asked for stands for all.
        """
        if self._searcher is None or not self.chunks:
            return
        self._searcher.confirm("keys", ALIVE, self._counted)
        term, held = self._witness
        if held:
            self._searcher.confirm("body", term, held)

    def propose(
        self,
        weights: Sequence[tuple[str, float]],
        demands: Demands,
        without: Sequence[int],
        limit: int,
    ) -> tuple[list[int], list[bytes]]:
        """Return ids and facts of about the best ``limit`` chunks by terms of given idf."""
        if self._searcher is None or not weights:
            return [], []
        wanted = self._any_term(weights)
        if demands or without:
            clauses = [(tantivy.Occur.Must, wanted)]
            clauses += [(tantivy.Occur.Must, self._demand(keys)) for keys in demands]
            if without:
                clauses.append((tantivy.Occur.MustNot, self._among(without)))
            wanted = tantivy.Query.boolean_query(clauses)
        self.confirm()
        found = self._searcher.search(wanted, limit=limit, count=False)
        return self._facts_at([address for _, address in found.hits])

    def facts(self, chunk_ids: Sequence[int]) -> dict[int, bytes]:
        """Return the facts of those of ``chunk_ids`` that are here."""
        if self._searcher is None or not chunk_ids:
            return {}
        addresses = self._find([(tantivy.Occur.Must, self._among(chunk_ids))], len(chunk_ids))
        return dict(zip(*self._facts_at(addresses), strict=True))

    def read_ahead(self, most: int) -> bool:
        """Remember the facts of the next ``most`` chunks; False when there is no more to do.

        In the order of the files a chunk takes a quarter of the time that it takes a search. An
        index that was not searched so far is left alone; so is what was remembered, when memory
        is full. One thread at a time.
        """
        at, left = self._read, self.chunks - self._read
        if self._searcher is None or left <= 0 or not (self._facts.in_use and self._facts.has_room):
            return False
        everything = tantivy.Query.all_query()
        found = self._searcher.search(everything, limit=min(most, left), count=False, offset=at)
        self._facts_at([address for _, address in found.hits])
        self._read += most
        return True

    def allowed(self, demands: Demands) -> Ids:
        """Return the ids of all chunks that meet ``demands``, ascending; kept."""
        with self._lock:
            known = self._allowed.get(demands)
            if known is not None:
                self._allowed.move_to_end(demands)
                return known
        if self._searcher is None or not self.chunks:
            return NO_IDS
        clauses = [(tantivy.Occur.Must, self._demand(keys)) for keys in demands]
        ids = self._ids(self._find(clauses, self.chunks))
        with self._lock:
            self._allowed[demands] = ids
            if len(self._allowed) > _ALLOWED_SETS_MAX:
                self._allowed.popitem(last=False)
        return ids

    def all_ids(self) -> Ids:
        """Return the ids of all chunks, ascending."""
        return self._ids(self._find([], self.chunks)) if self._searcher is not None else NO_IDS

    def facts_after(self, chunk_id: int) -> dict[int, bytes]:
        """Return the facts of all chunks with higher numbers than ``chunk_id``."""
        if self._searcher is None:
            return {}
        later = tantivy.Query.range_query(
            self._schema, "chunk", tantivy.FieldType.Integer, chunk_id + 1, _LAST_ID
        )
        addresses = self._find([(tantivy.Occur.Must, later)], self.chunks)
        return dict(zip(*self._facts_at(addresses), strict=True))

    def allowed_among(self, demands: Demands, chunk_ids: Ids) -> Ids:
        """Return ids that meet ``demands``, ascending: at least those among ``chunk_ids``."""
        if self._searcher is None or not len(chunk_ids):
            return NO_IDS
        first, last = int(chunk_ids.min()), int(chunk_ids.max())
        if last - first < _DENSE * len(chunk_ids) and 2 * len(chunk_ids) < self.chunks:
            inside, most = (
                tantivy.Query.range_query(
                    self._schema, "chunk", tantivy.FieldType.Integer, first, last
                ),
                last - first + 1,
            )
        elif len(chunk_ids) <= _FEW_IDS:
            inside, most = self._among(chunk_ids.tolist()), len(chunk_ids)
        else:
            return self.allowed(demands)
        clauses = [(tantivy.Occur.Must, tantivy.Query.const_score_query(inside, 0.0))]
        clauses += [(tantivy.Occur.Must, self._demand(keys)) for keys in demands]
        return self._ids(self._find(clauses, min(most, self.chunks)))

    def _ids(self, addresses: list[tantivy.DocAddress]) -> Ids:
        if not addresses:
            return NO_IDS
        assert self._searcher is not None
        return np.sort(np.asarray(self._searcher.fast_field_values("chunk", addresses), np.int64))

    def _find(
        self, clauses: list[tuple[tantivy.Occur, tantivy.Query]], limit: int
    ) -> list[tantivy.DocAddress]:
        assert self._searcher is not None
        if limit < 1:
            return []
        self.confirm()
        query = tantivy.Query.boolean_query(clauses) if clauses else tantivy.Query.all_query()
        found = self._searcher.search(query, limit=limit, count=False)
        return [address for _, address in found.hits]

    def _any_term(self, weights: Sequence[tuple[str, float]]) -> tantivy.Query:
        """OR over terms, the engine's stale idf corrected so that it proposes by ours."""
        clauses = []
        for term, idf in weights:
            found = tantivy.Query.term_query(self._schema, "body", term, "freq")
            boost = idf / self._engine_idf(term)
            # Where nothing is dead, the engine's idf is ours.
            boosted = found if boost == 1.0 else tantivy.Query.boost_query(found, boost)
            clauses.append((tantivy.Occur.Should, boosted))
        return tantivy.Query.boolean_query(clauses)

    def _engine_idf(self, term: str) -> float:
        held = self._holding(term)
        return math.log1p((self._counted - held + 0.5) / (held + 0.5))

    def _holding(self, term: str) -> int:
        """How many chunks the engine counts for ``term``, dead ones too."""
        assert self._searcher is not None
        held = self._held.get(term)
        if held is None:
            held = self._searcher.doc_freq("body", term)
            if len(self._held) >= _HELD_MAX:
                self._held.clear()
            self._held[term] = held
        return held

    def _demand(self, keys: tuple[str, ...]) -> tantivy.Query:
        if not keys:
            return tantivy.Query.empty_query()
        if len(keys) <= _FEW_KEYS:
            # The engine walks the lists of few keys, and makes a set of all that pass of more.
            each = [tantivy.Query.term_query(self._schema, "keys", key, "basic") for key in keys]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in each])
        else:
            query = tantivy.Query.term_set_query(self._schema, "keys", list(keys))
        return tantivy.Query.const_score_query(query, 0.0)

    def _among(self, chunk_ids: Sequence[int]) -> tantivy.Query:
        if len(chunk_ids) <= _FEW:
            each = [tantivy.Query.term_query(self._schema, "chunk", int(i)) for i in chunk_ids]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in each])
        else:
            wanted = [int(i) for i in chunk_ids]
            query = tantivy.Query.term_set_query(self._schema, "chunk", wanted)
        return tantivy.Query.const_score_query(query, 0.0)

    def _facts_at(self, addresses: list[tantivy.DocAddress]) -> tuple[list[int], list[bytes]]:
        """Return ids and facts of the chunks at ``addresses``, mostly from memory."""
        assert self._searcher is not None
        if not addresses:
            return [], []
        chunk_ids: list[int] = self._searcher.fast_field_values("chunk", addresses)
        known = self._facts.get(chunk_ids)
        packed = [
            self._read_facts(chunk_id, address) if data is None else data
            for chunk_id, address, data in zip(chunk_ids, addresses, known, strict=True)
        ]
        return chunk_ids, packed

    def _read_facts(self, chunk_id: int, address: tantivy.DocAddress) -> bytes:
        assert self._searcher is not None
        stored: Any = self._searcher.doc(address).get_first("facts")
        data = bytes(stored)
        self._facts.put(chunk_id, data)
        return data
