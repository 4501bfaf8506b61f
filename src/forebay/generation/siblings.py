"""Whether what would be quoted is about another thing of the kind that is asked about.

The south gate is asked about, and only the north gate is known; the leave of mothers, and only
that of all. A word of the question that no passage holds counts where the same place beside a
word that is held is taken by another: "north" before "gate", "pumps" after "warranty of".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import mul

import rjieba

from forebay.generation.marks import STATES
from forebay.generation.passages import Unit
from forebay.generation.support import Scored
from forebay.generation.terms import (
    HAN,
    MAX_QUESTION_CHARACTERS,
    WORD_WEIGHT,
    Term,
    first_stem,
    question_terms,
    stems,
)

_WORD = re.compile(rf"[^\W_{HAN}]+(?:['’-][^\W_{HAN}]+)*|[,.;:!?]")
_HAN_RUN = re.compile(f"[{HAN}]+")
_LINKS = frozenset(("of", "for"))
_ARTICLES = frozenset(("the", "a", "an", "our", "your"))
_TWO_OF_A_KIND = "东南西北左右新旧男女甲乙丙丁春夏秋冬正副"

_VERB_NEXT = frozenset(
    "who what was were be been to not has have had can could may might must should will".split()
)
"""After these stands a verb, no name of a kind: "who won the", "was built in"."""


def is_another(
    question: str, terms: Sequence[Term], held: Sequence[float], chosen: Sequence[Scored]
) -> bool:
    """Whether the fullest of ``chosen``, and all others of that kind of thing, tell of a sibling.

    ``held`` says how much of each term the passage that holds most of it has, 0..1.
    """
    question = question[:MAX_QUESTION_CHARACTERS]
    missing = {term.key: term for term, have in zip(terms, held, strict=True) if have <= 0.0}
    if not missing:
        return False
    known = {term.key for term, have in zip(terms, held, strict=True) if have >= 1.0}
    weights = [term.weight for term in terms]
    fullest_first = sorted(chosen, key=lambda one: -sum(map(mul, weights, one.own)))
    units = [one.unit for one in fullest_first]
    return (
        _another_word(question, missing, known, units)
        or _another_half(question, missing, known, units)
        or _another_compound(question, terms, missing, units)
    )


def _another_word(
    question: str, missing: Mapping[str, Term], known: set[str], units: Sequence[Unit]
) -> bool:
    asked = stems(question)
    places = [
        (link, head)
        for link, head, word in _places(question)
        if head in known
        and head.isalpha()
        and word in missing
        and missing[word].weight == WORD_WEIGHT
    ]
    about = [(unit.stems, unit.known(_all_places)) for unit in units] if places else []
    return any(
        head in units[0].stems
        and all(
            any(
                (linked, of) == (link, head) and word not in asked and _tells_apart(word)
                for linked, of, word in found
            )
            for held, found in about
            if head in held
        )
        for link, head in places
    )


def _tells_apart(word: str) -> bool:
    terms = question_terms(word)
    return bool(terms) and terms[0].weight >= WORD_WEIGHT and word.isalpha()


def _places(text: str) -> Iterable[tuple[bool, str, str]]:
    """(linked, head, word) for "the word head" and "head of the word", as stems.

    Only where a phrase begins before them and ends behind: "the south gate is", and not "the
    south gate keeper". A phrase ends before the last word of all, too: "does the gate weigh".
    """
    words = [match[0].lower() for match in _WORD.finditer(text)]
    while words and words[-1] in ".,;:!?":
        words.pop()
    ends = [not question_terms(word) for word in words] + [True]
    ends[-2:-1] = [True] * bool(words)
    for at in range(len(words) - 1):
        before = words[at - 1] if at else ""
        begins = before not in _VERB_NEXT and (not question_terms(before) or before.isdigit())
        tells = words[at] not in STATES and not words[at].endswith("ly")
        if begins and tells and (ends[at + 2] or words[at + 2].endswith("s")):
            yield False, first_stem(words[at + 1]), first_stem(words[at])
        if at and words[at] in _LINKS:
            after = at + 1 + (words[at + 1] in _ARTICLES)
            if after < len(words) and ends[after + 1]:
                yield True, first_stem(words[at - 1]), first_stem(words[after])


def _all_places(unit: Unit) -> frozenset[tuple[bool, str, str]]:
    return frozenset(_places(unit.text))


def _another_half(
    question: str, missing: Mapping[str, Term], known: set[str], units: Sequence[Unit]
) -> bool:
    """南闸门 for 北闸门; 电机的保修期 for 阀门的保修期; in rows 广州服务中心 for 上海服务中心."""
    opening = question.removeprefix("请问")
    for head in known:
        for word in missing:
            if word in _TWO_OF_A_KIND and f"{word}{head}" in question:
                other = re.compile(f"[{_TWO_OF_A_KIND}]{head}")
            elif len(word) > 1 and opening.startswith(f"{word}的{head}"):
                other = re.compile(f"[{HAN}]的{head}")
            elif len(word) > 1 and f"{word}{head}" in question and units[0].kind == "row":
                other = re.compile(f"[{HAN}]{head}")
            else:
                continue
            about = [unit for unit in units if head in unit.folded]
            if units[0] in about and all(other.search(unit.folded) for unit in about):
                return True
    return False


def _another_compound(
    question: str, terms: Sequence[Term], missing: Mapping[str, Term], units: Sequence[Unit]
) -> bool:
    """产假 for 年假: where it is all that the question asks about."""
    words = [term for term in terms if term.weight >= WORD_WEIGHT]
    if len(words) != 1 or words[0].key not in missing or not words[0].han:
        return False
    asked = words[0].key
    found = {
        word
        for unit in units
        for run in _HAN_RUN.findall(unit.folded)
        for word in rjieba.cut(run, False)
        if len(word) == len(asked) and word[-1] == asked[-1] and word not in question
    }
    return bool(found)
