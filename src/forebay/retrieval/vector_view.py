"""What one search sees of the vectors: an ordered tuple of segments, each with its dead rows."""

from __future__ import annotations

from collections.abc import Callable

import faiss
import msgspec
import numpy as np
import numpy.typing as npt

from forebay.retrieval.segments import (
    Demands,
    Floats32,
    Ids,
    Mask,
    VectorSegment,
)
from forebay.retrieval.settings import VectorSettings

BACKGROUND_ROWS = 256
"""Vectors a query is compared with to learn what an unrelated cosine looks like."""
_BACKGROUND_SHARE = 0.75

Resolver = Callable[[Demands, Ids], Ids]
"""Gives ids that meet demands, ascending: at least those among the ids given."""


class Rights(msgspec.Struct, frozen=True):
    """What a chunk must meet, who can tell, and up to which kb version that is known."""

    demands: Demands
    version: int
    resolve: Resolver


class LiveSegment(msgspec.Struct, frozen=True):
    """A segment and which of its rows are dead (None: none is)."""

    segment: VectorSegment
    dead: Mask | None = None
    dead_rows: int = 0

    def __len__(self) -> int:
        return len(self.segment) - self.dead_rows

    def without(self, chunk_ids: Ids) -> LiveSegment:
        """Return this segment with ``chunk_ids`` dead; itself when it holds none of them."""
        rows = self.segment.positions(chunk_ids)
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        dead = np.zeros(len(self.segment), np.bool_) if self.dead is None else self.dead.copy()
        dead[rows] = True
        return LiveSegment(self.segment, dead, int(np.count_nonzero(dead)))

    def living_rows(self, chunk_ids: Ids) -> npt.NDArray[np.int64]:
        """Return the row of each chunk, -1 where it does not live in this segment."""
        rows = self.segment.positions(chunk_ids)
        if self.dead is None:
            return rows
        return np.where((rows >= 0) & ~self.dead[np.maximum(rows, 0)], rows, -1)

    def alive(self) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return ids and rows of what lives."""
        if self.dead is None:
            return self.segment.ids, np.arange(len(self.segment))
        rows = np.flatnonzero(~self.dead)
        return self.segment.ids[rows], rows


class VectorView:
    """Immutable; searches, scores by id, and the background of a query.

    ``fingerprint`` says whose vectors these are; ``version`` is the kb version up to which
    stored vectors are in. ``background`` rows are chosen by a hash of the chunk ids, so merges
    and restarts choose the same.
    """

    def __init__(
        self,
        segments: tuple[LiveSegment, ...],
        *,
        fingerprint: str | None,
        version: int,
        settings: VectorSettings,
        background: tuple[Ids, Floats32] | None = None,
    ) -> None:
        self.segments = tuple(each for each in segments if len(each))
        self.fingerprint = fingerprint
        self.version = version
        self.settings = settings
        self.rows = sum(len(each) for each in self.segments)
        self.background_rows = self._choose_background() if background is None else background

    def _choose_background(self) -> tuple[Ids, Floats32]:
        if not self.rows:
            return np.empty(0, np.int64), np.empty((0, 1), np.float32)
        best: list[tuple[int, int, int, int]] = []
        for number, each in enumerate(self.segments):
            ids, rows = each.alive()
            keys = spread_hash(ids)
            count = min(BACKGROUND_ROWS, len(ids))
            chosen = np.argpartition(keys, count - 1)[:count]
            best += [(int(keys[i]), int(ids[i]), number, int(rows[i])) for i in chosen]
        best = sorted(best)[:BACKGROUND_ROWS]
        vectors = [
            self.segments[number].segment.vectors(np.asarray([row]))[0]
            for _, _, number, row in best
        ]
        return np.asarray([i for _, i, _, _ in best], np.int64), np.stack(vectors)

    def background(self, query: Floats32) -> float:
        """Return the mean cosine of ``query`` with unrelated chunks: its lower three quarters."""
        vectors = self.background_rows[1]
        if len(vectors) < 4:
            return 0.0
        scores, _ = faiss.knn(query, vectors, len(vectors), metric=faiss.METRIC_INNER_PRODUCT)
        return float(scores[0][int(len(vectors) * (1.0 - _BACKGROUND_SHARE)) :].mean())

    def search(self, query: Floats32, limit: int, rights: Rights) -> tuple[Ids, Floats32]:
        """Return ids and cosines, best first, of at most ``limit`` chunks that may be seen."""
        ids: list[Ids] = []
        scores: list[Floats32] = []
        for each in self.segments:
            usable = self._usable(each, rights)
            found = each.segment.search(query, limit, usable, self.settings)
            ids.append(found[0])
            scores.append(found[1])
        if not ids:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        all_ids, all_scores = np.concatenate(ids), np.concatenate(scores)
        order = np.lexsort((all_ids, -all_scores))[:limit]
        return all_ids[order], all_scores[order]

    def _usable(self, each: LiveSegment, rights: Rights) -> Mask | None:
        alive = None if each.dead is None else ~each.dead
        if not rights.demands:
            return alive
        segment = each.segment
        mask = segment.remembered(rights.demands)
        if mask is None:
            mask = _members(segment.ids, rights.resolve(rights.demands, segment.ids))
            # The word side may lag behind the vectors in a reader: what it cannot tell yet must
            # not be remembered as forbidden.
            if segment.version <= rights.version:
                segment.remember(rights.demands, mask)
        return mask if alive is None else mask & alive

    @property
    def dimensions(self) -> int:
        """Length of the vectors; 0 while there are none."""
        return int(self.segments[0].segment.flat.d) if self.segments else 0

    def stored(self, chunk_ids: Ids) -> tuple[Floats32, Mask]:
        """Return the vector of each chunk, as searches see it, and which have one."""
        vectors = np.zeros((len(chunk_ids), self.dimensions), np.float32)
        known = np.zeros(len(chunk_ids), np.bool_)
        for each in self.segments:
            rows = each.living_rows(chunk_ids)
            held = rows >= 0
            if held.any():
                vectors[held] = each.segment.vectors(rows[held])
                known |= held
        return vectors, known

    def score(self, query: Floats32, chunk_ids: Ids) -> tuple[Floats32, Floats32]:
        """Return the cosine of each chunk, NaN where it has no vector, and the vectors."""
        vectors = np.zeros((len(chunk_ids), self.dimensions), np.float32)
        scores = np.full(len(chunk_ids), np.nan, np.float32)
        for each in self.segments:
            rows = each.living_rows(chunk_ids)
            held = rows >= 0
            if held.all():
                found = each.segment.vectors(rows)
                return found @ query[0], found
            if held.any():
                found = each.segment.vectors(rows[held])
                scores[held] = found @ query[0]
                vectors[held] = found
        return scores, vectors


def _members(ids: Ids, ascending: Ids) -> Mask:
    """Return which of ``ids`` are among ``ascending``."""
    if not len(ascending):
        return np.zeros(len(ids), np.bool_)
    place = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    found: Mask = ascending[place] == ids
    return found


def spread_hash(ids: Ids) -> npt.NDArray[np.uint64]:
    """Return well-mixed 64-bit hashes (splitmix64): a fixed lottery among chunk ids."""
    with np.errstate(over="ignore"):
        mixed = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
