"""Which rows of a table a question is about, by the cells that it names.

A cell names a row, or in the header a column. Where the question has a cell of one row, the others
tell of siblings; so do sentences that have another cell of that column, or of the header, and not
the question's. Where it has none, the row of all the others ("other cities", 其他) is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest

import msgspec
import rjieba

from forebay.generation.lexicon import lexicon
from forebay.generation.passages import Passage, Unit, cells
from forebay.generation.periods import asked_days
from forebay.generation.places import ABROAD, CITIES, around, listed, places_in
from forebay.generation.quantities import MEASURED, Counted, counted
from forebay.generation.terms import HAN, NAME_WEIGHT, WORD_WEIGHT, Term, first_stem, fold
from forebay.generation.terms import question_terms as terms_of

_LONGEST = 40
"""Characters of a cell that names something; what is longer tells of it."""
_TOKEN = re.compile(rf"[{HAN}]+|[^\W_{HAN}]+(?:[.\-'’][^\W_{HAN}]+)*")
_LIST = re.compile(r"\s*(?:[、,，;；]|\band\b|和)\s*")
_SPOKEN = re.compile("[一二两三四五六七八九][米斤块][一二三四五六七八九]")
"""一米二 is 1.2 m."""
_HAS_HAN = re.compile(f"[{HAN}]")
_REST = re.compile(
    r"(?:(?:all|any) )?(?:the )?(?:others?|rest|remaining|elsewhere|(?:every|any)where else)\b"
    r"|其[他它余]|别的"
)
_COUNTRIES = re.compile(
    r"\b(?:countr(?:y|ies)|nations?|international|abroad|overseas)\b|国家|海外|境外|国外|国际"
)
_CITIES = re.compile(r"\b(?:cit(?:y|ies)|towns?)\b|城市|(?<![省县])市(?!场)|[县镇]")
_REGIONS = re.compile(r"\b(?:provinc|states?\b|count(?:y|ies)\b|district)|省|州")
_AT_HOME = re.compile(
    r"\b(?:domestic|mainland|inland|national|nationwide)\b|国内|境内|大陆|内地|全国"
)
"""What rows for all the others, and headings above them, speak of."""
_PLACED = frozenset("ns nr nrt nt nz".split())
"""Kinds of Chinese words that are names."""
_PLACES = "省市县区镇村乡国州岛山河湖港"
_LONGEST_NAME = 5
_MOST_WORDS = 3
_PRICES = frozenset("yuan euro dollar percent duration".split())
"""What is rather told of a thing than its name, but in the first column."""


class Row(msgspec.Struct, frozen=True):
    """A row, where it stands."""

    passage: int
    position: int
    unit: Unit
    cells: tuple[str, ...]


class Finding(msgspec.Struct, frozen=True):
    """Positions of statements about siblings, by passage; and of each row for all that a table does
    not list, with those of its other rows, by passage, too.
    """

    others: tuple[frozenset[int], ...]
    rest: tuple[tuple[tuple[int, int], frozenset[tuple[int, int]]], ...] = ()


def tables(passages: Sequence[Passage], titles: Sequence[str], question: str) -> Finding:
    """What tables and titles of all passages say about which statements a question is about."""
    found: list[set[int]] = [set() for _ in passages]
    _mark_titles(passages, titles, question, found)
    groups: dict[str, list[Row]] = {}
    for index, passage in enumerate(passages):
        for position, unit in enumerate(passage.units):
            if unit.kind == "row" and unit.lead:
                row = Row(index, position, unit, unit.known(_cells))
                groups.setdefault(unit.lead, []).append(row)
    if not groups:
        return Finding(tuple(map(frozenset, found)))
    rest: list[tuple[tuple[int, int], frozenset[tuple[int, int]]]] = []
    asked = _Asked(question)
    for rows in groups.values():
        named = False
        for at, column in enumerate(zip_longest(*(row.cells for row in rows), fillvalue="")):
            if at and at + 1 >= max(len(row.cells) for row in rows):
                break
            mine = asked.rows(column, first=not at)
            named = named or (not at and bool(mine))
            if mine is None:
                continue
            for row_at, row in enumerate(rows):
                if row_at not in mine:
                    found[row.passage].add(row.position)
        if not named:
            rest += _mark_unlisted(passages, asked, rows, found)
        for family in (
            [row.cells[0] for row in rows],
            rows[0].unit.known(_header)[1:],
        ):
            _mark_sentences(passages, asked, family, found)
    return Finding(tuple(map(frozenset, found)), tuple(rest))


def _mark_unlisted(
    passages: Sequence[Passage], asked: _Asked, rows: Sequence[Row], found: list[set[int]]
) -> list[tuple[tuple[int, int], frozenset[tuple[int, int]]]]:
    """Add rows of other places, and those for all the others where these are not meant; return the
    latter where they may be, each with what stands beside it.
    """
    places = frozenset((row.passage, row.position) for row in rows)
    rest = []
    for row in rows:
        # What the other language's rows are called, nobody can tell.
        if row.unit.known(_is_rest) and row.unit.in_han == asked.han:
            place = (row.passage, row.position)
            if asked.is_among_others(row, rows, passages):
                rest.append((place, places - {place}))
            else:
                found[row.passage].add(row.position)
    for row in asked.elsewhere(rows):
        found[row.passage].add(row.position)
    return rest


def names_of(question: str, terms: Sequence[Term]) -> list[int]:
    """Which terms are names of something, that a row for all the others may stand for."""
    if not any(term.han for term in terms):
        return [
            at
            for at, term in enumerate(terms)
            if term.weight == NAME_WEIGHT and not term.key.isdigit()
        ]
    names = [word for word, kind in rjieba.tag(fold(question), False) if kind in _PLACED]
    return [
        at
        for at, term in enumerate(terms)
        if term.weight >= WORD_WEIGHT
        and any(term.key in name or name in term.key for name in names)
    ]


class _Asked:
    """A question, looked at for the cells it has."""

    def __init__(self, question: str) -> None:
        self.folded = fold(question)
        self.han = _HAS_HAN.search(question) is not None
        self._words = _joined(self.folded)
        # The tenth of December is no row 10.
        self._counted = list(counted(asked_days(self.folded)[0]))
        self._named = places_in(self.folded)
        self._places = around(self._named)

    def names(self, cell: str) -> str:
        """The part of a cell that the question has, "" for none."""
        parts = [part for part in _LIST.split(cell) if part]
        for part in [cell, *parts] if len(parts) > 1 else parts:
            if not any(term.weight >= WORD_WEIGHT for term in terms_of(part)):
                continue
            if _HAS_HAN.search(part):
                if len(part) > 1 and _stands_in(part, self.folded):
                    return part
            elif not part.replace(",", "").replace(".", "").isdigit():
                words = _joined(part)
                if words.strip() and words in self._words:
                    return words
        return "" if self._places.isdisjoint(listed(cell)) else cell

    def elsewhere(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of other places; none in a table that does not list places."""
        told = [(row, listed(row.cells[0])) for row in rows] if self._named else []
        if sum(bool(places) for _, places in told) < 2:
            return []
        return [row for row, at in told if at and self._named.isdisjoint(around(at))]

    def is_among_others(self, row: Row, rows: Sequence[Row], passages: Sequence[Passage]) -> bool:
        """Whether the row of all that is not listed may be that of the places asked about.

        Other provinces or states are no countries, and other countries no provinces; where only
        "others" is said, what the table lists and is headed by decides.
        """
        first = row.cells[0]
        abroad = self._places & ABROAD
        if not self._places or _COUNTRIES.search(first):
            return not self._places or bool(abroad)
        if _CITIES.search(first):
            return not abroad - CITIES
        if not abroad:
            return True
        if _REGIONS.search(first):
            return False
        own = fold(f"{row.unit.above} {row.unit.lead}")
        if _COUNTRIES.search(own):
            return True
        beside = [*(one.cells[0] for one in rows), *(passage.head.folded for passage in passages)]
        return not _AT_HOME.search(own) and not any(
            listed(cell) - ABROAD or _COUNTRIES.search(cell) for cell in beside
        )

    def rows(self, column: Sequence[str], *, first: bool) -> set[int] | None:
        """Which rows are meant by a cell of this column; None where that is not said."""
        found = [self.names(cell) if 0 < len(cell) <= _LONGEST else "" for cell in column]
        if any(found):
            return {
                at
                for at, name in enumerate(found)
                if name and not any(name != other and name in other for other in found)
            }
        amounts = [_whole_amount(cell) for cell in column]
        kinds = {one.kind for one in amounts if one is not None}
        if len([one for one in amounts if one is not None]) < 2 or len(kinds) != 1:
            return None
        kind = kinds.pop()
        if not first and (kind in _PRICES or kind not in MEASURED):
            return None
        mine = [
            one.number
            for one in self._counted
            if (one.kind == kind if kind else one.kind not in MEASURED)
        ]
        if not mine or _SPOKEN.search(self.folded):
            return None
        return {
            at
            for at, one in enumerate(amounts)
            if one is None or any(abs(one.number - number) < 1e-9 for number in mine)
        }


def _mark_titles(
    passages: Sequence[Passage], titles: Sequence[str], question: str, found: list[set[int]]
) -> None:
    """Add the statements of documents that have the name of a sibling as their title.

    The question has the whole title of one, a name; another with a name as its title tells of that.
    """
    names = [name for title in titles if _is_proper(name := title.strip())]
    folded = fold(question) if names else ""
    mine = {name for name in names if _any_of({fold(name)}).search(folded)}
    if not mine or len(mine) == len(set(names)):
        return
    pattern = _any_of(set(map(fold, mine)))
    for index, passage in enumerate(passages):
        title = titles[index].strip()
        if title in mine or title not in names:
            continue
        if not any(title.title() in one.text for one in passage.units if one.kind != "heading"):
            # It tells of no such thing: "changelog".
            continue
        found[index].update(
            position
            for position, unit in enumerate(passage.units)
            if not pattern.search(unit.folded)
        )


@lru_cache(maxsize=1024)
def _is_proper(title: str) -> bool:
    """Whether a title is nothing but a name."""
    if not title or len(title) > _LONGEST:
        return False
    if _HAS_HAN.search(title):
        return len(title) <= _LONGEST_NAME and (
            title[-1] in _PLACES or all(kind in _PLACED for _, kind in rjieba.tag(title, False))
        )
    words = title.split()
    return len(words) <= _MOST_WORDS and all(
        word.isalpha() and not lexicon().of(Term(first_stem(word), 1.0, han=False))
        for word in words
    )


def _mark_sentences(
    passages: Sequence[Passage], asked: _Asked, family: Sequence[str], found: list[set[int]]
) -> None:
    """Add the sentences that have a member of a family, and none that the question has."""
    members = {cell for cell in family if 1 < len(cell) <= _LONGEST}
    named = {cell for cell in members if asked.names(cell)}
    others = {cell for cell in members - named if _is_name(cell)}
    if not named or not others:
        return
    mine, theirs = _any_of({part for cell in named for part in _LIST.split(cell)}), _any_of(others)
    for index, passage in enumerate(passages):
        above = passage.head.folded
        for position, unit in enumerate(passage.units):
            if unit.kind not in ("sentence", "item") or mine.search(unit.folded):
                continue
            if theirs.search(unit.folded) or (theirs.search(above) and not mine.search(above)):
                found[index].add(position)


def _stands_in(part: str, folded: str) -> bool:
    """Whether a cell stands in a text, and not as the end of a longer number."""
    at = folded.find(part)
    first, last = (one.isascii() and one.isalnum() for one in (part[0], part[-1]))
    while at >= 0:
        end = at + len(part)
        beside = folded[max(0, at - 1) : at] * first + folded[end : end + 1] * last
        if not any(one.isascii() and (one.isalnum() or one in ".,-") for one in beside):
            return True
        at = folded.find(part, at + 1)
    return False


def _is_name(cell: str) -> bool:
    """Whether a cell has a word that may tell things apart."""
    return any(term.weight >= WORD_WEIGHT for term in terms_of(cell)) and not cell.isdigit()


def _any_of(names: set[str]) -> re.Pattern[str]:
    parts = [
        re.escape(name) if _HAS_HAN.search(name) else rf"(?<!\w){re.escape(name)}(?!\w)"
        for name in sorted(names, key=len, reverse=True)
    ]
    return re.compile("|".join(parts))


def _whole_amount(cell: str) -> Counted | None:
    """The amount that a cell consists of."""
    one = next(counted(cell), None)
    return one if one is not None and one.start == 0 and one.end == len(cell) else None


def _joined(folded: str) -> str:
    """The words of a text by their stems, a space around each."""
    return f" {' '.join(first_stem(match[0]) for match in _TOKEN.finditer(folded))} "


def _cells(unit: Unit) -> tuple[str, ...]:
    return tuple(fold(cell) for cell in cells(unit.text))


def _header(unit: Unit) -> tuple[str, ...]:
    return tuple(fold(cell) for cell in cells(unit.lead))


def is_rest(unit: Unit) -> bool:
    """Whether a unit is the row of all that is not listed."""
    return unit.kind == "row" and unit.known(_is_rest)


def _is_rest(unit: Unit) -> bool:
    """Whether a row is that of all that is not listed, without a bound to what those are."""
    first = cells(unit.text)[0]
    if _REST.match(fold(first)) is None:
        return False
    if _HAS_HAN.search(first):
        # 城市 itself is tagged as a place.
        return not any(kind in _PLACED for _, kind in rjieba.tag(first, False)[:-1])
    return not any(word[0].isupper() for word in first.split()[1:])
