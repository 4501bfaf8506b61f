"""Markdown and MDX through markdown-it-py, without its markup."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.ingest.encoding import decode_source
from forebay.ingest.formats.front_matter import split_front_matter
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze, tidy
from forebay.kernel.documents import Extracted
from forebay.kernel.rows import row_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_INLINE_MARKUP = re.compile(r"[\\`*_\[\]<&!~]")
_BRACKET = re.compile(r"[\[\]]")
_BRACKETS_DEEP = 8
_BRACKETS_MAX = 100
"""Brackets of one paragraph inside more than that many others; each is read on from anew."""
_COMMENT = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BREAK_TAG = re.compile(r"<(?:br|/p|/div|/li|/tr|/h[1-6])\b[^<>]*>", re.IGNORECASE)
_HEADING_TAG = re.compile(r"\s*<h([1-6])\b[^<>]*>(.*?)</h\1\s*>\s*", re.DOTALL | re.IGNORECASE)
_MDX_LINE = re.compile(
    r"^(?:import\s+(?:[\w*{][^\n]*?\sfrom\s+)?['\"][^\n]*|export\s+[^\n]*?(?:;|\}|\)|\n(?=\n)))\s*$",
    re.MULTILINE,
)
_MDX_EXPRESSION = re.compile(r"\{/\*.*?\*/\}", re.DOTALL)
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*?$", re.MULTILINE | re.DOTALL)
_JSX_TAG = re.compile(r"</?[A-Z][\w.]*(?:[^<>\"'{}]|\"[^\"]*\"|'[^']*'|\{[^{}]*\})*/?>|</?>")


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return headings, paragraphs, list items, code and tables; front matter as metadata."""
    decoded = decode_source(source, limits)
    front, body, warning = split_front_matter(decoded.text)
    if source.extension == ".mdx":
        body = strip_mdx(body)
    builder = TextBuilder(limits, media_type=source.media_type)
    builder.warnings.extend(decoded.warnings)
    if warning:
        builder.warnings.append(warning)
    _Walker(builder).walk(body)
    return builder.build(
        title=front.get("title", "") or _first_heading(builder, source),
        encoding=decoded.encoding,
        metadata=front,
    )


def _first_heading(builder: TextBuilder, source: Source) -> str:
    """Return "" where the builder finds a heading for a title, else the name of the file."""
    return "" if any(block.kind == "heading" for block in builder.blocks) else source.stem


def strip_mdx(text: str) -> str:
    """Drop imports, exports and JSX tags outside code fences; what they enclose stays."""
    parts: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text):
        parts.append(_strip_mdx_prose(text[at : fence.start()]))
        parts.append(fence.group())
        at = fence.end()
    parts.append(_strip_mdx_prose(text[at:]))
    return "".join(parts)


def _strip_mdx_prose(text: str) -> str:
    text = _MDX_EXPRESSION.sub("", text)
    text = _MDX_LINE.sub("", text)
    return _JSX_TAG.sub("", text)


class _Walker:
    """Turns the token stream of markdown-it into blocks."""

    def __init__(self, builder: TextBuilder) -> None:
        from markdown_it import MarkdownIt

        self._builder = builder
        self._parser: MarkdownIt = MarkdownIt("commonmark", {"maxNesting": 60})
        self._parser.enable(["table", "strikethrough"])
        # Inline markup is parsed only where there is some: most of the time goes there.
        self._parser.core.ruler.enableOnly(["normalize", "block"])
        self._env: dict[str, object] = {}
        self._lists: list[int | None] = []
        self._mark = ""
        self._heading = 0
        self._table: int | None = None
        self._head = False
        self._cells: list[str] | None = None

    def walk(self, text: str) -> None:
        """Add every block of ``text`` to the builder."""
        for token in self._parser.parse(text, self._env):
            kind = token.type
            if kind == "inline":
                self._inline(token)
            elif kind in ("fence", "code_block"):
                self._code(token.content)
            elif kind == "html_block":
                self._html(token.content)
            elif kind.startswith(("table", "thead", "tr")):
                self._table_token(kind)
            else:
                self._structure(token)

    def _structure(self, token: Token) -> None:
        kind = token.type
        if kind == "heading_open":
            self._heading = int(token.tag[1])
        elif kind == "heading_close":
            self._heading = 0
        elif kind == "bullet_list_open":
            self._lists.append(None)
        elif kind == "ordered_list_open":
            self._lists.append(int(token.attrs.get("start", 1)))
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._lists.pop()
        elif kind == "list_item_open":
            number = self._lists[-1]
            self._mark = "- " if number is None else f"{number}. "
            if number is not None:
                self._lists[-1] = number + 1
        elif kind == "list_item_close":
            self._mark = ""

    def _table_token(self, kind: str) -> None:
        if kind == "table_open":
            self._table = self._builder.next_table()
        elif kind == "thead_open":
            self._head = True
        elif kind == "thead_close":
            self._head = False
        elif kind == "tr_open":
            self._cells = []
        elif kind == "tr_close" and self._cells is not None:
            row = row_of(self._cells)
            if row.strip(" |"):
                self._builder.add(
                    "table_header" if self._head else "table_row", row, table=self._table
                )
            self._cells = None

    def _inline(self, token: Token) -> None:
        text = self._plain(token.content)
        if self._cells is not None:
            self._cells.append(squeeze(text))
        elif self._heading:
            self._builder.add("heading", squeeze(text), level=self._heading)
        elif self._mark and text.strip():
            self._builder.add("list_item", self._mark + text, level=len(self._lists))
            self._mark = ""
        else:
            self._builder.add("paragraph", text)

    def _code(self, content: str) -> None:
        self._mark = ""
        self._builder.add("code", content)

    def _plain(self, content: str) -> str:
        """The words of inline Markdown: no emphasis marks, no targets, images by their text."""
        if not _INLINE_MARKUP.search(content) or _bracketed(content):
            return content
        children: list[Token] = []
        self._parser.inline.parse(content, self._parser, self._env, children)
        return "".join(_words(children))

    def _html(self, content: str) -> None:
        content = _COMMENT.sub(" ", content)
        heading = _HEADING_TAG.fullmatch(content)
        text = tidy(html.unescape(_TAG.sub("", _BREAK_TAG.sub("\n", content))))
        text = "\n".join(line.strip() for line in text.split("\n"))
        if heading is not None:
            self._builder.add("heading", squeeze(text), level=int(heading.group(1)))
        else:
            self._builder.add("paragraph", text)


def _bracketed(content: str) -> bool:
    """Whether brackets stand so deep in one another that they are no links, and dear to parse."""
    if content.count("[") <= _BRACKETS_MAX:
        return False
    depth = deep = 0
    for match in _BRACKET.finditer(content):
        depth = depth + 1 if match.group() == "[" else max(0, depth - 1)
        deep += depth > _BRACKETS_DEEP
        if deep > _BRACKETS_MAX:
            return True
    return False


def _words(tokens: Sequence[Token]) -> list[str]:
    """The visible text of inline tokens."""
    words: list[str] = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            words.append("\n")
        elif token.type == "image":
            words.extend(_words(token.children or ()) or [token.content])
        elif token.type == "html_inline":
            if _BREAK_TAG.match(token.content):
                words.append("\n")
        else:
            words.append(token.content)
    return words
