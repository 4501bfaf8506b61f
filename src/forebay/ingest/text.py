"""Cleaning text, and building an extracted text with exact block offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from forebay.ingest.language import detect_language, primary_language
from forebay.ingest.settings import IngestLimits
from forebay.kernel.documents import Block, BlockKind, Extracted
from forebay.kernel.errors import UnsupportedDocument

REPLACEMENT = "\ufffd"

# Line ends of every kind, and what no reader sees: controls, zero-width and bidirectional marks,
# soft hyphens, tag characters (a way to smuggle instructions), noncharacters, lone surrogates.
_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ufffd-\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_BLANKS = re.compile(r"[ \t\u00a0\u3000]+")
_SPACE_BEFORE_NEWLINE = re.compile(r"[ \t\u00a0\u3000]+\n")
_MANY_NEWLINES = re.compile(r"\n{3,}")


def clean(text: str) -> str:
    """Return ``text`` with plain line ends and without invisible or invalid characters."""
    if _LINE_END.search(text):
        text = _LINE_END.sub("\n", text)
    if _INVISIBLE.search(text):
        text = _INVISIBLE.sub("", text)
    return text


def squeeze(text: str) -> str:
    """Return ``text`` on one line: every run of white space becomes one space."""
    return " ".join(clean(text).split())


def tidy(text: str) -> str:
    """Return ``text`` without trailing blanks, and with at most one blank line in a row."""
    text = _SPACE_BEFORE_NEWLINE.sub("\n", clean(text))
    return _MANY_NEWLINES.sub("\n\n", text).strip()


_MAX_WARNINGS = 20
# A national encoding tells Japanese written in Han characters alone from Chinese.
_NATIONAL = {"cp932": "ja", "euc_jis_2004": "ja", "iso2022_jp_2": "ja", "shift_jis_2004": "ja"}


class TextBuilder:
    """Collects blocks; every block's span is exact in the finished text."""

    def __init__(self, limits: IngestLimits, *, media_type: str) -> None:
        self._limits = limits
        self._media_type = media_type
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._length = 0
        self._tables = 0
        self._marks = 0
        self._more_warnings = 0
        self.warnings: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was added yet."""
        return not self._blocks

    @property
    def blocks(self) -> list[Block]:
        """The blocks so far."""
        return self._blocks

    def next_table(self) -> int:
        """Return the number of a new table."""
        self._tables += 1
        return self._tables - 1

    def warn(self, sentence: str) -> None:
        """Note a warning once; after the first twenty only their number is kept."""
        if sentence in self.warnings:
            return
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(sentence)
        else:
            self._more_warnings += 1

    def add(
        self,
        kind: BlockKind,
        text: str,
        *,
        level: int = 0,
        page: int | None = None,
        table: int | None = None,
    ) -> None:
        """Append a block; white space alone adds nothing.

        Raises ``UnsupportedDocument`` when the text grows over ``max_characters``.
        """
        self._marks += text.count(REPLACEMENT)
        text = clean(text)
        text = text.strip("\n").rstrip() if kind == "code" else text.strip()
        if not text.strip():
            return
        lead = self._lead(kind, level, table)
        start = self._length + len(lead)
        self._parts.append(lead)
        self._parts.append(text)
        self._length = start + len(text)
        if self._length > self._limits.max_characters:
            raise too_long(self._limits)
        self._blocks.append(Block(kind, start, self._length, level, page, table))

    def _lead(self, kind: BlockKind, level: int, table: int | None) -> str:
        """White space between the block before and a new one."""
        if not self._blocks:
            return ""
        last = self._blocks[-1]
        if table is not None and last.table == table:
            return "\n"
        if kind == "list_item" and last.kind == "list_item":
            return "\n" + "  " * max(0, level - 1)
        return "\n\n"

    def build(
        self,
        *,
        title: str = "",
        language: str = "",
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Extracted:
        """Return the finished text; raise ``UnsupportedDocument("empty")`` for none.

        ``language`` is a hint that the script may overrule; ``metadata["language"]`` is not.
        """
        if not self._blocks:
            raise UnsupportedDocument("The document is empty: it holds no text.", code="empty")
        if self._marks:
            self.warn(replacement_warning(self._marks))
        if self._more_warnings:
            self.warnings.append(f"There are {self._more_warnings} more warnings of this kind.")
        stated = primary_language((metadata or {}).get("language", ""))
        hint = language or _NATIONAL.get(encoding or "", "")
        text = "".join(self._parts)
        if not title:
            title = self._heading_title(text)
        return Extracted(
            text=text,
            blocks=tuple(self._blocks),
            media_type=self._media_type,
            title=squeeze(title)[:300],
            language=stated or detect_language(text, declared=hint),
            encoding=encoding,
            metadata=clean_metadata(metadata or {}),
            warnings=tuple(self.warnings),
        )

    def _heading_title(self, text: str) -> str:
        """The first heading of the highest rank in use, else ""."""
        headings = [block for block in self._blocks if block.kind == "heading"]
        if not headings:
            return ""
        top = min(headings, key=lambda block: block.level)
        return text[top.start : top.end]


def clean_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata with cleaned, non-empty, bounded values."""
    pairs = ((squeeze(key)[:100], squeeze(value)[:2000]) for key, value in metadata.items())
    return {key: value for key, value in pairs if key and value}


def replacement_warning(count: int) -> str:
    """Say that the source itself held replacement marks."""
    return (
        f"The file already holds {count} replacement marks (U+FFFD) where characters were lost "
        "earlier; they were left out."
    )


def too_long(limits: IngestLimits) -> UnsupportedDocument:
    """The error for a text over the bound."""
    return UnsupportedDocument(
        f"The text is over the limit of {limits.max_characters} characters; split the document.",
        code="too_long",
    )
