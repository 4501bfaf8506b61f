"""Ambiguity: a short question whose hits fall into groups that have nothing in common.

The first link of the chain by which a service fails together is an ambiguous entity ("苹果": fruit
or company, F0.1). Cosines of some embedders are crowded, so likeness is a percentile: the share of
pairs of unrelated chunks that are less alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from forebay.folding import simplified
from forebay.kernel.documents import Hit
from forebay.kernel.stages import Likeness, Sense

MOST_TERMS = 3
MOST_CHARACTERS = 80
MOST_HAN = 8
"""Longer questions say which of the senses they mean."""
MOST_SENSES = 3
MOST_HITS = 6
LEAST_SHARE = 0.5
"""A sense whose best hit scores less than this share of the best one's is no rival to it."""

_TERM = re.compile(r"[A-Za-z0-9][\w.+#-]*|[\u3400-\u9fff]+")
_FILLER = re.compile(
    r"\b(?:what|who|where|which|how|is|are|was|were|the|a|an|do|does|did|about|tell|me|of|please|"
    r"can|"
    r"you|explain|describe|information|on|much|many|to|i|we|it|in|there)\b"
    r"|什么是|是什么|介绍一下|介绍|请问|关于|告诉我|说说|有哪些|有什么|怎么样|多少|怎么|如何|"
    r"在哪里?|是谁|谁|的|吗|呢|了|有|是",
    re.IGNORECASE,
)


def senses_of(
    question: str,
    hits: Sequence[Hit],
    likeness: Likeness,
    *,
    related: float,
    unrelated: float,
    lone: float,
) -> tuple[Sense, ...]:
    """The senses that the hits show, best first; empty where there is one, or nobody can tell.

    ``related``, ``unrelated`` and ``lone`` are percentiles. Hits are grouped by average linkage
    for as long as two groups are more alike than ``unrelated``; what is left apart are rivals. A
    single hit is more easily apart by chance than two that belong together: it is a rival where it
    is no more alike to any group than ``lone``. The hits of a group must be as alike as
    ``related``, and one group must be more than one hit: where no two belong together, the question
    is vague rather than ambiguous. Each group's best hit must name all that is asked for, or it is
    no sense of it but chance.
    """
    terms = _terms(question)
    if not terms or len(hits) < 2 or len(likeness.percentiles) < len(hits):
        return ()
    least = LEAST_SHARE * max(hit.score for hit in hits)
    rivals = [at for at, hit in enumerate(hits) if hit.score >= least > 0.0 and _names(hit, terms)]
    groups = _groups(rivals[:MOST_HITS], likeness, unrelated, lone)
    within = [_within(group, likeness) for group in groups if len(group) > 1]
    if not 2 <= len(groups) <= MOST_SENSES or not within or min(within) < related:
        return ()
    names = [_name(hits[group[0]]) for group in groups]
    if len(set(names)) < len(names):
        return ()
    return tuple(Sense(name, group) for name, group in zip(names, groups, strict=True))


def may_be_ambiguous(question: str) -> bool:
    """Whether a question is short enough to mean several things; before any vector is read."""
    return len(question) <= MOST_CHARACTERS and bool(_terms(question))


def _terms(question: str) -> tuple[str, ...]:
    """What a short question names, folded; empty for one that says more."""
    found = _TERM.findall(_FILLER.sub(" ", simplified(question).casefold()))
    terms = tuple(dict.fromkeys(found))
    if not terms or len(terms) > MOST_TERMS or sum(map(len, terms)) > 40:
        return ()
    han = sum(len(term) for term in terms if not term.isascii())
    return terms if han <= MOST_HAN else ()


def _names(hit: Hit, terms: Sequence[str]) -> bool:
    chunk = hit.chunk
    text = simplified(f"{chunk.title}\n{' '.join(chunk.heading_path)}\n{chunk.text}".casefold())
    return all(term in text for term in terms)


def _groups(
    places: Sequence[int], likeness: Likeness, unrelated: float, lone: float
) -> list[tuple[int, ...]]:
    """Average-linkage groups of hits, in the order of their best."""
    groups: list[tuple[int, ...]] = [(at,) for at in places]
    groups = _joined(groups, likeness, unrelated, among=lambda one, other: True)
    return _joined(groups, likeness, lone, among=lambda one, other: 1 in (len(one), len(other)))


def _joined(
    groups: list[tuple[int, ...]],
    likeness: Likeness,
    most: float,
    *,
    among: Callable[[Sequence[int], Sequence[int]], bool],
) -> list[tuple[int, ...]]:
    """The groups, those that are more alike than ``most`` made one, the most alike first."""
    while True:
        pairs = [
            (_between(groups[a], groups[b], likeness), b, a)
            for a in range(len(groups))
            for b in range(a)
            if among(groups[a], groups[b])
        ]
        alike, one, other = max(pairs, default=(0.0, 0, 0))
        if alike <= most:
            return groups
        joined = tuple(sorted(groups[one] + groups[other]))
        groups = [each for at, each in enumerate(groups) if at not in (one, other)]
        groups = sorted([*groups, joined])


def _between(one: Sequence[int], other: Sequence[int], likeness: Likeness) -> float:
    rows = likeness.percentiles
    return sum(rows[a][b] for a in one for b in other) / (len(one) * len(other))


def _within(group: Sequence[int], likeness: Likeness) -> float:
    pairs = [likeness.percentiles[a][b] for a in group for b in group if a < b]
    return sum(pairs) / len(pairs)


def _name(hit: Hit) -> str:
    chunk = hit.chunk
    label = " > ".join(
        dict.fromkeys(part for part in (chunk.title, *chunk.heading_path[-1:]) if part)
    )
    return " ".join((label or chunk.document_id).split())[:80]
