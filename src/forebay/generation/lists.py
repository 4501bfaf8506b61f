"""Lists and small tables that are quoted whole where all of them is asked for.

One item is chosen for what it says. Its siblings are asked for, too, where the question has more
for all of them (a lead-in, a heading, a word that each holds) than for some. They count as one
quotation, in the order of the document; a question for one fact keeps its one item.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from forebay.generation.answer_types import AnswerType
from forebay.generation.passages import Passage, Unit
from forebay.generation.sides import asks_whether
from forebay.generation.support import Reading, Scored
from forebay.generation.terms import NAME_WEIGHT, Term, fold, stems
from forebay.kernel.documents import ChunkRow
from forebay.kernel.stages import GenerationRequest

_HEADED = 0.5
"""Share of a question that a heading must hold to be what is asked, where no word asks for all."""
_SAID = 0.5
"""How much of a term each item must hold, by itself or by its heading, for it to be said of all."""
_COLUMN = 0.9
"""What a word in the names of columns is worth, where one in a heading is worth 1."""
_AS_MUCH = 0.95
"""Share of what one list holds of the question that another must hold to be asked for, too."""
_OF_LISTS = ("item", "row")
_COLONS = (":", "：")
_GAP = 4
"""Characters of white space at most between two chunks that adjoin."""
_MANY = r"(?:\w*[^\W\daisu]s|children|men|people|women)\b"
"""A plural, and not "bus", "class", "this"."""
_ASKS_FOR_ALL = re.compile(
    "哪些|[哪那]几|列出|列举|清单|有什么|[包括含]{2}什么"
    r"|^\W*(?:please |can you |could you )?(?:list|enumerate|name)\b|\blist (?:of|all)\b"
    r"|\b(?:what|which|who) (?:are|were)\b|\b(?:give|show|tell) (?:me |us )?all\b"
    rf"|\bwhich (?:of (?:the|our|these|those|your) )?{_MANY}"
    rf"|\b(?:what|which) (?:[\w-]+ ){{0,2}}?{_MANY} "
    r"(?:are|were|do|can|must|should|will|have|may|need|did)\b"
    rf"|\bwhich [\w-]+ (?!does|goes){_MANY} (?!the\b|an?\b)\w+[^\Ws]\b"
)
_ASKS_FOR_STEPS = re.compile(r"步骤|流程|\b(?:steps|procedure)\b")
_ASKS_HOW = re.compile(
    r"\bhow (?:do|does|can|could|should|must|to)\b|\bwhat (?:[\w']+ ){1,3}(?:do|done)\b"
    "|怎[么样]|如何|做什么"
)
"""What steps answer, where they are numbered."""

_LABEL = re.compile(r".{1,40}?(?:[:：–—]| - )")

Place = tuple[int, int]


class Quoted(msgspec.Struct, frozen=True):
    """What is quoted, in order. ``lists``: which of it are parts of one list, by its number, and
    ``left``: how many more of it there are after a unit; by passage and position. ``open``: the
    units after which there may be still more, in a chunk that was not found.
    """

    units: Sequence[Scored]
    lists: Mapping[Place, int] = {}
    left: Mapping[Place, int] = {}
    open: Set[Place] = frozenset()

    def go_on(self, one: Scored, other: Scored) -> bool:
        """Whether two units are quoted as parts of one list, under one citation."""
        number = self.lists.get(place_of(one))
        return (
            number is not None
            and number == self.lists.get(place_of(other))
            and one.passage == other.passage
            and "code" not in (one.unit.kind, other.unit.kind)
        )


class _Found(NamedTuple):
    """A list of which something is quoted, or a unit that is of none: what stands before it, its
    items that are quoted, those that are asked for (None: no more than these), the weight of the
    question that it holds, and whether it may go on where nobody looked.
    """

    before: Sequence[Scored]
    quoted: Sequence[Scored] = ()
    asked: Sequence[Scored] | None = None
    said: float = 0.0
    open: bool = False


def with_siblings(
    request: GenerationRequest,
    kind: AnswerType,
    reading: Reading,
    passages: Sequence[Passage],
    chosen: Sequence[Scored],
    max_characters: int,
) -> Quoted:
    """Return ``chosen`` with what belongs to it: the items under a lead-in that is quoted, and the
    siblings of an item or row where they are asked for, as many as fit ``max_characters``.
    """
    if not any(one.unit.kind in _OF_LISTS or one.unit.text.endswith(_COLONS) for one in chosen):
        return Quoted(chosen)
    mine = {place_of(one) for one in chosen}
    lists = _Lists(reading, passages, [hit.chunk for hit in request.passages], mine)
    asks = _Asks(request.question, kind, reading.terms)
    found: list[_Found] = []
    done: set[Place] = set()
    for one in chosen:
        if place_of(one) not in done:
            found.append(_of_list(one, lists, asks, mine))
            done.update(map(place_of, found[-1].quoted))
    most = max((each.said for each in found), default=0.0)
    room = max_characters - sum(len(one.unit.text) for one in chosen)
    units: list[Scored] = []
    number_of: dict[Place, int] = {}
    left: dict[Place, int] = {}
    on: set[Place] = set()
    for number, each in enumerate(found):
        whole = each.asked is not None and (each.said >= _AS_MUCH * most or not each.quoted)
        here, lacking, room = _fitting((each.asked or ()) if whole else each.quoted, mine, room)
        here = [*each.before, *here]
        units += here
        if whole or each.before:
            number_of.update((place_of(one), number) for one in here)
        if lacking:
            left[place_of(here[-1])] = lacking
            on.update([place_of(here[-1])] * each.open)
    return Quoted(units, number_of, left, on)


def place_of(one: Scored) -> Place:
    """Where a unit stands."""
    return one.passage, one.position


def _of_list(one: Scored, lists: _Lists, asks: _Asks, mine: set[Place]) -> _Found:
    before, members = lists.around(one)
    quoted = [each for each in members if place_of(each) in mine]
    is_open = bool(members) and lists.may_go_on(*place_of(members[-1]))
    if before and not quoted:
        # A lead-in alone tells nothing.
        return _Found(before, asked=members, open=is_open)
    if not quoted:
        return _Found([one])
    return _Found(before, quoted, *asks.siblings(quoted, members), is_open)


def _fitting(asked: Sequence[Scored], mine: set[Place], room: int) -> tuple[list[Scored], int, int]:
    """The first that there is room for, with all that is quoted anyway; how many items are left
    out; and the room that is left.
    """
    kept, lacking = [], 0
    for one in asked:
        # A row is quoted with the names of its columns.
        size = len(one.unit.text) + len(one.unit.lead) * (one.unit.kind == "row")
        if place_of(one) in mine:
            kept.append(one)
        elif not lacking and size <= room:
            kept.append(one)
            room -= size
        else:
            lacking += one.unit.kind != "code"
    return kept, lacking, room


class _Asks:
    """What a question asks of a list."""

    def __init__(self, question: str, kind: AnswerType, terms: Sequence[Term]) -> None:
        folded = fold(question)
        self._steps = _ASKS_FOR_STEPS.search(folded) is not None
        self._all = self._steps or _ASKS_FOR_ALL.search(folded) is not None
        self._how = _ASKS_HOW.search(folded) is not None
        self._one = kind.asked_at_all or asks_whether(question)
        self._terms = terms

    def siblings(
        self, quoted: Sequence[Scored], members: Sequence[Scored]
    ) -> tuple[Sequence[Scored] | None, float]:
        """Those of ``members`` that are asked for with ``quoted``, None if these alone are; and the
        weight of the question that they hold.
        """
        best = max(quoted, key=lambda one: one.fit)
        beside = [each.own for each in members if each.passage == best.passage]
        shared = [1.0 if least >= _SAID else least for least in map(min, zip(*beside, strict=True))]
        if self._all or self._how:
            shared = list(map(max, shared, best.above))
        apart = [max(0.0, own - common) for own, common in zip(best.own, shared, strict=True)]
        if best.unit.kind == "row":
            shared = [
                max(above, _COLUMN * all_) for above, all_ in zip(best.above, shared, strict=True)
            ]
        for_all, for_some = self._weight(shared), self._weight(apart)
        said = for_all + for_some
        if sum(each.unit.kind != "code" for each in members) < 2:
            return None, said
        numbered = any(each.unit.marker for each in members)
        every = self._all or (self._how and numbered)
        if (self._steps and numbered) or (
            every and for_all > for_some and not self._names(best.unit, apart)
        ):
            return members, said
        headed = (
            for_all >= max(for_some, _HEADED * self._weight([1.0] * len(self._terms)))
            and not self._one
        )
        if said and (self._all or (headed and best.unit.kind != "row")):
            # Those of which the question says as much; what lacks its number is none of them.
            told = [at for at, tells in enumerate(apart) if tells]
            strict = self._all and any(self._terms[at].weight >= NAME_WEIGHT for at in told)
            mine = () if strict else set(map(place_of, quoted))
            return [
                each
                for each in members
                if place_of(each) in mine or all(each.own[at] >= best.own[at] for at in told)
            ], said
        return None, said

    def _names(self, unit: Unit, apart: Sequence[float]) -> bool:
        """Whether the question names an item by what tells it ``apart``: "hours on Sunday" is not
        all of the hours, but "all steps when payments fail" is more than what has "payments".
        """
        named = [term for term, tells in zip(self._terms, apart, strict=True) if tells]
        if unit.kind == "row" or any(term.weight >= NAME_WEIGHT for term in named):
            return bool(named)
        label = _LABEL.match(unit.text)
        if label is None:
            return False
        words, text = stems(label[0]), fold(label[0])
        return any(term.key in (text if term.han else words) for term in named)

    def _weight(self, held: Sequence[float]) -> float:
        return sum(term.weight * share for term, share in zip(self._terms, held, strict=True))


class _Lists:
    """The lists of the passages."""

    def __init__(
        self,
        reading: Reading,
        passages: Sequence[Passage],
        chunks: Sequence[ChunkRow],
        chosen: set[Place],
    ) -> None:
        self._there = {place_of(one): one for one in reading.units}
        self._passages = passages
        self._chunks = chunks
        self._chosen = chosen

    def around(self, one: Scored) -> tuple[list[Scored], list[Scored]]:
        """A unit where it leads into a list, else none; and what is left of that list, or of the
        one that it is in, in order.
        """
        index, at = self._lead_in(one)
        leads = (index, at) in self._there and _leads_into(self._passages[index].units, at)
        if not leads and one.unit.kind not in _OF_LISTS:
            return [], []
        places = list(self._whole(index, _run(self._passages[index].units, at + leads)))
        found: dict[str, Place] = {}
        for place in places:
            # What two chunks repeat is quoted once.
            text = self._passages[place[0]].units[place[1]].text
            if text not in found or place in self._chosen:
                found[text] = place
        kept = set(found.values())
        before = [self._there[index, at]] if leads else []
        return before, [self._there[each] for each in places if each in kept & self._there.keys()]

    def _lead_in(self, one: Scored) -> Place:
        """Where a unit stands; of a lead-in that ends its chunk, and that the next one repeats,
        where it does that.
        """
        if one.position + 1 == len(self._passages[one.passage].units):
            for index, passage in enumerate(self._passages):
                if _adjoin(self._chunks[one.passage], self._chunks[index]):
                    for at, unit in enumerate(passage.units):
                        if unit.text == one.unit.text and _leads_into(passage.units, at):
                            return index, at
        return place_of(one)

    def _whole(self, index: int, run: range) -> Iterator[Place]:
        """The places of a list, with what stands of it in chunks that adjoin one another."""
        parts = deque([(index, run)])
        while found := self._beside(*parts[0], ahead=False):
            parts.appendleft(found)
        while found := self._beside(*parts[-1], ahead=True):
            parts.append(found)
        for part, places in parts:
            yield from ((part, at) for at in places)

    def _beside(self, index: int, run: range, *, ahead: bool) -> tuple[int, range] | None:
        """The part of a list that comes before or after that in one passage, and where it is."""
        for other in range(len(self._passages)):
            earlier, later = (index, other) if ahead else (other, index)
            if part := self._part(earlier, later, other, run):
                return other, part
        return None

    def may_go_on(self, index: int, at: int) -> bool:
        """Whether what comes after a unit is in a chunk that was not found, if anything does."""
        last = at + 1 == len(self._passages[index].units)
        return last and not any(_adjoin(self._chunks[index], other) for other in self._chunks)

    def _part(self, earlier: int, later: int, other: int, run: range) -> range | None:
        """What stands in ``other`` of a list that goes from one passage on into another, if ``run``
        is its part in the one that is not ``other``.
        """
        if not _adjoin(self._chunks[earlier], self._chunks[later]):
            return None
        before, after = self._passages[earlier].units, self._passages[later].units
        text = self._chunks[earlier].text
        begin = next(
            (at for at, unit in enumerate(after) if unit.as_written.text not in text), None
        )
        if not before or begin is None or not _go_on(before[-1], after[begin]):
            return None
        ends, begins = _run(before, len(before) - 1), _run(after, begin)
        if run != (begins if other == earlier else ends):
            return None
        return ends if other == earlier else begins


def _adjoin(one: ChunkRow, other: ChunkRow) -> bool:
    """Whether a chunk goes on where another ends; they may share what stands at the border."""
    return (
        one.document_id == other.document_id
        and one.start < other.start <= one.end + _GAP
        and one.end < other.end
    )


def _leads_into(units: Sequence[Unit], at: int) -> bool:
    """Whether a sentence is the lead-in of what follows it."""
    if units[at].kind != "sentence" or at + 1 >= len(units):
        return False
    after = units[at + 1]
    return after.kind in ("item", "code") and after.lead.endswith(units[at].text)


def _run(units: Sequence[Unit], at: int) -> range:
    """The positions of a list's items, with code between them, or of a table's rows."""
    one = units[at]
    first = last = at
    while first and _same_list(units[first - 1], one):
        first -= 1
    while last + 1 < len(units) and _same_list(units[last + 1], one):
        last += 1
    while first < at and units[first].kind == "code":
        first += 1
    return range(first, last + 1)


def _same_list(one: Unit, other: Unit) -> bool:
    return _sort(one) == _sort(other) and one.lead == other.lead and one.above == other.above


def _go_on(one: Unit, other: Unit) -> bool:
    return _sort(one) == _sort(other) != "" and (one.kind != "row" or one.lead == other.lead)


def _sort(unit: Unit) -> str:
    """What a unit is part of; steps may have code between them."""
    return {"item": "list", "code": "list", "row": "table"}.get(unit.kind, "")
