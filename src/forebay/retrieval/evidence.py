"""What a retrieval rested on, written down so that later changes can be judged by it.

The statistics of a query (what its terms are worth, average length, background) are pinned: a new
chunk is scored as it would have been scored then. Terms the index did not know have no worth by
those statistics, but a chunk that brings one may be just what was asked for, so they are kept too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from forebay.kernel.caching import Evidence, LegList
from forebay.retrieval.counts import asked_hash
from forebay.retrieval.fusion import Floats, Ids, meaning_score
from forebay.retrieval.lexical_base import Demands
from forebay.retrieval.lexical_search import LexicalHits, LexicalQuery, LexicalView
from forebay.retrieval.segments import Floats32
from forebay.retrieval.terms import is_chinese

_FORMAT = 1
_UNKNOWN_MAX = 256
Weights = tuple[float, float]
"""Fusion's weight of words, and the words credited per meaning to a foreign chunk."""


class MeaningConstants(msgspec.Struct, frozen=True, array_like=True):
    """The vector leg's and fusion's: ``vector`` is the query's, as float32.

    ``best`` is the highest meaning of a candidate, at least 0 (1 without vectors among them).
    ``leaning``: candidates without a vector are scored by the others, so that any change of the
    candidates may change them.
    """

    fingerprint: str
    vector: bytes
    background: float
    weight: float
    foreign_words: float
    best: float
    leaning: bool


class QueryConstants(msgspec.Struct, frozen=True, array_like=True):
    """What scores a chunk for one query as it was asked; ``meaning`` None: by words alone.

    ``terms`` and ``unknown`` are hashes. ``alone``: nothing was in another language, so that the
    first chunk that is would be looked at.
    """

    format: int
    terms: tuple[int, ...]
    idf: tuple[float, ...]
    unknown: tuple[int, ...]
    ideal: float
    average: float
    k1: float
    b: float
    chinese: bool
    demands: Demands
    meaning: MeaningConstants | None
    alone: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(QueryConstants)


class Asked(msgspec.Struct, frozen=True):
    """A query as one view parsed it, and what its chunks must meet."""

    text: str
    query: LexicalQuery
    demands: Demands
    lexical: LexicalView
    limit: int
    alone: bool = False


class MeaningLeg(msgspec.Struct, frozen=True):
    """What the vector leg found, and what meaning was worth."""

    found: LegList
    constants: MeaningConstants


class Fused(msgspec.Struct, frozen=True):
    """The hits, the smallest lead of one over the next candidate, and that of the last hit."""

    hits: LegList
    lead: float
    edge: float

    def within(self, leeway: float) -> Fused:
        """The same, where statistics that shift by ``leeway`` may turn the way it was searched."""
        return Fused(self.hits, min(self.lead, leeway), min(self.edge, leeway))


def evidence_of(
    asked: Asked, words: LexicalHits, meaning: MeaningLeg | None, fused: Fused
) -> Evidence:
    """Return what ``fused``, the hits, rested on; ``meaning`` None: words alone, by choice."""
    query, settings = asked.query, asked.lexical.settings
    constants = QueryConstants(
        _FORMAT,
        _hashes(query.terms),
        query.idf,
        _hashes(query.unknown[:_UNKNOWN_MAX]),
        query.ideal,
        asked.lexical.average,
        settings.k1,
        settings.b,
        is_chinese(asked.text),
        asked.demands,
        None if meaning is None else meaning.constants,
        asked.alone,
    )
    return Evidence(
        chunks=asked.lexical.chunks,
        words=leg_list(words.ids, words.scores, asked.limit),
        vectors=None if meaning is None else meaning.found,
        fused=fused.hits,
        constants=_encoder.encode(constants),
        limit=asked.limit,
        lead=fused.lead,
        edge=fused.edge,
    )


def meaning_constants(
    fingerprint: str, vector: Floats32, cosine: Floats, background: float, weights: Weights
) -> MeaningConstants:
    """Return the constants of a query answered by both legs; ``cosine`` of its candidates, NaN
    without a vector.
    """
    missing = np.isnan(cosine)
    leaning = bool(missing.any())
    known = cosine[~missing] if leaning else cosine
    best = float(meaning_score(known.max(), background)) if len(known) else 1.0
    return MeaningConstants(
        fingerprint,
        vector.astype("<f4", copy=False).tobytes(),
        background,
        *weights,
        max(best, 0.0),
        leaning,
    )


def leg_list(ids: Ids, scores: Floats | Floats32, limit: int) -> LegList:
    """Return a leg's candidates; full when there may be more than ``limit``."""
    return LegList(tuple(ids.tolist()), tuple(scores.tolist()), len(ids) >= limit)


def constants_of(found: Evidence) -> QueryConstants | None:
    """Return the constants of an evidence; None when they are none of this code's."""
    try:
        constants = _decoder.decode(found.constants)
    except msgspec.DecodeError:
        return None
    return constants if constants.format == _FORMAT else None


def _hashes(terms: Sequence[str]) -> tuple[int, ...]:
    return tuple([asked_hash(term) for term in terms])
