"""Whether a cached retrieval stands after a change: decided from numbers, without a search.

Hits are the best of both legs' candidates by one fused score, monotone in each leg. With the
statistics of the query pinned they can only change when

- a candidate goes away or changes (then one that nobody knows may take its place),
- a new candidate's fused score reaches the last hit's,
- a new candidate pushes a hit off the only list that holds it, or
- what fusion reads off the lists changes: the two best by words, the best by meaning, and how many
  of the legs' first ten are common.

When none of this happens, the lists with the new candidates in their places are what a fresh
retrieval would find, so that the next change can be judged by them. Near-ties count as changes.

Real statistics drift with every change, though, and shift close scores past each other: a
retrieval is trusted the less of that the closer its hits are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.caching import Arrival, Changes, Evidence, LegList

_COMPARED = 10
"""Fusion compares so many of each leg's best, and looks at the two best by words."""
_WORDS_TIE = 1e-9
_COSINE_TIE = 1e-5
_FUSED_TIE = 1e-5
"""Closer scores may come out in another order: cosines are sums of 32-bit products."""


class CarryingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a cached retrieval is trusted while the statistics of its knowledge base drift."""

    drift_max: Annotated[
        float,
        Meta(
            description="Share of chunks that may come or go before a retrieval is done anew.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.05
    lead_min: Annotated[
        float,
        Meta(
            description="Lead each hit needs over the next, in fused score, to outlast any change.",
            ge=0.0,
        ),
    ] = 0.00005
    lead_per_drift: Annotated[
        float,
        Meta(
            description="Lead each hit needs beyond that, per share of chunks that came or went.",
            ge=0.0,
        ),
    ] = 0.02
    lead_per_shift: Annotated[
        float,
        Meta(
            description="Lead each hit needs beyond that, per fused score by which words may have "
            "shifted.",
            ge=0.0,
        ),
    ] = 0.25


DEFAULTS = CarryingSettings()


def carried(
    evidence: Evidence, changes: Changes, wanted: int, settings: CarryingSettings = DEFAULTS
) -> Evidence | None:
    """Return what ``wanted`` hits rest on after ``changes``; None: they may be others now.

    The result is for ``changes.version``; its hits are those of ``evidence``, in their order.
    """
    found = evidence.fused
    # What was chosen from more than is wanted rests on all of those.
    wanted = max(wanted, evidence.chosen_from)
    moved, shift = evidence.moved + changes.moved, evidence.shift + changes.shift
    if _drifted(evidence, (moved, shift), settings) or (wanted > len(found.ids) and found.full):
        return None
    if _disturbed(evidence, changes):
        return None
    hits = LegList(found.ids[:wanted], found.scores[:wanted], len(found.ids) >= wanted)
    kept = msgspec.structs.replace(evidence, fused=hits, moved=moved, shift=shift)
    return _with_arrivals(kept, changes.arrivals) if changes.arrivals else kept


def _drifted(evidence: Evidence, change: tuple[int, float], settings: CarryingSettings) -> bool:
    """Whether today's statistics may order the hits in another way than the pinned ones.

    ``change``: chunks that came or went, and how far words have shifted.
    """
    moved, shift = change
    if not moved:
        return False
    drift = moved / max(1, evidence.chunks)
    lead = settings.lead_min + settings.lead_per_drift * drift + settings.lead_per_shift * shift
    return drift > settings.drift_max or evidence.lead < lead


def _disturbed(evidence: Evidence, changes: Changes) -> bool:
    """Whether a candidate went away or is another now.

    One that only words proposed, that is no hit and that has another vector now is judged as new.
    """
    words, vectors, removed = evidence.words.ids, evidence.vectors, changes.removed
    if not removed.isdisjoint(words):
        return True
    came = {a.chunk_id for a in changes.arrivals}
    if vectors is None:
        return not came.isdisjoint(words)
    altered = changes.altered
    for ids in (vectors.ids, evidence.fused.ids):
        if not (removed.isdisjoint(ids) and altered.isdisjoint(ids) and came.isdisjoint(ids)):
            return True
    return altered.intersection(words) != came.intersection(words)


def _with_arrivals(evidence: Evidence, arrivals: tuple[Arrival, ...]) -> Evidence | None:
    """Put candidates that are no hits in their places; None when that cannot be all."""
    hits = evidence.fused
    # With fewer hits than wanted every candidate is one.
    if not hits.full or not all(a.fused < hits.scores[-1] - _FUSED_TIE for a in arrivals):
        return None
    lead = min(evidence.lead, *(hits.scores[-1] - a.fused for a in arrivals))
    evidence = msgspec.structs.replace(evidence, lead=lead)
    limit = evidence.limit
    came = {a.chunk_id: a.words for a in arrivals if a.words > 0.0}
    words = _joined(evidence.words, came, limit, _WORDS_TIE)
    if words is None or words.ids[:2] != evidence.words.ids[:2]:
        return None
    if evidence.vectors is None:
        return msgspec.structs.replace(evidence, words=words)
    meant = {a.chunk_id: a.cosine for a in arrivals if a.cosine is not None}
    vectors = _joined(evidence.vectors, meant, limit, _COSINE_TIE)
    if vectors is None or vectors.ids[:1] != evidence.vectors.ids[:1]:
        return None
    if _common(words, vectors) != _common(evidence.words, evidence.vectors):
        return None
    if not set(hits.ids) <= {*words.ids, *vectors.ids}:
        return None
    return msgspec.structs.replace(evidence, words=words, vectors=vectors)


def _joined(found: LegList, came: Mapping[int, float], limit: int, tie: float) -> LegList | None:
    """Return the list with new entries in their places; None when a near-tie leaves that open."""
    fresh = came.keys() - found.ids
    if not fresh:
        return found
    pairs = [*zip(found.scores, found.ids, strict=True), *((came[i], i) for i in fresh)]
    pairs.sort(key=lambda pair: (-pair[0], pair[1]))
    for better, worse in pairwise(pairs):
        if better[0] - worse[0] <= tie and not fresh.isdisjoint((better[1], worse[1])):
            return None
    kept = pairs[:limit]
    return LegList(
        tuple(chunk_id for _, chunk_id in kept),
        tuple(score for score, _ in kept),
        len(kept) >= limit,
    )


def _common(words: LegList, vectors: LegList) -> int:
    return len(set(words.ids[:_COMPARED]).intersection(vectors.ids[:_COMPARED]))
