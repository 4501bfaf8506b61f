"""How a question names a thing: a modifier and a head, or a number.

"The second pump", 北门, "bus line 48", 三号锅炉: what is said of one thing of a kind is said of no
other, and these are the words that tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import rjieba

from forebay.generation.marks import STATES, han_number, mark_of
from forebay.generation.terms import HAN, WORD_WEIGHT, first_stem, question_terms

WORD = re.compile(rf"[^\W_{HAN}]+(?:['’\-/][^\W_{HAN}]+)*|[,.;:!?()]")
NUMBER_WORD = re.compile(r"\b(?:number|no\.?|nr\.?) ?(?=\d)")
"""Pump number 2 is pump 2."""
_BEFORE = frozenset(
    "the a an our your my his her its their this that these those each every all any no some both "
    "of for in on at to from by with about during per under over between and or than as if , : ; ("
    " is are was were does did do can may must should will has have many much".split()
)
"""What stands before the modifier of a thing; the beginning of a sentence does, too."""
_HELPING = frozenset("do does did can could may might must should will would".split())
_BEING = frozenset("has have had is are was were".split())
_ARTICLES = frozenset("the a an our your my its their".split())
_MONTHS = frozenset(
    "january february march april may june july august september october november december".split()
)
_NEXT = frozenset("during per within until before after since while because up".split())
_LEADING = frozenset("东南西北上下左右")
_ASKING = frozenset("几 多 多少 何 哪 几个".split())
_DIGITS = "[零〇一二两三四五六七八九十百]+"
_HAN_NUMBERED = re.compile(
    rf"(?:第(?P<any>\d+|{_DIGITS})(?P<kind>[{HAN}])"
    rf"|(?P<named>\d+|{_DIGITS})(?P<class>[号期栋座楼代线区组级班]))(?P<what>[{HAN}]{{2}})"
    rf"|(?P<along>\d+|{_DIGITS})(?P<way>路|号线|年级|号楼|车间)"
)
_KNOWN_CHARACTERS = 256
"""Of a text whose words are remembered, some 15 kB."""
Tagged = tuple[int, str, str]


class Pair(msgspec.Struct, frozen=True):
    """A modifier and what it modifies; ``after``: "turbine 2", else "second turbine"."""

    word: str
    head: str
    mark: str | None
    after: bool = False
    sole: bool = False


def pairs(folded: str) -> Iterator[Pair]:
    """Modifiers and what they modify in an English question."""
    words = [match[0] for match in WORD.finditer(NUMBER_WORD.sub("", folded))]
    while words and words[-1] in ".,;:!?":
        words.pop()
    helping = _HELPING | _BEING
    for at, word in enumerate(words[:-1]):
        after = words[at + 1]
        counts = word.isalpha() and word not in _MONTHS and bool(question_terms(word))
        if is_number(after) and counts:
            yield Pair(
                after, first_stem(word), "#" + after if after.isdigit() else None, after=True
            )
        if not question_terms(after) or not after.isalpha() or mark_of(after):
            continue
        last = at + 2 == len(words)
        if at and not (opens(words[at - 1]) or (last and words[at - 1].endswith(("s", "ed")))):
            continue
        mark = mark_of(word)
        # "Did Gegeen appoint": a subject and its verb.
        tells = tells_apart(word) and word not in STATES and not word.endswith("ly")
        if at and words[at - 1] in _HELPING:
            tells = tells and words[at + 2 : at + 3] == ["be"]
        # "Must visitors of the railway office bring": behind the helping verb stands the thing.
        asked = at > 1 and words[at - 1] in _ARTICLES and not helping.isdisjoint(words[: at - 1])
        if mark or (tells and (asked or _ends(words, at + 2))):
            yield Pair(first_stem(word), first_stem(after), mark)


def opens(before: str) -> bool:
    """Whether a phrase about a thing begins behind a word."""
    return before in _BEFORE or before.isdigit()


def _ends(words: list[str], at: int) -> bool:
    if at >= len(words):
        return True
    if at == len(words) - 1 and not _HELPING.isdisjoint(words[:at]):
        # "What does the heavy gate weigh": the last word is the verb.
        return True
    word = words[at]
    return (
        not question_terms(word) or word in _NEXT or word.endswith(("s", "ed")) or word[0].isdigit()
    )


def tells_apart(word: str) -> bool:
    """Whether a word tells things apart: no glue, no everyday word, no number."""
    terms = question_terms(word)
    return bool(terms) and terms[0].weight >= WORD_WEIGHT and not word[0].isdigit()


def is_number(word: str, *, letter: bool = False) -> bool:
    """Whether a word numbers what stands before it; ``letter``: even where it may be an article."""
    return word.isdigit() or (len(word) == 1 and word.isalpha() and (letter or word not in "ais"))


def tagged(folded: str) -> Sequence[Tagged]:
    """The words of a text: where each begins, the word, its part of speech."""
    return _known_tokens(folded) if len(folded) <= _KNOWN_CHARACTERS else _tag(folded)


def _tag(folded: str) -> Sequence[Tagged]:
    at, found = 0, []
    for word, kind in rjieba.tag(folded, False):
        found.append((at, word, kind))
        at += len(word)
    return tuple(found)


_known_tokens = lru_cache(maxsize=512)(_tag)


def numbered(folded: str) -> dict[tuple[str, str], set[int]]:
    """Numbers of things by what is numbered: 3号锅炉, 二期工程, 第一台风机, 21路."""
    found: dict[tuple[str, str], set[int]] = {}
    for match in _HAN_NUMBERED.finditer(NUMBER_WORD.sub("", folded)):
        written = match["any"] or match["named"] or match["along"]
        value = int(written) if written.isdecimal() else han_number(written)
        kind = match["kind"] or match["class"] or match["way"]
        found.setdefault((kind, match["what"] or ""), set()).add(value)
    return found


def in_verb(tokens: Sequence[Tagged], at: int) -> bool:
    """Whether a character is part of a verb: 上班 is no shift."""
    return any(
        kind[0] == "v" and len(word) > 1
        for begin, word, kind in tokens
        if begin <= at < begin + len(word)
    )


def han_pairs(folded: str) -> Iterator[Pair]:
    """The same in a Chinese question, by the kinds of its words."""
    tokens = [(word, kind) for word, kind in rjieba.tag(folded.removeprefix("请问"), False)]
    first = True
    for at, (word, kind) in enumerate(tokens):
        marked = bool(at) and len(word) == 1 and mark_of(tokens[at - 1][0]) is not None
        if (kind[0] not in "ns" and not marked) or (len(word) > 1 and not question_terms(word)):
            continue
        if len(word) in (2, 3) and word[0] in _LEADING:
            yield Pair(word[0], word[1:], mark_of(word[0]))
        elif first and len(word) in (2, 3) and at == 0 and kind in ("n", "ns", "t", "nt", "s"):
            yield Pair(word[:-1], word[-1], mark_of(word), sole=True)
        first = False
        before = at - 1
        while before >= 0 and (tokens[before][0] == "的" or tokens[before][1] == "q"):
            before -= 1
        if before < 0:
            continue
        other, other_kind = tokens[before]
        mark = mark_of(other)
        # Names of people and what is tagged as such are spelled in more than one way.
        tells = other_kind[0] in "nbts" and other_kind != "nr" and len(other) > 1
        if mark or (tells and tells_apart(other) and tells_apart(word)):
            yield Pair(other, word, mark)
        elif (
            len(word) == 1
            and before == at - 1
            and other_kind[0] in "vmt"
            and (len(other) == 1 or question_terms(other))
            and other not in _ASKING
        ):
            yield Pair(other, word, None, sole=True)


def is_thing(word: str) -> bool:
    """Whether a Chinese word is a noun."""
    return all(kind[0] == "n" for _, _, kind in tagged(word))


def names_kind(word: str) -> bool:
    """Whether a Chinese word may say which of a kind is meant: a noun, a number of things."""
    return all(kind[0] in "nmbq" for _, _, kind in tagged(word))
