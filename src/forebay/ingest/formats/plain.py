"""Plain text and source-like text: kept as it is, blocks between blank lines."""

from __future__ import annotations

import re

from forebay.ingest.encoding import decode_source
from forebay.ingest.formats.piped import table_blocks, table_regions
from forebay.ingest.language import detect_language
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import REPLACEMENT, clean, replacement_warning, too_long
from forebay.kernel.documents import Block, BlockKind, Extracted
from forebay.kernel.errors import UnsupportedDocument

CODE_EXTENSIONS = frozenset(
    ".py .js .ts .jsx .tsx .java .c .h .cc .cpp .hpp .cs .go .rs .rb .php .swift .kt .scala .sh "
    ".bash .sql .toml .yaml .yml .ini .cfg .conf .css .lua .r .jl .pl .proto .dockerfile .xml "
    ".vue .log .tex".split()
)
_BREAK = re.compile(r"\n[ \t\u3000]*\n\s*")
# A line longer than this was not wrapped by hand: lines are paragraphs then.
_WRAPPED_CHARACTERS = 160


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return the text unchanged but for line ends and invisible characters."""
    decoded = decode_source(source, limits)
    return from_text(decoded.text, source, limits, decoded.encoding, decoded.warnings)


def from_text(
    raw: str, source: Source, limits: IngestLimits, encoding: str | None, notes: tuple[str, ...]
) -> Extracted:
    """Build an extracted text from text that has no other structure."""
    marks = raw.count(REPLACEMENT)
    text = clean(raw).rstrip()
    text = text.lstrip("\n") if text[:1].isspace() else text
    if not text.strip():
        raise UnsupportedDocument("The document is empty: it holds no text.", code="empty")
    if len(text) > limits.max_characters:
        raise too_long(limits)
    code = source.extension in CODE_EXTENSIONS
    return Extracted(
        text=text,
        blocks=tuple(_blocks(text, "code" if code else "paragraph")),
        media_type=source.media_type,
        title=source.stem,
        language=detect_language(text),
        encoding=encoding,
        warnings=(*notes, *((replacement_warning(marks),) if marks else ())),
    )


def _blocks(text: str, kind: BlockKind) -> list[Block]:
    blocks: list[Block] = []
    at = tables = 0
    spans = []
    for match in _BREAK.finditer(text):
        end, following = match.span()
        if kind == "code":
            # Indentation belongs to code: step back to the start of the line.
            following = text.rfind("\n", end, following) + 1
        spans.append((at, end))
        at = following
    spans.append((at, len(text)))
    for start, end in spans:
        if kind == "code" or "|" not in text[start:end]:
            blocks.extend(_prose(text, start, end, kind))
            continue
        for (first, last), table in table_regions(text, start, end):
            if table:
                blocks.extend(table_blocks(text, first, last, tables))
                tables += 1
            else:
                blocks.extend(_prose(text, first, last, kind))
    return blocks


def _prose(text: str, start: int, end: int, kind: BlockKind) -> list[Block]:
    if kind == "paragraph" and _is_lines(text, start, end):
        return [Block(kind, first, last) for first, last in _lines(text, start, end)]
    return _trimmed(text, start, end, kind)


def _is_lines(text: str, start: int, end: int) -> bool:
    newline = text.find("\n", start, end)
    if newline < 0:
        return False
    longest = max(map(len, text[start:end].split("\n")))
    return longest > _WRAPPED_CHARACTERS


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    spans = []
    at = start
    for line in text[start:end].split("\n"):
        body = line.strip()
        if body:
            offset = at + len(line) - len(line.lstrip())
            spans.append((offset, offset + len(body)))
        at += len(line) + 1
    return spans


def _trimmed(text: str, start: int, end: int, kind: BlockKind) -> list[Block]:
    piece = text[start:end]
    body = piece.strip() if kind == "paragraph" else piece.strip("\n").rstrip()
    if not body.strip():
        return []
    at = start + piece.index(body)
    return [Block(kind, at, at + len(body))]
