"""What changes mean for a query that was answered before: ``ChangeBounds`` over one process.

Everything is read from the indexes' logs: no search, no file, no lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np

from forebay.kernel.caching import Arrival, Changes, Evidence, LegList
from forebay.retrieval.change_log import Comers
from forebay.retrieval.counts import Floats, Mask
from forebay.retrieval.evidence import QueryConstants, constants_of
from forebay.retrieval.fusion import Ids, credit_foreign, fuse, meaning_score, words_score
from forebay.retrieval.index import KbIndex

_TOO_MUCH = 1e9
ENTERING_MAX, ARRIVALS_MAX = 2_048, 256
"""Chunks that would enter a list, before and after rights are asked: each costs the event loop a
microsecond or two. What more have come to is as good as unknown: it is searched for anew."""
WORDS_ERROR, COSINE_ERROR = 1e-9, 1e-5
"""More than what the same score, summed up in another order, can differ by."""


class _Scores(msgspec.Struct, frozen=True):
    """Of each comer: words and cosine (NaN: no vector), and whether it brings what nobody has seen:
    an unknown term, the first text in another language.
    """

    words: Floats
    cosine: Floats
    news: Mask
    shift: float


class LoggedBounds:
    """``ChangeBounds`` over the indexes of a process; ``indexes`` raises ``NotFound``."""

    def __init__(self, indexes: Callable[[str], KbIndex]) -> None:
        self._indexes = indexes

    def changes(self, kb: str, since: int, evidence: Evidence) -> Changes | None:
        """What happened after version ``since``; None: that is not known any more, or too much."""
        log = self._indexes(kb).logged_changes()
        constants = constants_of(evidence)
        if log is None or constants is None or not log.knows(since):
            return None
        meaning = constants.meaning
        if meaning is not None and meaning.fingerprint != log.fingerprint:
            return None
        comers = log.comers(since)
        removed = log.removed(since)
        if comers is None:
            return Changes(log.version, log.chunks, len(removed), removed)
        renewed = comers.living & comers.renewed
        came = int(np.count_nonzero(comers.living)) - int(np.count_nonzero(renewed))
        scores = _score(comers, constants, (evidence.chunks, log.chunks))
        arrivals = _arrivals(comers, scores, evidence, constants)
        if arrivals is None:
            return None
        return Changes(
            version=log.version,
            chunks=log.chunks,
            moved=came + len(removed),
            removed=removed,
            altered=frozenset(comers.ids[renewed].tolist()),
            arrivals=arrivals,
            shift=scores.shift,
        )


def _arrivals(
    comers: Comers, scores: _Scores, evidence: Evidence, constants: QueryConstants
) -> tuple[Arrival, ...] | None:
    """Those that would enter a list; None: too many."""
    entering = _enters(scores.words, evidence.words, WORDS_ERROR) & (scores.words > 0.0)
    if evidence.vectors is not None:
        # A cosine that is not known (NaN) enters nothing.
        entering |= _enters(scores.cosine, evidence.vectors, COSINE_ERROR)
    rows = np.flatnonzero((entering | scores.news) & comers.living)
    if len(rows) > ENTERING_MAX:
        return None
    rows = rows[[comers.meets(row, constants.demands) for row in rows.tolist()]]
    if not len(rows):
        return ()
    if len(rows) > ARRIVALS_MAX:
        return None
    fused = _fused(comers, scores, rows, evidence, constants)
    order = np.argsort(comers.ids[rows])
    return tuple(
        Arrival(
            int(comers.ids[row]),
            float(scores.words[row]),
            None if math.isnan(scores.cosine[row]) else float(scores.cosine[row]),
            float(score),
        )
        for row, score in zip(rows[order], fused[order], strict=True)
    )


def _score(comers: Comers, constants: QueryConstants, chunks: tuple[int, int]) -> _Scores:
    """Score what came; ``chunks`` lived at the retrieval, and live now."""
    idf = np.array(constants.idf)
    held = comers.holding((*constants.terms, *constants.unknown))
    news = np.zeros(len(comers.ids), np.bool_)
    known = held.places < len(idf)
    news[held.rows[~known]] = True
    if constants.alone:
        news |= comers.chinese[: len(news)] != constants.chinese
    rows, counts = held.rows[known], held.counts[known]
    k1, b = constants.k1, constants.b
    norm = k1 * (1.0 - b + b * comers.lengths[rows] / constants.average)
    worth = idf[held.places[known]] * counts * (k1 + 1.0) / (counts + norm)
    words: Floats = np.zeros(len(comers.ids))
    np.add.at(words, rows, worth)
    cosine = np.full(len(words), np.nan)
    if constants.meaning is not None and comers.embedded.any():
        query = np.frombuffer(constants.meaning.vector, "<f4")
        # One by one: BLAS takes several threads for a long product, and waits for them.
        found = np.vecdot(comers.vectors, query)
        cosine = np.where(comers.embedded, found, np.nan)
    came = comers.living & ~comers.renewed
    holders = np.bincount(held.places[known & came[held.rows]], minlength=len(idf)).astype(float)
    return _Scores(words, cosine, news, _shift(idf, holders, chunks) * _words_weight(constants))


def _words_weight(constants: QueryConstants) -> float:
    return 1.0 if constants.meaning is None else constants.meaning.weight


def _shift(idf: Floats, holders: Floats, chunks: tuple[int, int]) -> float:
    """By how much two chunks' shares of the ideal score may have come closer.

    A term with inverse frequency ``idf`` = ln(1 + (n - df + .5) / (df + .5)) was held by
    df = (n + 1) / e^idf - .5 of n chunks; now by ``holders`` more of them. Its part of a share is
    at most its part of the ideal, and moves as its worth does beside that of the others.
    """
    before, now = chunks
    if not holders.any():
        return 0.0
    frequency = (before + 1.0) / np.exp(idf) - 0.5 + holders
    worth = np.log1p(np.maximum(now - frequency + 0.5, 0.0) / (frequency + 0.5))
    parts, parts_now = idf / idf.sum(), worth / max(float(worth.sum()), 1e-9)
    return float(np.abs(parts_now - parts).sum())


def _enters(scores: Floats, found: LegList, error: float) -> Mask:
    """Which scores would stand in a list."""
    if not found.full:
        return ~np.isnan(scores)
    enters: Mask = scores >= found.scores[-1] - error
    return enters


def _fused(
    comers: Comers, scores: _Scores, rows: Ids, evidence: Evidence, constants: QueryConstants
) -> Floats:
    held = words_score(scores.words[rows], constants.ideal)
    meaning = constants.meaning
    if meaning is None:
        fused = held
    elif meaning.leaning:
        fused = np.full(len(rows), np.inf)
    else:
        means = meaning_score(scores.cosine[rows], meaning.background)
        foreign = comers.chinese[rows] != constants.chinese
        credited = credit_foreign(held, means, foreign, meaning.foreign_words)
        missing = np.isnan(means)
        means[missing] = held[missing] * _leaning_most(evidence, constants)
        fused = fuse(credited, means, meaning.weight)
    return np.where(scores.news[rows], np.inf, fused)


def _leaning_most(evidence: Evidence, constants: QueryConstants) -> float:
    """The most meaning, per share of words, that fusion lends to a chunk without a vector.

    It lends the best meaning times its words relative to the most words among the candidates,
    and the best word hit is one of these.
    """
    if constants.meaning is None or not evidence.words.scores or constants.ideal <= 0.0:
        return _TOO_MUCH
    return constants.meaning.best * constants.ideal / max(evidence.words.scores[0], 1e-9)
