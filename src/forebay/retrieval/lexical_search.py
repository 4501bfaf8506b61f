"""BM25 over one published state of the lexical index.

score(q, d) = sum over terms t of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg)),
idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)); N, df and avg count living chunks only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from forebay.retrieval.counts import (
    Facts,
    FactsCache,
    Floats,
    asked_hash,
    unpack_facts,
)
from forebay.retrieval.lexical_base import NO_IDS, Demands, Ids, LexicalBase
from forebay.retrieval.recent import Recent, changed_terms
from forebay.retrieval.settings import LexicalSettings
from forebay.retrieval.terms import Analyzer, is_chinese

_FREQUENCIES_MAX = 20_000


class LexicalQuery(msgspec.Struct, frozen=True):
    """A query against one view: its terms, rarest first, and what each is worth.

    ``known`` is the share of the query's worth that the index knows, with the ``unknown`` terms,
    which no living chunk holds, counted as if one did; it is 0 for a query without terms.
    """

    terms: tuple[str, ...]
    idf: tuple[float, ...]
    known: float
    ideal: float
    unknown: tuple[str, ...] = ()


class LexicalHits(msgspec.Struct, frozen=True):
    """Chunks best first: ids, BM25 scores, the share of the query's worth each covers, and their
    packed facts.
    """

    ids: Ids
    scores: Floats
    coverage: Floats
    packed: Sequence[bytes] = ()


NO_HITS = LexicalHits(NO_IDS, np.empty(0, np.float64), np.empty(0, np.float64))


class LexicalView:
    """One published state: the files and what happened since.

    Immutable but for bounded caches, safe to share between threads.
    """

    def __init__(
        self,
        base: LexicalBase,
        recent: Recent,
        settings: LexicalSettings,
        *,
        analyzer: Analyzer,
        facts: FactsCache,
    ) -> None:
        self.base = base
        self.recent = recent
        self.settings = settings
        self._analyzer = analyzer
        self._facts = facts
        self._frequencies: dict[int, int] = {}
        self.chunks = base.chunks + len(recent.added) - len(recent.dead)
        self.segments = base.segments
        self.average = max(1.0, (base.length + recent.length) / max(1, self.chunks))

    def inherit(self, before: LexicalView) -> None:
        """Take over what ``before``, which has all of this view's files or all of its chunks,
        knew of frequencies.

        Counting the living chunks of a common term costs a scan of its postings once the engine
        holds dead ones; after a small commit only the terms of its chunks have changed.
        """
        frequencies = dict(before._frequencies)
        if before.base is self.base:
            for hashes, sign in zip(
                changed_terms(before.recent, self.recent), (-1, 1), strict=True
            ):
                terms, counts = np.unique(hashes, return_counts=True)
                for key, count in zip(terms.tolist(), counts.tolist(), strict=True):
                    if key in frequencies:
                        frequencies[key] += sign * count
        self._frequencies = frequencies

    def parse(self, text: str) -> LexicalQuery:
        """Cut ``text`` into terms and weigh them; never fails, whatever the text."""
        terms = self._analyzer.query(text[: self.settings.query_max_characters])
        weighed = [(self._idf(self._frequency(term)), term) for term in terms]
        found = [pair for pair in weighed if pair[0] > 0.0]
        found.sort(key=lambda pair: -pair[0])
        ideal = sum(idf for idf, _ in found)
        missing = self._idf(1) * (len(weighed) - len(found))
        kept = self._without_common(found[: self.settings.query_max_terms], ideal)
        worth = sum(idf for idf, _ in kept)
        return LexicalQuery(
            terms=tuple(term for _, term in kept),
            idf=tuple(idf for idf, _ in kept),
            known=ideal / (ideal + missing) if ideal else 0.0,
            ideal=worth * (self.settings.k1 + 1.0),
            unknown=tuple(term for idf, term in weighed if idf <= 0.0),
        )

    def _without_common(
        self, found: list[tuple[float, str]], ideal: float
    ) -> list[tuple[float, str]]:
        """Leave out terms that are nearly everywhere: they cost most and decide least."""
        if self.chunks < self.settings.common_from_chunks:
            return found
        common = self._idf(max(1, int(self.chunks * self.settings.common_share)))
        kept = [pair for pair in found if pair[0] > common]
        left_out = ideal - sum(idf for idf, _ in kept)
        return kept if kept and left_out <= self.settings.common_worth_max * ideal else found

    def _frequency(self, term: str) -> int:
        """Living chunks that hold ``term``."""
        key = asked_hash(term)
        known = self._frequencies.get(key)
        if known is None:
            known = self.base.frequency(term) + self.recent.frequency(key)
            if len(self._frequencies) >= _FREQUENCIES_MAX:
                self._frequencies.clear()
            self._frequencies[key] = known
        return known

    def _idf(self, frequency: int) -> float:
        if not frequency:
            return 0.0
        return math.log1p((self.chunks - frequency + 0.5) / (frequency + 0.5))

    def search(self, query: LexicalQuery, demands: Demands, limit: int) -> LexicalHits:
        """Return the best ``limit`` chunks that meet ``demands``, by BM25."""
        if not query.terms:
            # That no term is known may be the files' fault.
            self.base.confirm()
            return NO_HITS
        proposals = limit + max(self.settings.spare_candidates, limit // 4)
        without = tuple(self.recent.dead)
        found, packed = self.base.propose(self._deciding(query), demands, without, proposals)
        ids, facts = np.array(found, np.int64), unpack_facts(packed, query.terms)
        if self.recent.added:
            more, their_facts = self.recent.matching(query.terms, demands)
            ids, facts = np.concatenate([ids, more]), facts.with_more(their_facts)
            packed += [self.recent.added[chunk_id].facts for chunk_id in more.tolist()]
        hits = self._score(ids, facts, query, packed)
        return LexicalHits(
            hits.ids[:limit], hits.scores[:limit], hits.coverage[:limit], hits.packed[:limit]
        )

    def _deciding(self, query: LexicalQuery) -> list[tuple[str, float]]:
        """The terms that propose chunks: the most frequent ones take most of a search's time, and
        only order what the others find.
        """
        weights = list(zip(query.terms, query.idf, strict=True))
        if self.chunks >= self.settings.common_from_chunks:
            left = self.settings.unproposed_worth_max * sum(query.idf)
            while weights[-1][1] <= left:
                left -= weights.pop()[1]
        return weights

    def score(self, query: LexicalQuery, chunk_ids: Sequence[int]) -> LexicalHits:
        """Return exact scores of those ``chunk_ids`` that hold at least one term.

        A chunk that is not in this view any more or not yet may be scored all the same.
        """
        if not query.terms:
            return NO_HITS
        facts = self._packed(chunk_ids)
        known = [data is not None for data in facts]
        packed = [data for data in facts if data is not None]
        hits = self._score(
            np.array(chunk_ids, np.int64)[known], unpack_facts(packed, query.terms), query, packed
        )
        held = int(np.count_nonzero(hits.scores))
        return LexicalHits(
            hits.ids[:held], hits.scores[:held], hits.coverage[:held], hits.packed[:held]
        )

    def bm25(self, query: LexicalQuery, facts: Sequence[bytes | None]) -> Floats:
        """Return the exact score of each chunk by its packed facts; 0 where there are none."""
        scores = np.zeros(len(facts))
        packed = [data for data in facts if data is not None]
        if packed and query.terms:
            known = [data is not None for data in facts]
            scores[known] = self._scores(unpack_facts(packed, query.terms), query)[0]
        return scores

    def facts(self, chunk_ids: Sequence[int]) -> list[bytes | None]:
        """Return the packed facts of each chunk, None where there are none."""
        return self._packed(chunk_ids)

    def has_foreign(self, text: str) -> bool:
        """Whether there are chunks in another language than ``text``, Chinese or not."""
        chinese, other = self.base.by_language
        chinese += self.recent.chinese
        other += len(self.recent.added) - self.recent.chinese
        return (other if is_chinese(text) else chinese) > 0

    def allowed(self, demands: Demands) -> Ids:
        """Return the ids of all chunks that meet ``demands``, ascending."""
        return self._joined(self.base.allowed(demands), demands)

    def allowed_among(self, demands: Demands, chunk_ids: Ids) -> Ids:
        """Return ids that meet ``demands``, ascending: at least those among ``chunk_ids``."""
        return self._joined(self.base.allowed_among(demands, chunk_ids), demands)

    def _joined(self, ids: Ids, demands: Demands) -> Ids:
        ids, more = self.recent.living(ids), self.recent.allowed(demands)
        return np.sort(np.concatenate([ids, more])) if len(more) else ids

    def _score(
        self, ids: Ids, facts: Facts, query: LexicalQuery, packed: Sequence[bytes]
    ) -> LexicalHits:
        if not len(ids):
            return NO_HITS
        scores, coverage = self._scores(facts, query)
        order = np.lexsort((ids, -scores))
        ranked = [packed[place] for place in order.tolist()]
        return LexicalHits(ids[order], scores[order], coverage[order], ranked)

    def _scores(self, facts: Facts, query: LexicalQuery) -> tuple[Floats, Floats]:
        k1, b = self.settings.k1, self.settings.b
        norm = k1 * (1.0 - b + b * facts.lengths / self.average)
        idf = np.array(query.idf)
        frequencies = facts.frequencies
        scores = (idf * frequencies * (k1 + 1.0) / (frequencies + norm[:, None])).sum(axis=1)
        coverage = (idf * (frequencies > 0)).sum(axis=1) / idf.sum()
        return scores, coverage

    def _packed(self, chunk_ids: Sequence[int]) -> list[bytes | None]:
        """Return the facts of each chunk, None where there are none; mostly from memory."""
        packed = self._facts.get(chunk_ids)
        missing = [i for i, data in zip(chunk_ids, packed, strict=True) if data is None]
        if not missing:
            return packed
        recent = self.recent.added
        found = {i: recent[i].facts for i in missing if i in recent}
        found |= self.base.facts([i for i in missing if i not in recent])
        return [
            found.get(i) if data is None else data
            for i, data in zip(chunk_ids, packed, strict=True)
        ]
