"""BM25 over one published state of the lexical index.

score(q, d) = sum over terms t of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg)),
idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)); N, df and avg count living chunks only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import tantivy

from forebay.retrieval.counts import (
    FactsCache,
    Floats,
    Hashes,
    Mask,
    packed_hashes,
    term_hash,
    unpack_facts,
)
from forebay.retrieval.engine import GuardedSearcher
from forebay.retrieval.keys import ALIVE
from forebay.retrieval.settings import LexicalSettings
from forebay.retrieval.terms import Analyzer

Demands = tuple[tuple[str, ...], ...]
Ids = npt.NDArray[np.int64]

_FREQUENCIES_MAX = 20_000
_ALLOWED_SETS_MAX = 32
_FEW_IDS = 2048
_DENSE = 4
"""A run of ids with at most this many times their number between its ends is asked as a range."""
_FEW_KEYS = 8
_FEW = 256
"""Up to this many ids, single term queries are faster than the engine's set query."""


class LexicalQuery(msgspec.Struct, frozen=True):
    """A query against one view: its terms, rarest first, and what each is worth.

    ``idf`` is 0 for terms that no living chunk holds. ``known`` is the share of the query's
    worth that the index knows, with unknown terms counted as if one chunk held them; it is 0
    for a query without terms.
    """

    terms: tuple[str, ...]
    idf: tuple[float, ...]
    known: float
    ideal: float


class LexicalHits(msgspec.Struct, frozen=True):
    """Chunks best first: ids, BM25 scores, and the share of the query's worth each covers."""

    ids: Ids
    scores: Floats
    coverage: Floats


NO_HITS = LexicalHits(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64))


class LexicalView:
    """One published state; immutable but for bounded caches, safe to share between threads."""

    def __init__(
        self,
        searcher: GuardedSearcher | None,
        schema: tantivy.Schema,
        settings: LexicalSettings,
        *,
        analyzer: Analyzer,
        facts: FactsCache,
    ) -> None:
        self._searcher = searcher
        self._schema = schema
        self._settings = settings
        self._analyzer = analyzer
        self._facts = facts
        self._lock = Lock()
        self._frequencies: dict[int, int] = {}
        self._allowed: OrderedDict[Demands, Ids] = OrderedDict()
        self.chunks = 0 if searcher is None else searcher.num_docs
        self.segments = 0 if searcher is None else searcher.num_segments
        self._average, self._stale = self._statistics()

    def _statistics(self) -> tuple[float, bool]:
        """Average length of living chunks, and whether the engine still counts dead ones."""
        if self._searcher is None or not self.chunks:
            return 1.0, False
        everything = tantivy.Query.all_query()
        total = self._searcher.aggregate(everything, {"total": {"sum": {"field": "length"}}})
        average = max(1.0, total["total"]["value"] / self.chunks)
        return average, self._searcher.doc_freq("keys", ALIVE) != self.chunks

    def parse(self, text: str) -> LexicalQuery:
        """Cut ``text`` into terms and weigh them; never fails, whatever the text."""
        terms = self._analyzer.query(text[: self._settings.query_max_characters])
        weighed = [(self._idf(self._frequency(term)), term) for term in terms]
        found = [pair for pair in weighed if pair[0] > 0.0]
        found.sort(key=lambda pair: -pair[0])
        ideal = sum(idf for idf, _ in found)
        missing = self._idf(1) * (len(weighed) - len(found))
        kept = self._without_common(found[: self._settings.query_max_terms], ideal)
        worth = sum(idf for idf, _ in kept)
        return LexicalQuery(
            terms=tuple(term for _, term in kept),
            idf=tuple(idf for idf, _ in kept),
            known=ideal / (ideal + missing) if ideal else 0.0,
            ideal=worth * (self._settings.k1 + 1.0),
        )

    def _without_common(
        self, found: list[tuple[float, str]], ideal: float
    ) -> list[tuple[float, str]]:
        """Leave out terms that are nearly everywhere: they cost most and decide least."""
        if self.chunks < self._settings.common_from_chunks:
            return found
        common = self._idf(max(1, int(self.chunks * self._settings.common_share)))
        kept = [pair for pair in found if pair[0] > common]
        left_out = ideal - sum(idf for idf, _ in kept)
        return kept if kept and left_out <= self._settings.common_worth_max * ideal else found

    def _frequency(self, term: str) -> int:
        """Living chunks that hold ``term``."""
        if self._searcher is None:
            return 0
        key = term_hash(term)
        known = self._frequencies.get(key)
        if known is None:
            known = self._searcher.doc_freq("body", term)
            if known and self._stale:
                query = tantivy.Query.term_query(self._schema, "body", term, "freq")
                known = _count(self._searcher, query)
            if len(self._frequencies) >= _FREQUENCIES_MAX:
                self._frequencies.clear()
            self._frequencies[key] = known
        return known

    def inherit(self, before: LexicalView, gone: Hashes, fresh: Hashes) -> None:
        """Take over what ``before`` knew of frequencies, less ``gone`` terms, plus ``fresh`` ones.

        Counting the living chunks of a common term costs a scan of its postings once the engine
        holds dead ones; after a small commit only the terms of its chunks have changed.
        """
        frequencies = dict(before._frequencies)
        for hashes, sign in ((gone, -1), (fresh, 1)):
            terms, counts = np.unique(hashes, return_counts=True)
            for key, count in zip(terms.tolist(), counts.tolist(), strict=True):
                if key in frequencies:
                    frequencies[key] += sign * count
        self._frequencies = frequencies

    def hashes(self, chunk_ids: Sequence[int]) -> Hashes:
        """Return the term hashes of those of ``chunk_ids`` that live, one per chunk and term."""
        if self._searcher is None or not chunk_ids:
            return np.empty(0, np.uint32)
        addresses = self._find([(tantivy.Occur.Must, self._among(chunk_ids))], len(chunk_ids))
        if not addresses:
            return np.empty(0, np.uint32)
        return packed_hashes(self._packed_at(addresses)[1])

    def _idf(self, frequency: int) -> float:
        if not frequency:
            return 0.0
        return float(np.log1p((self.chunks - frequency + 0.5) / (frequency + 0.5)))

    def search(self, query: LexicalQuery, demands: Demands, limit: int) -> LexicalHits:
        """Return the best ``limit`` chunks that meet ``demands``, by BM25."""
        if self._searcher is None or not query.terms:
            return NO_HITS
        proposals = limit + max(self._settings.spare_candidates, limit // 4)
        wanted = self._any_term(query)
        if demands:
            clauses = [(tantivy.Occur.Must, wanted)]
            clauses += [(tantivy.Occur.Must, self._demand(keys)) for keys in demands]
            wanted = tantivy.Query.boolean_query(clauses)
        found = self._searcher.search(wanted, limit=proposals, count=False)
        ids, packed = self._packed_at([address for _, address in found.hits])
        hits = self._score(ids, packed, query)
        return LexicalHits(hits.ids[:limit], hits.scores[:limit], hits.coverage[:limit])

    def score(self, query: LexicalQuery, chunk_ids: Sequence[int]) -> LexicalHits:
        """Return exact scores of those ``chunk_ids`` that hold at least one term.

        A chunk that is not in this view any more or not yet may be scored all the same.
        """
        if not query.terms:
            return NO_HITS
        known = [
            (chunk_id, data)
            for chunk_id, data in zip(chunk_ids, self._packed_of(chunk_ids), strict=True)
            if data is not None
        ]
        hits = self._score([each for each, _ in known], [data for _, data in known], query)
        held = hits.scores > 0.0
        return LexicalHits(hits.ids[held], hits.scores[held], hits.coverage[held])

    def chinese(self, chunk_ids: Sequence[int]) -> Mask:
        """Return which of ``chunk_ids`` are of Chinese documents; unknown ones are not."""
        packed = self._packed_of(chunk_ids)
        known = unpack_facts([data for data in packed if data is not None], ())
        mask = np.zeros(len(packed), np.bool_)
        mask[[data is not None for data in packed]] = known.chinese
        return mask

    def allowed(self, demands: Demands) -> Ids:
        """Return the ids of all chunks that meet ``demands``, ascending; kept per view."""
        with self._lock:
            known = self._allowed.get(demands)
            if known is not None:
                self._allowed.move_to_end(demands)
                return known
        if self._searcher is None or not self.chunks:
            return NO_HITS.ids
        clauses = [(tantivy.Occur.Must, self._demand(keys)) for keys in demands]
        addresses = self._find(clauses, self.chunks)
        if not addresses:
            return NO_HITS.ids
        values = self._searcher.fast_field_values("chunk", addresses)
        ids = np.sort(np.asarray(values, np.int64))
        with self._lock:
            self._allowed[demands] = ids
            if len(self._allowed) > _ALLOWED_SETS_MAX:
                self._allowed.popitem(last=False)
        return ids

    def allowed_among(self, demands: Demands, chunk_ids: Ids) -> Ids:
        """Return ids that meet ``demands``, ascending: at least those among ``chunk_ids``."""
        if self._searcher is None or not len(chunk_ids):
            return NO_HITS.ids
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
        addresses = self._find(clauses, min(most, self.chunks))
        if not addresses:
            return NO_HITS.ids
        return np.sort(np.asarray(self._searcher.fast_field_values("chunk", addresses), np.int64))

    def _find(
        self, clauses: list[tuple[tantivy.Occur, tantivy.Query]], limit: int
    ) -> list[tantivy.DocAddress]:
        assert self._searcher is not None
        if limit < 1:
            return []
        query = tantivy.Query.boolean_query(clauses) if clauses else tantivy.Query.all_query()
        found = self._searcher.search(query, limit=limit, count=False)
        return [address for _, address in found.hits]

    def _any_term(self, query: LexicalQuery) -> tantivy.Query:
        """OR over terms, the engine's stale idf corrected so that it proposes by ours."""
        clauses = []
        for term, idf in zip(query.terms, query.idf, strict=True):
            found = tantivy.Query.term_query(self._schema, "body", term, "freq")
            clauses.append(
                (
                    tantivy.Occur.Should,
                    tantivy.Query.boost_query(found, idf / self._engine_idf(term)),
                )
            )
        return tantivy.Query.boolean_query(clauses)

    def _engine_idf(self, term: str) -> float:
        assert self._searcher is not None
        counted = self._searcher.doc_freq("body", term)
        total = self._engine_chunks()
        return float(np.log1p((total - counted + 0.5) / (counted + 0.5)))

    def _engine_chunks(self) -> int:
        assert self._searcher is not None
        return self._searcher.doc_freq("keys", ALIVE) if self._stale else self.chunks

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

    def _score(
        self, chunk_ids: Sequence[int], packed: Sequence[bytes], query: LexicalQuery
    ) -> LexicalHits:
        if not chunk_ids:
            return NO_HITS
        ids = np.array(chunk_ids, np.int64)
        facts = unpack_facts(packed, query.terms)
        k1, b = self._settings.k1, self._settings.b
        norm = k1 * (1.0 - b + b * facts.lengths / self._average)
        idf = np.array(query.idf)
        frequencies = facts.frequencies
        scores = (idf * frequencies * (k1 + 1.0) / (frequencies + norm[:, None])).sum(axis=1)
        coverage = (idf * (frequencies > 0)).sum(axis=1) / idf.sum()
        order = np.lexsort((ids, -scores))
        return LexicalHits(ids[order], scores[order], coverage[order])

    def _packed_of(self, chunk_ids: Sequence[int]) -> list[bytes | None]:
        """Return the facts of each chunk, None where this view has none; mostly from memory."""
        packed = self._facts.get(chunk_ids)
        missing = [i for i, data in zip(chunk_ids, packed, strict=True) if data is None]
        if not missing or self._searcher is None:
            return packed
        addresses = self._find([(tantivy.Occur.Must, self._among(missing))], len(missing))
        found = dict(zip(*self._packed_at(addresses), strict=True))
        return [
            found.get(i) if data is None else data
            for i, data in zip(chunk_ids, packed, strict=True)
        ]

    def _packed_at(self, addresses: list[tantivy.DocAddress]) -> tuple[list[int], list[bytes]]:
        """Return ids and facts of the chunks at ``addresses``."""
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


def _count(searcher: GuardedSearcher, query: tantivy.Query) -> int:
    found: Any = searcher.search(query, limit=1)
    return int(found.count)
