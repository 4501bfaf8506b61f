"""A passage cut into what can be quoted: sentences, table rows under their header, list items.

The analysis of a passage depends on its text alone, so it is kept in a cache with bounds on
entries and characters.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, TypeVar

import msgspec

from forebay.folding import simplified
from forebay.generation.terms import HAN, Term, fold, stems_in
from forebay.kernel.documents import Hit
from forebay.kernel.rows import cells_of, ends_framed
from forebay.kernel.sentences import checksum

T = TypeVar("T")
UnitKind = Literal["sentence", "row", "item", "code", "heading"]

_MAX_UNIT_CHARACTERS = 480
_HEADING_CHARACTERS = 80
_HAN = re.compile(f"[{HAN}]")
_FENCE = re.compile(r"\s*(```|~~~)")
_ATX = re.compile(r"\s{0,3}#{1,6}\s+(?P<text>.*?)\s*#*$")
_ITEM = re.compile(
    r"\s*(?:[-*+•·▪◦]|\(?\d{1,3}(?:[)、）]|\.(?!\d))|[（(][一二三四五六七八九十\d]{1,3}[）)])\s*(?=\S)"
)
_COUNTS = re.compile("[一二三四五六七八九十\\d]")
_RULE_ROW = re.compile(r"[\s|:\-+=]*")
_QUESTION = ("?", "？")
_TERMINAL = tuple(".!?。！？…；;:：,，")
_CLOSERS = "\"'”’»」』）)】\\]"
_END = re.compile(
    rf"[。！？｡？]+[{_CLOSERS}]*"
    rf"|(?P<dot>[.!?…]+)[{_CLOSERS}]*(?:\[\d{{1,3}}\])*"
    rf"(?=\s+[^\sa-z]|\s*[{HAN}]|\s*$)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|e\.g|i\.e|cf|no|nos|vol|fig|eq|sec|pp|inc|ltd|co|"
    r"corp|dept|approx|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|gen|col|lt|sgt|capt|rev|"
    r"hon|gov|sen|rep|pres|u\.s|u\.k|a\.m|p\.m|ph\.d|d\.c)|\b[a-z])$",
    re.IGNORECASE,
)
_MEASURED = re.compile(r"(?<![\w.,])(?:\d{1,3}|\d*[.,]\d+) ?[htmgslLdAVWKCF]$")
"""A number and a unit of one letter, which is no initial: "a fuse of 10 A. The other"."""
_OPEN = tuple(",，、")
_WRAPPED_HAN = 16
"""Characters from which a Chinese line without an end was broken by its width."""
_CLAUSE = re.compile(r"[；;，,、:：]\s*|\s")
_LISTING = re.compile("[,，;；:：]")
"""What a line that stands alone has, and hardly a heading: "Present: Clark, Weber"."""


class Unit(msgspec.Struct, frozen=True, dict=True):
    """One quotable piece.

    ``lead`` is the header of a table row, the lead-in of a list item, or the question a sentence
    answers; ``section`` the heading above it in its passage, ``above`` the title and its heading
    wherever that stands; all four in Simplified characters, and in ``written`` as the document has
    them where that differs. ``folded`` and ``stems`` are what terms are looked for in, lead and
    section included. ``has_han``: whether there is a Han character in its text; ``in_han``: in
    ``folded``. ``marker``: the number of an item of a numbered list, as it is written.
    """

    kind: UnitKind
    text: str
    lead: str
    folded: str
    stems: frozenset[str]
    has_han: bool
    in_han: bool
    above: str = ""
    section: str = ""
    marker: str = ""
    written: Unit | None = None

    @property
    def as_written(self) -> Unit:
        """It in the characters of its document."""
        return self.written or self

    @property
    def said(self) -> str:
        """What it says by itself: under its heading, a row with the names of its columns."""
        if self.written is not None:
            return self.written.said
        text = self.text
        if self.kind == "row":
            named = zip_longest(cells(self.lead), cells(text), fillvalue="")
            text = "; ".join(
                f"{name}: {value}" if name else value for name, value in named if value
            )
        elif self.lead and not self.above.endswith(self.lead):
            text = f"{self.lead} {text}"
        return f"{self.above}: {text}" if self.above else text

    @cached_property
    def _known(self) -> dict[Callable[[Unit], Any], Any]:
        return {}

    def known(self, read: Callable[[Unit], T]) -> T:
        """What ``read`` finds in it, found out once and forgotten with its passage.

        Nobody may change it; it should be small: many passages are kept.
        """
        known = self._known
        found: T = known[read] if read in known else known.setdefault(read, read(self))
        return found

    def holds(self, term: Term) -> float:
        """How much of ``term`` is here, 0..1: a long Han word may be there in parts."""
        if not term.han:
            return 1.0 if term.key in self.stems else 0.0
        key, folded = term.key, self.folded
        if key in folded:
            return 1.0
        pairs = len(key) - 1
        if pairs < 2:
            return 0.0
        return 0.8 * sum(key[at : at + 2] in folded for at in range(pairs)) / pairs

    def holds_abroad(self, parts: Sequence[frozenset[str]], *, han: bool) -> float:
        """How much of a term is here in the other language, 0..1; ``han``: Han words are meant."""
        if not parts:
            return 0.0
        if not han:
            return sum(not part.isdisjoint(self.stems) for part in parts) / len(parts)
        return sum(any(word in self.folded for word in part) for part in parts) / len(parts)


def number_of(unit: Unit) -> int:
    """By what the vector of a unit is found; for ``Unit.known``."""
    return checksum(unit.said)


class Passage(msgspec.Struct, frozen=True):
    """The units of a passage in reading order, and its title and heading path as one unit.

    ``has_han``: Han is more than a few names in another text; ``mostly_han``: Latin is no more
    than names in a Chinese text.
    """

    units: tuple[Unit, ...]
    head: Unit
    has_han: bool
    mostly_han: bool


class PassageCache:
    """Analysed passages, least recently used out first; used from the event loop only."""

    def __init__(self, *, max_entries: int = 2048, max_characters: int = 4_000_000) -> None:
        self._max_entries = max_entries
        self._max_characters = max_characters
        self._characters = 0
        self._kept: OrderedDict[tuple[str, str, str, tuple[str, ...]], Passage] = OrderedDict()

    def get(self, hit: Hit) -> Passage:
        """Return the analysis of a hit's text, computed at most once while it is kept."""
        chunk = hit.chunk
        key = (chunk.text, chunk.context, chunk.title, chunk.heading_path)
        passage = self._kept.get(key)
        if passage is not None:
            self._kept.move_to_end(key)
            return passage
        passage = analyse(*key)
        size = len(chunk.text)
        self._kept[key] = passage
        self._characters += size
        while len(self._kept) > self._max_entries or self._characters > self._max_characters:
            (text, *_), _ = self._kept.popitem(last=False)
            self._characters -= len(text)
        return passage

    def statistics(self) -> dict[str, int]:
        """Entries and characters held."""
        return {"entries": len(self._kept), "characters": self._characters}


def analyse(text: str, context: str, title: str, heading_path: tuple[str, ...]) -> Passage:
    """Cut a chunk's text into units; ``context`` may hold its table's header row."""
    title = title.replace("_", " ")
    units = tuple(_Cutter(context, title, heading_path[-1] if heading_path else "").cut(text))
    head = _unit("heading", " ".join(dict.fromkeys((title, *heading_path))), "")
    return Passage(units, head, *_scripts(text))


def in_other_script(text: str, *, han: bool) -> bool:
    """Whether words of a question, in Han or not, cannot stand in a passage; fast where they can.

    See ``Passage``.
    """
    if not han and (text.isascii() or _HAN.search(text) is None):
        return False
    if han and len(_HAN.findall(text[:_HEADING_CHARACTERS])) * 2 > _HEADING_CHARACTERS:
        return False
    has_han, mostly_han = _scripts(text)
    return not has_han if han else mostly_han


def _scripts(text: str) -> tuple[bool, bool]:
    """``has_han`` and ``mostly_han`` of a passage."""
    han = len(_HAN.findall(text))
    latin = sum(character.isascii() and character.isalpha() for character in text)
    # A Chinese word has about two characters, an English one about five.
    return han * 20 > latin, han * 5 > latin * 2


def cells(row: str) -> list[str]:
    """The cells of a table row written with pipes, framed by them or not.

    A pipe at the beginning alone stands after an empty cell: over the names of the rows.
    """
    body = row.strip()
    return cells_of(body, framed=len(body) > 1 and body.startswith("|") and ends_framed(body))


def is_row(line: str) -> bool:
    """Whether a line is a table row: cells between pipes."""
    return " | " in line or (line.lstrip().startswith("|") and line.count("|") > 1)


def _filled(row: str) -> int:
    return sum(map(bool, cells(row)))


def _unit(
    kind: UnitKind, text: str, lead: str, above: str = "", section: str = "", marker: str = ""
) -> Unit:
    whole = f"{text}\n{lead}\n{above}\n{section}"
    plain = simplified(whole)
    if plain is whole:
        return _read(kind, text, lead, above, section, marker)
    a, b = len(text), len(text) + len(lead) + 1
    c = b + len(above) + 1
    read = _read(kind, plain[:a], plain[a + 1 : b], plain[b + 1 : c], plain[c + 1 :], marker)
    written = msgspec.structs.replace(read, text=text, lead=lead, above=above, section=section)
    return msgspec.structs.replace(read, written=written)


def _read(kind: UnitKind, text: str, lead: str, above: str, section: str, marker: str) -> Unit:
    folded = fold("\n".join(filter(None, (section, lead, text))))
    has_han, in_han = _HAN.search(text) is not None, _HAN.search(folded) is not None
    found = stems_in(folded)
    return Unit(kind, text, lead, folded, found, has_han, in_han, above, section, marker)


class _Cutter:
    """Goes through the lines of one passage once."""

    def __init__(self, context: str, title: str, heading: str) -> None:
        self._title = title
        self._above, self._section = self._under(heading), ""
        # Of several header rows the fullest names the columns; a unit may stand below it.
        rows = [line.strip() for line in context.splitlines() if is_row(line)]
        self._context_header = max(rows, key=_filled, default="")
        self._naming = False
        self._header = ""
        self._lead = ""
        self._question = ""
        self._units: list[Unit] = []

    def cut(self, text: str) -> list[Unit]:
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            line = lines[at]
            if _FENCE.match(line):
                at = self._code(lines, at)
                continue
            if is_row(line):
                self._row(line)
            else:
                self._header = ""
                if line.strip():
                    alone = at + 1 >= len(lines) or not lines[at + 1].strip()
                    end = _end_of_item(lines, at)
                    self._line(_unwrapped(lines[at:end]), alone=alone)
                    at = end - 1
            at += 1
        return self._units

    def _code(self, lines: list[str], at: int) -> int:
        end = at + 1
        while end < len(lines) and not _FENCE.match(lines[end]):
            end += 1
        body = "\n".join(lines[at + 1 : end]).strip("\n")
        if body.strip():
            self._units.append(self._unit("code", body[: 2 * _MAX_UNIT_CHARACTERS], self._lead))
        self._header = ""
        return end + 1

    def _row(self, line: str) -> None:
        if _RULE_ROW.fullmatch(line):
            return
        row = line.strip()
        if not self._header:
            self._header = self._context_header or row
            self._naming = self._header == row
            if self._naming:
                return
        if self._naming and not cells(row)[0]:
            # Still above the names of the rows: years, or what they are counted in.
            self._header = max(self._header, row, key=_filled)
            return
        self._naming = False
        self._units.append(self._unit("row", row, self._header))

    def _under(self, heading: str) -> str:
        """A heading is of its document: "Weight" of the sheet of the A300."""
        title = self._title
        if not title or heading.startswith(title):
            return heading
        return f"{title}. {heading}" if heading else title

    def _unit(self, kind: UnitKind, text: str, lead: str, marker: str = "") -> Unit:
        section = "" if self._section == lead else self._section
        return _unit(kind, text, lead, self._above, section, marker)

    def _line(self, line: str, *, alone: bool) -> None:
        heading = _ATX.match(line)
        stripped = line.strip()
        item = _ITEM.match(line)
        if heading or (
            alone
            and item is None
            and len(stripped) <= _HEADING_CHARACTERS
            and (stripped.endswith(_QUESTION) or not stripped.endswith(_TERMINAL))
        ):
            text = heading["text"] if heading else stripped
            if text:
                self._units.append(_unit("heading", text, ""))
                self._above = self._under(text)
                self._section = "" if text == self._title or _LISTING.search(text) else text
            self._lead = ""
            self._question = text if text.endswith(_QUESTION) else ""
            return
        if item is not None:
            body = line[item.end() :].strip()
            number = item[0].strip()
            marker = number if _COUNTS.search(number) else ""
            for piece in _pieces(body):
                self._units.append(self._unit("item", piece, self._lead, marker))
                marker = ""
            return
        for piece in sentences(stripped):
            if piece.endswith(_QUESTION):
                self._question = piece
                self._units.append(_unit("heading", piece, ""))
            else:
                self._units.append(self._unit("sentence", piece, self._question))
        self._lead = stripped if stripped.endswith((":", "：")) and len(stripped) <= 160 else ""


def _end_of_item(lines: list[str], at: int) -> int:
    """The line after a list item: what is indented below it, or goes on without being so.

    Chunks keep no indentation. What ends in a comma goes on; so do small letters, and Chinese
    after a line that is as long as lines that are broken by their width.
    """
    end = at + 1
    if not _ITEM.match(lines[at]):
        return end
    while end < len(lines) and lines[end].strip():
        line = lines[end]
        if _ITEM.match(line) or _FENCE.match(line) or _ATX.match(line) or is_row(line):
            break
        if not (line[0].isspace() or _goes_on(lines[end - 1].rstrip(), line)):
            break
        end += 1
    return end


def _goes_on(before: str, line: str) -> bool:
    if before.endswith(_OPEN):
        return True
    if before.endswith(_TERMINAL):
        return False
    wrapped = _HAN.match(before[-1]) is not None and len(before) >= _WRAPPED_HAN
    return line[0].islower() or (wrapped and _HAN.match(line) is not None)


def _unwrapped(lines: list[str]) -> str:
    """Lines as one; after a Han character or its comma a line break is no space."""
    whole = lines[0].rstrip()
    for line in lines[1:]:
        text = line.strip()
        whole += text if whole[-1] > "\u2e7f" else " " + text
    return whole


def sentences(line: str) -> list[str]:
    """The sentences of one line, none longer than 480 characters."""
    found: list[str] = []
    at = 0
    for match in _END.finditer(line):
        if match["dot"] is not None:
            before = line[max(at, match.start() - 12) : match.start()]
            short = match["dot"] == "." and _ABBREVIATION.search(before)
            if short and not _MEASURED.search(before):
                continue
        found += _pieces(line[at : match.end()].strip())
        at = match.end()
    return found + _pieces(line[at:].strip())


def _pieces(sentence: str) -> list[str]:
    pieces = []
    while len(sentence) > _MAX_UNIT_CHARACTERS:
        cut = _MAX_UNIT_CHARACTERS
        for match in _CLAUSE.finditer(sentence, _MAX_UNIT_CHARACTERS // 2, _MAX_UNIT_CHARACTERS):
            cut = match.end()
        pieces.append(sentence[:cut].rstrip())
        sentence = sentence[cut:].lstrip()
    return [*pieces, sentence] if sentence else pieces
