"""Chunks by structure first, then by sentence, then by force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.ingest.sentences import line_spans, natural_cut, sentence_spans, tail_cuts
from forebay.ingest.settings import ChunkSettings
from forebay.kernel.documents import Block, BlockKind, ChunkDraft, Extracted
from forebay.kernel.rows import BORDER
from forebay.kernel.stages import TokenCounter

_GLUED: frozenset[BlockKind] = frozenset({"heading", "table_header"})
_ROWS: frozenset[BlockKind] = frozenset({"table_row", "table_header"})
# No token of XLM-R averages more characters than this over a whole chunk of prose.
_CHARACTERS_PER_TOKEN = 6


class Unit(NamedTuple):
    """A span that goes into one chunk."""

    start: int
    end: int
    tokens: int
    kind: BlockKind
    page: int | None
    table: int | None


class Section(NamedTuple):
    """What lies between two headings, the first included, and the headings above it."""

    path: tuple[str, ...]
    blocks: list[Block]


def sections(extracted: Extracted) -> Iterator[Section]:
    """Yield what lies between headings; a heading opens the section it names."""
    stack: list[tuple[int, str]] = []
    blocks: list[Block] = []
    for block in extracted.blocks:
        if block.kind == "heading":
            if blocks:
                yield Section(tuple(name for _, name in stack), blocks)
            while stack and stack[-1][0] >= block.level:
                stack.pop()
            name = " ".join(extracted.text[block.start : block.end].split())[:200]
            stack.append((block.level, name))
            blocks = []
        blocks.append(block)
    if blocks:
        yield Section(tuple(name for _, name in stack), blocks)


class StructureChunker:
    """Cuts an extracted text along its blocks into chunks of at most ``max_tokens``.

    Sections are not mixed unless one is under ``min_tokens``; a heading or table header never
    ends a chunk that goes on; table rows stay whole, with the header as ``context`` where it is
    not in the span; a block that does not fit is cut into sentences (code: lines), a sentence
    that does not fit at the best place near the limit. Overlap is made of whole sentences where
    they fit ``overlap_tokens``, of words otherwise.
    """

    def __init__(self, settings: ChunkSettings, counter: TokenCounter) -> None:
        self._settings = settings
        self._counter = counter

    def chunk(self, extracted: Extracted) -> tuple[ChunkDraft, ...]:
        """Return the chunks of ``extracted`` in order."""
        packer = Packer(extracted, self._settings, self._counter)
        for section in sections(extracted):
            packer.add_section(section)
        return packer.finish()


class Packer:
    """The chunk that is being filled, and the finished ones."""

    def __init__(
        self, extracted: Extracted, settings: ChunkSettings, counter: TokenCounter
    ) -> None:
        self._text = extracted.text
        self._settings = settings
        self._counter = counter
        self._headers = _table_headers(extracted)
        self._groups = _row_groups(extracted, self._headers)
        self._contexts: dict[tuple[int, int], tuple[str, int]] = {}
        self._chunks: list[ChunkDraft] = []
        self._units: list[Unit] = []
        self._tokens = 0
        self._overlap_start: int | None = None
        self._path: tuple[str, ...] = ()
        self._chunk_path: tuple[str, ...] = ()
        self._context = ""

    def add_section(self, section: Section) -> None:
        """Add a section's blocks, in the open chunk when that is too small to stand alone."""
        units = [unit for block in section.blocks for unit in self.units_of(block)]
        if self._units:
            total = self._tokens + sum(unit.tokens for unit in units)
            bare = all(unit.kind == "heading" for unit in self._units)
            small = self._tokens < self._settings.min_tokens and total <= self._settings.max_tokens
            if bare and section.path[: len(self._chunk_path)] == self._chunk_path:
                self._chunk_path = section.path
            elif bare or small:
                self._chunk_path = _common(self._chunk_path, section.path)
            else:
                self._close()
        self._path = section.path
        for unit in units:
            if self._units and unit.tokens <= self._settings.max_tokens and self.parts(unit):
                self._roll(unit)
            else:
                self._add(unit)

    def units_of(self, block: Block) -> list[Unit]:
        """What a block goes into chunks as: here in one piece, where it fits."""
        return [self._unit(block.start, block.end, block.kind, block.page, block.table)]

    def parts(self, unit: Unit) -> bool:
        """Whether the open chunk should end before ``unit`` although there may be room."""
        return False

    def finish(self) -> tuple[ChunkDraft, ...]:
        """Close the last chunk and return all."""
        self._close()
        return tuple(self._chunks)

    def _unit(
        self, start: int, end: int, kind: BlockKind, page: int | None, table: int | None
    ) -> Unit:
        return Unit(start, end, self._counter.count(self._text[start:end]), kind, page, table)

    def _add(self, unit: Unit) -> None:
        room = self._settings.max_tokens - self._tokens
        if self._units and unit.tokens <= room:
            self._append(unit)
            return
        if not self._units and unit.tokens + self._context_of(unit)[1] <= room:
            self._append(unit)
            return
        too_big = unit.tokens + self._context_of(unit)[1] > self._settings.max_tokens
        filling = self._tokens < self._settings.min_tokens and unit.kind not in _ROWS
        if too_big or (self._units and filling):
            for piece in self._pieces(unit):
                self._add_piece(piece)
        else:
            self._roll(unit)

    def _add_piece(self, piece: Unit) -> None:
        if self._units and self._joint_tokens(piece) > self._settings.max_tokens:
            self._roll(piece)
        else:
            self._append(piece)

    def _joint_tokens(self, piece: Unit) -> int:
        """The open chunk's tokens with ``piece``; counted anew where a cut split a word."""
        last = self._units[-1]
        if piece.start != last.end:
            return self._tokens + piece.tokens
        return self._tokens - last.tokens + self._counter.count(self._text[last.start : piece.end])

    def _append(self, unit: Unit) -> None:
        if not self._units:
            self._chunk_path = self._path
            self._context, tokens = self._context_of(unit)
            self._tokens += tokens
        self._units.append(unit)
        self._tokens += unit.tokens

    def _roll(self, unit: Unit) -> None:
        """Close the open chunk and begin the next with ``unit``, after what leads into it."""
        carried: list[Unit] = []
        while len(self._units) > 1 and self._units[-1].kind in _GLUED:
            carried.insert(0, self._units.pop())
        if sum(c.tokens for c in carried) + unit.tokens > self._settings.max_tokens:
            self._units.extend(carried)
            carried = []
        overlap = None if carried else self._overlap(unit)
        self._close()
        if overlap is not None:
            self._overlap_start, self._tokens = overlap
        for piece in (*carried, unit):
            self._append(piece)

    def _close(self) -> None:
        if self._units:
            first = self._units[0]
            start = first.start if self._overlap_start is None else self._overlap_start
            end = self._units[-1].end
            text = self._text[start:end]
            self._chunks.append(
                ChunkDraft(
                    ordinal=len(self._chunks),
                    start=start,
                    end=end,
                    text=text,
                    tokens=self._counter.count(text),
                    page=first.page,
                    heading_path=self._chunk_path,
                    context=self._context,
                )
            )
        self._units = []
        self._tokens = 0
        self._overlap_start = None
        self._context = ""

    def _context_of(self, unit: Unit) -> tuple[str, int]:
        """The header to repeat over a row that opens a chunk, and its tokens.

        With it goes the row's group: a name that stands alone in a row above.
        """
        if unit.kind != "table_row" or unit.table is None or unit.table not in self._headers:
            return "", 0
        spans = [self._headers[unit.table]]
        group = self._groups.get(unit.start)
        if group is not None:
            spans.append(group)
        known = self._contexts.get(spans[-1])
        if known is None:
            limits = (self._settings.max_tokens // 3, self._settings.max_tokens // 6)
            text = "\n".join(
                self._text[start : self._fit(start, end, limit)].strip()
                for (start, end), limit in zip(spans, limits, strict=False)
            )
            known = self._contexts[spans[-1]] = (text, self._counter.count(text))
        return known

    def _overlap(self, following: Unit) -> tuple[int, int] | None:
        """Where the next chunk should start so that it repeats the end of this one."""
        budget = min(self._settings.overlap_tokens, self._settings.max_tokens - following.tokens)
        if budget <= 0 or following.kind in _ROWS:
            return None
        start, spent = None, 0
        for unit in reversed(self._units):
            if unit.kind in _GLUED or unit.kind in _ROWS:
                break
            if unit.tokens <= budget - spent:
                start, spent = unit.start, spent + unit.tokens
                continue
            tail = self._tail(unit, budget - spent, words=start is None)
            if tail is not None:
                start, spent = tail[0], spent + tail[1]
            break
        return None if start is None else (start, spent)

    def _tail(self, unit: Unit, budget: int, *, words: bool) -> tuple[int, int] | None:
        """The last sentences of ``unit`` within ``budget``, else (``words``) its last words."""
        split = line_spans if unit.kind == "code" else sentence_spans
        found, spent = None, 0
        low = max(unit.start, unit.end - budget * _CHARACTERS_PER_TOKEN * 2)
        for start, end in reversed(split(self._text, low, unit.end)):
            tokens = self._counter.count(self._text[start:end])
            if spent + tokens > budget or (start == low and low > unit.start):
                break
            found, spent = start, spent + tokens
        if found is not None:
            return found, spent
        if not words or unit.kind == "code":
            return None
        low = max(unit.start + 1, unit.end - budget * _CHARACTERS_PER_TOKEN)
        for cut in tail_cuts(self._text, low, unit.end):
            tokens = self._counter.count(self._text[cut : unit.end])
            if tokens <= budget:
                return cut, tokens
        return None

    def _pieces(self, unit: Unit) -> Iterator[Unit]:
        """Cut a unit into sentences or lines, none over the limit."""
        room = self._context_of(unit)[1] + self._settings.overlap_tokens
        limit = max(1, self._settings.max_tokens - room)
        split = line_spans if unit.kind == "code" else sentence_spans
        for start, end in split(self._text, unit.start, unit.end):
            piece = self._unit(start, end, unit.kind, unit.page, unit.table)
            if piece.tokens <= limit:
                yield piece
                continue
            at = start
            while at < end:
                stop = self._fit(at, end, limit)
                if self._text[at:stop].strip():
                    first, last = _trim(self._text, at, stop)
                    yield self._unit(first, last, unit.kind, unit.page, unit.table)
                at = stop

    def _fit(self, start: int, end: int, limit: int) -> int:
        """The end of the longest good piece from ``start`` with at most ``limit`` tokens."""
        stop = min(end, start + limit * _CHARACTERS_PER_TOKEN)
        tokens = self._counter.count(self._text[start:stop])
        while tokens > limit and stop - start > 1:
            shrunk = start + int((stop - start) * limit / tokens)
            stop = max(start + 1, min(shrunk, stop - max(1, (stop - start) // 50)))
            tokens = self._counter.count(self._text[start:stop])
        if stop >= end:
            return end
        return max(start + 1, natural_cut(self._text, start, stop))


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


def _table_headers(extracted: Extracted) -> dict[int, tuple[int, int]]:
    """The span of each table's header rows."""
    spans: dict[int, tuple[int, int]] = {}
    for block in extracted.blocks:
        if block.kind == "table_header" and block.table is not None:
            start = spans.get(block.table, (block.start, 0))[0]
            spans[block.table] = (start, block.end)
    return spans


def _row_groups(
    extracted: Extracted, headers: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """For rows, by their start, the span of the last row above that is a name and nothing else."""
    groups: dict[int, tuple[int, int]] = {}
    group: tuple[int, int] | None = None
    table: int | None = None
    for block in extracted.blocks:
        if block.kind != "table_row" or block.table not in headers:
            continue
        if block.table != table:
            table, group = block.table, None
        row = extracted.text[block.start : block.end]
        name = row.strip(" |")
        if BORDER.search(name) is None:
            start = block.start + row.index(name)
            group = (start, start + len(name)) if name else None
        elif group is not None:
            groups[block.start] = group
    return groups
