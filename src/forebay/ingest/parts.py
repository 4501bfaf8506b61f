"""Cutting a long text at its meaning: before headings, else between paragraphs, else sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forebay.ingest.chunker import StructureChunker
from forebay.ingest.settings import ChunkSettings
from forebay.kernel.documents import Block, Extracted
from forebay.kernel.stages import TokenCounter

_MARKDOWN = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+\S")
_NUMBERED = re.compile(
    r"(?:第[一二三四五六七八九十百零〇\d]{1,6}[章节篇部条]|[一二三四五六七八九十]{1,3}、"
    r"|(?:chapter|section|part|article)\s+[\dIVXLC]+\b|\d{1,3}(?:\.\d{1,3}){0,3}[.、)]?[ \t]+\S)",
    re.IGNORECASE,
)
_TITLE_CHARACTERS = 60
_SENTENCE_ENDS = frozenset(".。!！?？;；,，:：")


class TextSplitter:
    """Cuts texts into parts; spans are offsets into the text as it came."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def split(self, text: str, max_tokens: int, overlap_tokens: int) -> tuple[tuple[int, int], ...]:
        """Return the spans of the parts in order, each of at most ``max_tokens``.

        A part ends at a section's end once it is half full; ``overlap_tokens`` of its end are
        repeated where it ends inside a section.
        """
        settings = ChunkSettings(
            max_tokens=max_tokens,
            min_tokens=max_tokens // 2,
            overlap_tokens=min(overlap_tokens, max_tokens // 4),
        )
        extracted = Extracted(text, tuple(_blocks(text)), "text/plain")
        chunks = StructureChunker(settings, self._counter).chunk(extracted)
        return tuple((chunk.start, chunk.end) for chunk in chunks)


def _blocks(text: str) -> Iterator[Block]:
    """Headings and paragraphs; a paragraph is what stands between headings and blank lines."""
    start = end = -1
    at = 0
    for line in text.splitlines(keepends=True):
        body = line.strip()
        level = _level(line) if body else 0
        if (not body or level) and start >= 0:
            yield Block("paragraph", start, end)
            start = -1
        first = at + len(line) - len(line.lstrip())
        if level:
            yield Block("heading", first, first + len(body), level)
        elif body:
            start = first if start < 0 else start
            end = first + len(body)
        at += len(line)
    if start >= 0:
        yield Block("paragraph", start, end)


def _level(line: str) -> int:
    """A heading's level, 0 for what is none."""
    marked = _MARKDOWN.match(line)
    if marked:
        return len(marked[1])
    body = line.strip()
    short = len(body) <= _TITLE_CHARACTERS and body[-1] not in _SENTENCE_ENDS
    return 2 if short and _NUMBERED.match(body) else 0
