"""Ambiguity: a short question whose hits fall into groups that have nothing in common.

The first link of the chain by which a service fails together is an ambiguous entity ("苹果": fruit
or company, F0.1). Cosines of some embedders are crowded, so likeness is a percentile: the share of
pairs of unrelated chunks that are less alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.kernel.documents import Hit
from forebay.kernel.stages import Likeness, Sense
from forebay.query.language import simplified

MOST_TERMS = 3
MOST_HAN = 8
"""Longer questions say which of the senses they mean."""
MOST_SENSES = 3
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
) -> tuple[Sense, ...]:
    """The senses that the hits show, best first; empty where there is one, or nobody can tell.

    ``related`` and ``unrelated`` are percentiles: hits at least as alike as ``related`` are of one
    group; two groups are rivals when no two of their hits are more alike than ``unrelated``. Each
    group's best hit must name all that is asked for, or it is no sense of it but chance. Where no
    two hits belong together, the question is vague rather than ambiguous.
    """
    terms = _terms(question)
    if not terms or len(hits) < 2 or len(likeness.percentiles) < len(hits):
        return ()
    best = max(hit.score for hit in hits)
    if best <= 0.0:
        return ()
    groups = [
        group
        for group in _groups(len(hits), likeness, related)
        if hits[group[0]].score >= LEAST_SHARE * best and _names(hits[group[0]], terms)
    ]
    rivals: list[tuple[int, ...]] = []
    if len(groups) > MOST_SENSES:
        return ()
    for group in groups:
        if all(_apart(group, other, likeness, unrelated) for other in rivals):
            rivals.append(group)
        else:
            # Something between two groups: they are not unrelated.
            return ()
    if len(rivals) < 2 or max(map(len, rivals)) < 2:
        return ()
    names = [_name(hits[group[0]]) for group in rivals]
    if len(set(names)) < len(names):
        return ()
    return tuple(Sense(name, group) for name, group in zip(names, rivals, strict=True))


def may_be_ambiguous(question: str) -> bool:
    """Whether a question is short enough to mean several things; before any vector is read."""
    return bool(_terms(question))


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


def _groups(count: int, likeness: Likeness, related: float) -> list[tuple[int, ...]]:
    """Single-linkage groups in the order of their best hits."""
    group = list(range(count))
    for one in range(count):
        for other in range(one):
            if likeness.percentiles[one][other] >= related and group[one] != group[other]:
                low, high = sorted((group[one], group[other]))
                group = [low if each == high else each for each in group]
    return [
        tuple(at for at in range(count) if group[at] == name)
        for name in sorted(set(group), key=group.index)
    ]


def _apart(one: Sequence[int], other: Sequence[int], likeness: Likeness, unrelated: float) -> bool:
    return all(likeness.percentiles[a][b] <= unrelated for a in one for b in other)


def _name(hit: Hit) -> str:
    chunk = hit.chunk
    label = " > ".join(
        dict.fromkeys(part for part in (chunk.title, *chunk.heading_path[-1:]) if part)
    )
    return " ".join((label or chunk.document_id).split())[:80]
