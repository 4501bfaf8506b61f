"""HTML through selectolax (lexbor); nothing it refers to is ever fetched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forebay.ingest.encoding import decode_source
from forebay.ingest.formats.html_depth import require_shallow
from forebay.ingest.formats.html_table import table_rows
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze, tidy
from forebay.kernel.documents import BlockKind, Extracted
from forebay.kernel.rows import row_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_DROPPED = frozenset(
    "script style template noscript nav svg iframe object embed applet canvas audio video button "
    "select textarea input form-control datalist dialog head math-source map".split()
)
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure "
    "footer form header hgroup hr html legend li main ol p pre search section summary table tbody "
    "td tfoot th thead tr ul caption h1 h2 h3 h4 h5 h6".split()
)
_NOISE_CLASS = re.compile(
    r"(?:^|\s)(?:noprint|navbox|mw-editsection|mw-jump-link|sr-only|visually-hidden|breadcrumbs?"
    r"|interlanguage-link|vector-dropdown|mw-portlet[\w-]*)"
    r"(?:\s|$)"
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0", re.I)
_SPACE = re.compile(r"[ \t\n\r\f\u00a0]+")


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return headings, paragraphs, lists, code and tables of the main content."""
    decoded = decode_source(source, limits)
    builder = TextBuilder(limits, media_type=source.media_type)
    builder.warnings.extend(decoded.warnings)
    title, language = add_html(builder, decoded.text)
    return builder.build(
        title=title or ("" if has_heading(builder) else source.stem),
        language=language,
        encoding=decoded.encoding,
    )


def has_heading(builder: TextBuilder) -> bool:
    """Whether a heading was added, which then serves as title."""
    return any(block.kind == "heading" for block in builder.blocks)


def add_html(builder: TextBuilder, text: str, *, page: int | None = None) -> tuple[str, str]:
    """Add the blocks of a page to ``builder``; return its title and declared language."""
    from selectolax.lexbor import LexborHTMLParser

    require_shallow(text)
    tree = LexborHTMLParser(text)
    title_node = tree.css_first("title")
    title = squeeze(title_node.text()) if title_node is not None else ""
    root = tree.root
    language = (root.attributes.get("lang") or "") if root is not None else ""
    start = _main(tree.css("main, [role=main]"), tree.body) or tree.root
    if start is not None:
        _Walker(builder, page).walk(start)
    return title, language


def _main(candidates: list[LexborNode], body: LexborNode | None) -> LexborNode | None:
    """The page's main element when there is exactly one and it holds most of the text."""
    if body is None or len(candidates) != 1:
        return body
    size = len(candidates[0].text() or "")
    return candidates[0] if size > 200 and size * 4 > len(body.text() or "") else body


def _skipped(node: LexborNode, tag: str) -> bool:
    if tag in _DROPPED:
        return True
    attributes = node.attributes
    if not attributes:
        return False
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if attributes.get("role") in ("navigation", "search", "menu", "dialog"):
        return True
    if _NOISE_CLASS.search(attributes.get("class") or ""):
        return True
    return bool(_HIDDEN_STYLE.search(attributes.get("style") or ""))


class _Walker:
    """A depth-first walk without recursion, so that depth costs nothing."""

    def __init__(self, builder: TextBuilder, page: int | None) -> None:
        self._builder = builder
        self._page = page
        self._words: list[str] = []
        self._kind: BlockKind = "paragraph"
        self._level = 0
        self._lists: list[int | None] = []
        self._mark = ""
        self._pre = 0

    def walk(self, root: LexborNode) -> None:
        """Add everything below ``root``."""
        node: LexborNode | None = root
        depth = 0
        while node is not None:
            child = self._enter(node)
            if child is not None:
                node, depth = child, depth + 1
                continue
            while node is not None:
                if depth == 0:
                    self._flush()
                    return
                following = node.next
                if following is not None:
                    node = following
                    break
                node = node.parent
                depth -= 1
                if node is not None:
                    self._leave(node.tag or "")
        self._flush()

    def _enter(self, node: LexborNode) -> LexborNode | None:
        """Handle the start of a node; return its first child to go down, None to go on."""
        if node.is_text_node:
            self._words.append(node.text_content or "")
            return None
        tag = node.tag or ""
        if not (node.is_element_node or node.is_document_node) or _skipped(node, tag):
            return None
        if tag == "br":
            self._words.append("\n" if self._pre else "\x00")
            return None
        if tag == "img":
            self._words.append(f" {node.attributes.get('alt') or ''} ")
            return None
        if tag == "table" and self._table(node):
            return None
        if tag in _BLOCKS:
            self._flush()
            self._open(node, tag)
        child = node.child
        if child is None:
            self._leave(tag)
        return child

    def _open(self, node: LexborNode, tag: str) -> None:
        if tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            number = self._lists[-1] if self._lists else None
            self._mark = "- " if number is None else f"{number}. "
            if number is not None:
                self._lists[-1] = number + 1
        elif tag == "pre":
            self._pre += 1
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._kind, self._level = "heading", int(tag[1])

    def _leave(self, tag: str) -> None:
        if tag not in _BLOCKS:
            return
        self._flush()
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag == "li":
            self._mark = ""
        elif tag == "pre":
            self._pre = max(0, self._pre - 1)
        elif len(tag) == 2 and tag[0] == "h":
            self._kind, self._level = "paragraph", 0

    def _flush(self) -> None:
        if not self._words:
            return
        raw = "".join(self._words)
        self._words = []
        if self._pre:
            self._builder.add("code", raw, page=self._page)
            return
        text = tidy(_SPACE.sub(" ", raw).replace("\x00", "\n"))
        if not text:
            return
        if self._kind == "heading":
            self._builder.add("heading", squeeze(text), level=self._level, page=self._page)
        elif self._mark:
            depth = max(1, len(self._lists))
            self._builder.add("list_item", self._mark + text, level=depth, page=self._page)
            self._mark = ""
        else:
            for paragraph in text.split("\n\n"):
                self._builder.add("paragraph", paragraph, page=self._page)

    def _table(self, node: LexborNode) -> bool:
        """Add a data table as rows; False for one that only lays out the page."""
        rows = table_rows(node)
        if rows is None:
            return False
        self._flush()
        number = self._builder.next_table()
        for header, cells in rows:
            kind: BlockKind = "table_header" if header else "table_row"
            self._builder.add(kind, row_of(cells), table=number, page=self._page)
        return True
