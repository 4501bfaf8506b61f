"""Whether a statement tells of another thing of the kind that is asked about.

The second pump is asked about, and the sentence tells of the first: the place beside a word that
both hold is taken by another word. Where question and statement are in different scripts, what
needs no translation is compared, codes and marks of closed classes (``marks``), and what a list of
common words knows (``lexicon``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from forebay.generation.labels import is_of_another, labels
from forebay.generation.lexicon import lexicon
from forebay.generation.marks import STATES, groups_of, mark_of, marks
from forebay.generation.passages import Unit
from forebay.generation.quantities import dated
from forebay.generation.ranges import amounts, excluded
from forebay.generation.terms import (
    HAN,
    MAX_QUESTION_CHARACTERS,
    NAME_WEIGHT,
    WORD_WEIGHT,
    Term,
    abbreviates,
    first_stem,
    fold,
    stems,
)
from forebay.generation.things import (
    NUMBER_WORD,
    WORD,
    Pair,
    Tagged,
    han_pairs,
    in_verb,
    is_number,
    numbered,
    opens,
    pairs,
    tagged,
    tells_apart,
)

_CODE = re.compile(r"(?<![a-z\d])([a-z]{1,6})-?(\d{1,6})([a-z]{0,3})(?![a-z\d])")
_DIGITS = re.compile(r"\d+")
_HAN_CHARACTER = re.compile(f"[{HAN}]")
_NUMBERED = re.compile(r"\b([a-z]{3,}) (\d{1,3}|[a-z])\b(?![.,:]\d| ?%)")
_HELD = 0.4
_COMPOUND = 4  # characters of a Chinese word and its modifier
_PRONOUN = re.compile(r"(?:it|its|they|their|this|he|she)\b|[它他她其该]")
_ONE_THING = {True: 64, False: 150}
"""Characters beyond which a sentence (Chinese, other) tells of several things."""


class Subject:
    """What a question asks about, read once and compared with every statement."""

    def __init__(self, question: str, terms: Sequence[Term]) -> None:
        self.question = question[:MAX_QUESTION_CHARACTERS]
        folded = fold(self.question)
        self.amounts = amounts(question, terms)
        self._terms = [term for term in terms if term.weight >= WORD_WEIGHT]
        self._stems = stems(folded)
        self._folded = folded
        self._asking = folded.removeprefix("请问").strip()
        self._han = _HAN_CHARACTER.search(folded) is not None
        self._codes = set(_CODE.findall(folded))
        self._dated = {number for one in dated(folded) for number in _DIGITS.findall(one)}
        self._labels = labels(folded) if any(map(str.isdigit, folded)) else {}
        self._pairs = tuple(han_pairs(folded) if self._han else pairs(folded))
        self._numbered = numbered(folded) if self._han else {}
        self._marks: dict[str, set[str]] | None = None
        self._abroad: list[tuple[frozenset[str], frozenset[str]]] | None = None

    def is_another(self, unit: Unit, head: Unit) -> bool:
        """Whether ``unit``, under the title and headings ``head``, tells of a sibling."""
        if unit.kind not in ("sentence", "item", "row"):
            return False
        if self.is_labelled_otherwise(unit, head):
            return True
        if self.amounts and excluded(unit, self.amounts):
            return True
        if unit.kind == "row":
            return False
        han = unit.in_han
        if han != self._han:
            return self._another_mark(unit, head) or self._another_abroad(unit, head, han=han)
        if len(unit.text) > _ONE_THING[han]:
            # It tells of several things, and names each in more than one way.
            return False
        if (han and self._numbered) and any(
            key in self._numbered and not values & self._numbered[key]
            for key, values in numbered(unit.folded).items()
        ):
            return True
        taken = self._taken_han if han else self._taken
        return bool(self._pairs) and any(
            taken(pair, unit, head) and not (han and _in_full(pair, unit)) for pair in self._pairs
        )

    def is_labelled_otherwise(self, unit: Unit, head: Unit) -> bool:
        """Whether a unit, or what it stands under, has another code, version or year."""
        return (bool(self._codes) and self._another_code(unit, head)) or (
            bool(self._labels) and is_of_another(self._labels, unit, head)
        )

    def agrees(self, unit: Unit) -> bool:
        """Whether a unit holds a code or a mark of the question, in whatever language."""
        if self._codes and self._codes & unit.known(_codes):
            return True
        mine = self._all_marks()
        if not mine:
            return False
        there = unit.known(_marks_by_text)
        return any(names & there.get(group, set()) for group, names in mine.items())

    def _all_marks(self) -> dict[str, set[str]]:
        if self._marks is None:
            self._marks = _all_marks(self._folded, han=self._han)
        return self._marks

    def asked_of(
        self, terms: Sequence[Term], held: Sequence[float], statements: Sequence[Unit]
    ) -> list[int]:
        """Which terms are no part of what is asked about, by what statements hold of each.

        Names, codes and what pairs of held words consist of are what is asked about; so is what a
        Chinese question begins with, as far as it stands in a statement in one piece.
        """
        there = {term.key for term, have in zip(terms, held, strict=True) if have >= _HELD}
        about: set[str] = set()
        for pair in self._pairs:
            if self._han:
                parts = {key for key in there if key in pair.word + pair.head or pair.head in key}
                about |= parts if any(pair.head in key for key in parts) else set()
            elif {pair.word, pair.head} <= there:
                about |= {pair.word, pair.head}
        if self._han:
            about |= {key for key in there if key in self._begun(statements)}
        return [
            at
            for at, term in enumerate(terms)
            if term.weight < NAME_WEIGHT and term.key not in about and not self.in_code(term.key)
        ]

    def starts_with(self, key: str) -> bool:
        """Whether a Chinese question begins with a word."""
        return self._asking.startswith(key)

    def begins(self, statements: Sequence[Unit]) -> bool:
        """Whether a statement has the compound that a Chinese question begins with."""
        return self._han and len(self._begun(statements)) >= _COMPOUND

    def _begun(self, statements: Sequence[Unit]) -> str:
        """The longest beginning of the question that stands in a statement."""
        size, texts = 0, [one.folded for one in statements]
        while size < len(self._asking):
            texts = [text for text in texts if self._asking[: size + 1] in text]
            if not texts:
                break
            size += 1
        return self._asking[:size]

    def dates(self, key: str) -> bool:
        """Whether a number is part of a date or time, which is written in many ways."""
        return key in self._dated

    def modifies(self, key: str, unit: Unit, titles: str) -> bool:
        """Whether what stands behind a Chinese word of the question stands in a unit, or above it:
        the word says which of several is meant.
        """
        after = self._folded.partition(key)[2].removeprefix("的")[:1]
        return bool(_HAN_CHARACTER.match(after)) and (after in unit.folded or after in titles)

    def in_code(self, key: str) -> bool:
        """Whether a term is a code of the question, or part of one."""
        return any(key.replace("-", "") in (*code[:2], "".join(code)) for code in self._codes)

    def _another_code(self, unit: Unit, head: Unit) -> bool:
        # What stands under the title of another model is said of that one.
        there = unit.known(_codes) or head.known(_codes)
        if not there or there & self._codes or head.known(_codes) & self._codes:
            return False
        return {code[0] for code in there} >= {code[0] for code in self._codes}

    def _another_mark(self, unit: Unit, head: Unit) -> bool:
        if len(unit.text) > _ONE_THING[unit.in_han]:
            return False
        mine = self._all_marks()
        if not mine:
            return False
        there, above = unit.known(_marks_by_folded), head.known(_marks_above)
        return any(
            group in there and not (there[group] | above.get(group, set())) & names
            for group, names in mine.items()
        )

    def _another_abroad(self, unit: Unit, head: Unit, *, han: bool) -> bool:
        """Whether another word than the question's stands before its thing, as far as words of the
        other script are known.
        """
        if len(unit.text) > _ONE_THING[han]:
            return False
        taken = self._taken_han if han else self._taken
        for word, things in self._pairs_abroad():
            if word and any(one.holds_abroad((word,), han=han) for one in (unit, head)):
                continue
            there = [one for one in things if (one in unit.folded if han else one in unit.stems)]
            if (
                there
                and all(taken(Pair("\0", one, None), unit, head) for one in there)
                and all(
                    self._is_other(before)
                    for one in there
                    for before in _before(unit, one, han=han)
                )
            ):
                return True
        return False

    def _pairs_abroad(self) -> list[tuple[frozenset[str], frozenset[str]]]:
        """What the question's modifiers, and what they modify, may be in the other script; an
        unknown modifier is nothing.
        """
        if self._abroad is None:
            of = lexicon().of
            found = [
                (of(Term(pair.word, 1.0, self._han)), of(Term(pair.head, 1.0, self._han)))
                for pair in self._pairs
                if not pair.after and not pair.mark and pair.word.isalpha()
            ]
            self._abroad = [
                (words[-1] if words else frozenset(), things[-1])
                for words, things in found
                if len(words) < 2 and things
            ]
        return self._abroad

    def _is_other(self, word: str) -> bool:
        """Whether a word of the other script is known to say nothing that the question says."""
        parts = lexicon().of(Term(word, 1.0, not self._han))
        if self._han:
            return any(not any(one in self._folded for one in part) for part in parts)
        return any(part.isdisjoint(self._stems) for part in parts)

    def _taken(self, pair: Pair, unit: Unit, head: Unit) -> bool:
        if pair.head not in unit.stems or pair.word in head.stems:
            return False
        # "40 litres per second" is no second pump.
        if pair.word in unit.stems and not pair.mark:
            return False
        words = [match[0] for match in WORD.finditer(NUMBER_WORD.sub("", unit.folded))]
        found = False
        for at, word in enumerate(words):
            if first_stem(word) != pair.head:
                continue
            if pair.after:
                number = words[at + 1] if at + 1 < len(words) else ""
                taken = number != pair.word and is_number(number, letter=pair.word.isalpha())
            else:
                taken = self._modified(words, at, pair) and not any(
                    pair.mark and mark_of(word) == pair.mark for word in words[max(0, at - 4) : at]
                )
            if not taken:
                return False
            found = True
        return found

    def _modified(self, words: list[str], at: int, pair: Pair) -> bool:
        """Whether another word than the question's stands before a head."""
        word = words[at - 1] if at else ""
        if not word or not (at < 2 or opens(words[at - 2])) or first_stem(word) in self._stems:
            return False
        if pair.mark:
            # "Right answers" and "correct answers" are no two kinds.
            mark = mark_of(word)
            return mark is not None and bool(groups_of(pair.mark) & groups_of(mark))
        return tells_apart(word) and word not in STATES

    def _taken_han(self, pair: Pair, unit: Unit, head: Unit) -> bool:
        folded = unit.folded
        if pair.head not in folded or pair.word + pair.head in folded:
            return False
        if pair.word in head.folded or (len(pair.word) > 1 and pair.word in folded):
            return False
        if pair.sole and not self._all_else(pair, unit):
            return False
        if pair.mark and any(pair.mark in names for names in marks(folded).values()):
            return False
        found = False
        tokens = tagged(folded)
        for match in re.finditer(re.escape(pair.head), folded):
            if len(pair.head) == 1 and in_verb(tokens, match.start()):
                continue
            if not self._modified_han(tokens, folded, match.start(), pair):
                return False
            found = True
        return found

    def _modified_han(self, tokens: Sequence[Tagged], folded: str, start: int, pair: Pair) -> bool:
        before = start - (folded[start - 1 : start] == "的")
        at = next((i for i, (begin, word, _) in enumerate(tokens) if begin < before <= begin +
                   len(word)), None)  # fmt: skip
        if at is None:
            return False
        begin, word, kind = tokens[at]
        inside = begin + len(word) > before
        word = word[: before - begin]
        if kind == "q" and at:
            begin, word, kind = tokens[at - 1]
        if word in self._folded:
            return False
        mark = mark_of(word) or (mark_of(word + pair.head) or mark_of(word[-1]) if inside else None)
        if pair.mark:
            return mark is not None and bool(groups_of(pair.mark) & groups_of(mark))
        return inside or kind[0] in "nabftlm" or kind == "eng" or (kind == "v" and pair.sole)

    def _all_else(self, pair: Pair, unit: Unit) -> bool:
        whole = pair.word + pair.head
        return all(unit.holds(term) for term in self._terms if term.key not in whole)


def _before(unit: Unit, thing: str, *, han: bool) -> Iterator[str]:
    """The words that stand right before a thing; of English ones the stems."""
    if not han:
        words = [match[0] for match in WORD.finditer(unit.folded)]
        yield from (
            first_stem(words[at - 1])
            for at in range(1, len(words))
            if first_stem(words[at]) == thing
        )
        return
    tokens = tagged(unit.folded)
    for match in re.finditer(re.escape(thing), unit.folded):
        yield from (
            word[: match.start() - begin]
            for begin, word, _ in tokens
            if begin < match.start() <= begin + len(word)
        )


def continues(text: str) -> bool:
    """Whether a sentence goes on about what the one before it told of."""
    return _PRONOUN.match(fold(text[:8])) is not None


def _codes(unit: Unit) -> frozenset[tuple[str, str, str]]:
    return frozenset(_CODE.findall(unit.folded))


def _marks_by_text(unit: Unit) -> dict[str, set[str]]:
    return _all_marks(unit.folded, han=unit.has_han)


def _marks_by_folded(unit: Unit) -> dict[str, set[str]]:
    return _all_marks(unit.folded, han=unit.in_han)


def _marks_above(head: Unit) -> dict[str, set[str]]:
    return marks(head.folded)


def _all_marks(folded: str, *, han: bool) -> dict[str, set[str]]:
    """Marks with those that need a look at words: 北门, "turbine 2"."""
    found = marks(folded)
    if not han:
        for match in _NUMBERED.finditer(NUMBER_WORD.sub("", folded)):
            if tells_apart(match[1]) and not match[1].endswith(("s", "ed")) and match[2].isdigit():
                found.setdefault("ordinal", set()).add("#" + match[2])
        return found
    tokens = tagged(folded)
    for at, (_, word, kind) in enumerate(tokens):
        follows = tokens[at + 1][2] if at + 1 < len(tokens) else ""
        alone = len(word) == 1 and kind[0] in "fab" and follows[:1] == "n"
        if alone or (len(word) == 2 and kind[0] in "nst"):
            name = mark_of(word[0])
            for group in groups_of(name) if name else ():
                found.setdefault(group, set()).add(name or "")
    return found


def _in_full(pair: Pair, unit: Unit) -> bool:
    """Whether a unit has the longer word that two Chinese characters stand for."""
    key = pair.word + pair.head
    return len(key) == 2 and abbreviates(key, unit.folded)
