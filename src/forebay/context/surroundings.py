"""What stands around a hit in its document, pulled into the prompt within a budget of tokens.

A passage is one stretch of a document's own text: its hit, and neighbouring chunks of the same
section, of the section above it whose text leads to it, or of sections below it. Hits that come to
touch become one passage, at the place of the better one, so that no text stands in a prompt twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from forebay.context.settings import ContextSettings
from forebay.kernel.documents import ChunkRow, DocumentInfo, Hit
from forebay.kernel.errors import NotFound

_CHARACTERS_MAX = 2_000_000
"""Longer documents are not read for a few of their sentences."""


class Texts(Protocol):
    """The record, as far as passages are read from it."""

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        """Rows that still exist, in the order asked."""
        ...

    def document(self, kb: str, document_id: str) -> DocumentInfo:
        """A document without its text; ``NotFound``."""
        ...

    def document_text(self, kb: str, document_id: str) -> str:
        """A document's extracted text; ``NotFound``."""
        ...


class _Stretch:
    """Neighbouring chunks of one document that become one passage."""

    def __init__(self, hit: Hit) -> None:
        self.hit = hit
        self.rows = [hit.chunk]
        self.gone = False

    def neighbour(self, side: int) -> int:
        """The id next to it: a document's chunks are numbered in reading order."""
        return self.rows[-1].chunk_id + 1 if side > 0 else self.rows[0].chunk_id - 1

    def add(self, rows: Sequence[ChunkRow], side: int) -> None:
        self.rows = [*self.rows, *rows] if side > 0 else [*rows, *self.rows]

    def meets(self, chunk_id: int) -> bool:
        return self.rows[0].chunk_id <= chunk_id <= self.rows[-1].chunk_id

    def belongs(self, row: ChunkRow) -> bool:
        """Whether a neighbour is of the same document, and leads to the hit or goes on with it."""
        own, other = self.hit.chunk, row.heading_path
        near = other[: len(own.heading_path)] == own.heading_path or (
            row.chunk_id < own.chunk_id and own.heading_path[: len(other)] == other
        )
        return near and row.document_id == own.document_id and row.version == own.version


class Surroundings:
    """Widens hits to passages; reads the record, so call it beside the event loop."""

    def __init__(self, texts: Texts, settings: ContextSettings) -> None:
        self._texts = texts
        self._settings = settings

    def widen(self, kb: str, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Return passages, best first, for at most ``max_passages`` of ``hits``.

        ``Hit.chunk`` keeps the id of the best hit inside and holds the passage's text, with its
        span in the document: ``document[start:end] == text``. A hit whose document is another by
        now stays as it is.
        """
        stretches = [_Stretch(hit) for hit in hits[: self._settings.max_passages]]
        if self._settings.surrounding_tokens:
            near = self._near(kb, stretches)
            self._join(stretches, near)
            self._grow(stretches, near)
        return tuple(
            self._passage(kb, stretch) if len(stretch.rows) > 1 else stretch.hit
            for stretch in stretches
            if not stretch.gone
        )

    def _near(self, kb: str, stretches: Sequence[_Stretch]) -> Mapping[int, ChunkRow]:
        reach, ids = self._settings.surrounding_chunks, set[int]()
        for stretch in stretches:
            at = stretch.hit.chunk.chunk_id
            ids.update(range(at - reach, at + reach + 1))
        names = {stretch.hit.chunk.document_id for stretch in stretches}
        short = {name for name in sorted(names) if self._short(kb, name)}
        rows = self._texts.rows(kb, sorted(ids)) if short else ()
        return {row.chunk_id: row for row in rows if row.document_id in short}

    def _short(self, kb: str, document_id: str) -> bool:
        try:
            return self._texts.document(kb, document_id).characters <= _CHARACTERS_MAX
        except NotFound:
            return False

    def _join(self, stretches: Sequence[_Stretch], near: Mapping[int, ChunkRow]) -> None:
        """Hits that touch are one passage; that costs nothing.

        One that has taken in another may touch the next on either side: until none touch.
        """
        while any(
            self._meet(stretch, side, stretches, near)
            for stretch in stretches
            for side in (1, -1)
            if not stretch.gone
        ):
            pass

    def _grow(self, stretches: Sequence[_Stretch], near: Mapping[int, ChunkRow]) -> None:
        """Add a neighbour at a time, what follows first, the best passage first."""
        left = self._settings.surrounding_tokens
        for stretch, side in self._turns(stretches):
            row = near.get(stretch.neighbour(side))
            if row is None or not stretch.belongs(row) or row.tokens > left:
                continue
            left -= row.tokens
            stretch.add([row], side)
            self._join(stretches, near)

    def _turns(self, stretches: Sequence[_Stretch]) -> Iterator[tuple[_Stretch, int]]:
        for _ in range(self._settings.surrounding_chunks):
            for stretch in stretches:
                for side in (1, -1):
                    if not stretch.gone:
                        yield stretch, side

    def _meet(
        self,
        stretch: _Stretch,
        side: int,
        stretches: Sequence[_Stretch],
        near: Mapping[int, ChunkRow],
    ) -> bool:
        """Take in the passage next to this one, where there is one."""
        beside = stretch.neighbour(side)
        for other in stretches:
            if other is stretch or other.gone or not other.meets(beside):
                continue
            if beside not in near or not stretch.belongs(near[beside]):
                return False
            better, worse = sorted((stretch, other), key=stretches.index)
            better.add(worse.rows, side if better is stretch else -side)
            worse.gone = True
            return True
        return False

    def _passage(self, kb: str, stretch: _Stretch) -> Hit:
        chunk, rows = stretch.hit.chunk, stretch.rows
        start, end = min(row.start for row in rows), max(row.end for row in rows)
        try:
            document = self._texts.document_text(kb, chunk.document_id)
        except NotFound:
            return stretch.hit
        text = document[start:end]
        if any(document[row.start : row.end] != row.text for row in rows):
            return stretch.hit
        context = next((row.context for row in rows if row.context), "")
        wide = msgspec.structs.replace(
            chunk,
            start=start,
            end=end,
            text=text,
            context="" if context in text else context,
            tokens=sum(row.tokens for row in rows),
            heading_path=_shared([row.heading_path for row in rows]),
            page=rows[0].page,
        )
        return msgspec.structs.replace(stretch.hit, chunk=wide)


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    shared = paths[0]
    for path in paths[1:]:
        while path[: len(shared)] != shared:
            shared = shared[:-1]
    return shared
