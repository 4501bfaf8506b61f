"""Namesakes: things of one name among the hits, told apart by what their titles say beside it.

"Who is responsible for Atlas?" where one document is about the Atlas forklift and another about the
Atlas project. Titles alone say that there are two; that the question means neither rather than the
other is told by their scores, which are as good as the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forebay.folding import simplified
from forebay.kernel.documents import Hit
from forebay.kernel.stages import Sense

MOST_UNCLEAR_CHARACTERS = 80
"""Longer questions say which thing they mean."""
MOST_LABEL_CHARACTERS = 80
MOST_SENSES = 3
MOST_HITS = 6
LEAST_SHARE = 0.9
"""Of the best hit's score: what scores less answers the question less well."""

_TERM = re.compile(r"[a-z0-9][\w.+#-]*|[\u3400-\u9fff]+", re.ASCII)
_SEVERAL = re.compile(
    r"\b(?:which|list|all|every|each|both|kinds?|types?|any)\b|哪|[几每]种|都有|所有|各|分别|都是",
    re.IGNORECASE,
)
"""Whoever asks for several, or which, is told of all."""
_FILLER = re.compile(
    r"\b(?:what|who|whose|where|when|why|how|is|are|was|were|the|an?|do|does|did|about|tell|me|my|"
    r"of|please|can|could|you|i|we|it|its|in|on|at|to|for|from|with|by|and|or|there|much|many|long)\b"
    r"|什么|介绍一下|介绍|请问|关于|告诉我|怎么样|怎么|如何|多少|是谁|谁|[的吗呢了是有在由被和与几]"
)
_KINDS = frozenset(
    "manual guide handbook faq sheet data specification overview introduction instruction version "
    "installation operation maintenance part edition note release draft policy rule appendix "
    "手册 指南 说明 明书 参数 数表 规格 问答 常见 见问 问题 概述 简介 规定 制度 附录 版本 安装 "
    "操作 维护".split()
)
"""What kind of document it is, and not what it is about."""
_BEHIND = re.compile(r"\s*[:：]\s*|\s+[–—-]+\s+")
"""A title goes on with what it says of the thing it has named."""


class _Rival(NamedTuple):
    """What a hit is called, the part of that which the question names, and the rest."""

    label: str
    named: frozenset[str]
    rest: frozenset[str]


def namesakes(question: str, hits: Sequence[Hit]) -> tuple[Sense, ...]:
    """The things of one name that the best hits are about; empty where nobody need ask.

    They are named by the question alike, by a part of their titles, and each has a rest that the
    other has not: no other edition of the same, nothing that the other's title is a part of.
    """
    if len(hits) < 2 or len(question) > MOST_UNCLEAR_CHARACTERS or _SEVERAL.search(question):
        return ()
    least = LEAST_SHARE * hits[0].score
    near = [at for at, hit in enumerate(hits[:MOST_HITS]) if hit.score >= least > 0.0]
    if len(near) < 2:
        return ()
    asked = pieces(question)
    rivals = {at: _rival(hits[at], asked) for at in near}
    named = rivals[near[0]].named
    if not any(piece.isalpha() for piece in named):  # a number alone is no name
        return ()
    things: dict[frozenset[str], list[int]] = {}
    for at, rival in rivals.items():
        if rival.named == named:
            things.setdefault(rival.rest, []).append(at)
    if not 2 <= len(things) <= MOST_SENSES or any(a <= b for a in things for b in things if a != b):
        return ()
    return tuple(Sense(rivals[group[0]].label, tuple(group)) for group in things.values())


@lru_cache(maxsize=4096)
def pieces(text: str) -> frozenset[str]:
    """What a short text names: words without their plural, and pairs of Han characters."""
    return frozenset(_pieces(_FILLER.sub(" ", simplified(text).casefold())))


def _pieces(plain: str) -> Iterator[str]:
    for term in _TERM.findall(plain):
        if not term.isascii() and len(term) > 1:
            yield from (a + b for a, b in pairwise(term))
        else:
            yield term[:-1] if len(term) > 3 and term.endswith("s") else term


def _rival(hit: Hit, asked: frozenset[str]) -> _Rival:
    chunk = hit.chunk
    best = _Rival("", frozenset(), frozenset())
    for label in (chunk.title, *chunk.heading_path):
        thing, found, own = _called(label[: 2 * MOST_LABEL_CHARACTERS])
        named = found & asked
        if len(named) > len(best.named):
            best = _Rival(thing, named, own - asked)
    return best


@lru_cache(maxsize=4096)
def _called(label: str) -> tuple[str, frozenset[str], frozenset[str]]:
    """A label to show, what it names, and what of that sets things apart: no edition or year."""
    thing = " ".join(label.split())[:MOST_LABEL_CHARACTERS]
    named = pieces(_BEHIND.split(thing)[0])
    return thing, named, frozenset(one for one in named - _KINDS if not one.isdigit())
