"""PDF through pypdfium2: text in reading order by page, never rendered, never fetched."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Any

from forebay.ingest.archive import damaged, encrypted
from forebay.ingest.formats.pdf_page import PageText, read_page
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument

_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
_MAX_FAILED_PAGES = 50
_REPEATED_PAGE_CHARACTERS = 60
_LINE_NUMBERS = 5
_NAMED_REPEATS = 3
# Lines under this many characters are labels and cells rather than wrapped prose.
_SHORT, _SHORT_WIDE = 30, 12
_JUNK_TITLE = re.compile(
    r"^\W*(?:untitled|anonymous|unknown|microsoft word|microsoft powerpoint|slide \d)|\.\w{2,4}$",
    re.I,
)
# Ligatures and presentation forms: what is drawn, not what is written.
_FORMS = re.compile("[\ufb00-\ufb06\ufb13-\ufb17\ufb1d-\ufdff\ufe70-\ufefc]+")
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]")
_JOINED = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_SENTENCE_END = tuple('.!?。！？:：;；”"')
_BULLET = re.compile(r"\s*(?:[•◦▪●■○*–-]|\d{1,3}[.)]|[（(]\d{1,3}[）)]|第\d+[章节條条])\s*\S")


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return the text of every page as paragraphs; bookmarks become headings.

    Errors: ``UnsupportedDocument`` with code ``encrypted``, ``damaged``, ``no_text_layer``,
    ``hidden_text`` or ``empty``.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(source.data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == _PASSWORD_ERROR:
            raise encrypted() from error
        raise damaged("PDF structure") from error
    try:
        return _read(document, source, limits)
    finally:
        document.close()


def _read(document: Any, source: Source, limits: IngestLimits) -> Extracted:
    builder = TextBuilder(limits, media_type=source.media_type)
    pages = _pages(document, limits, builder)
    scanned = [number for number, page in pages if page.image and not page.text.strip()]
    hidden = [number for number, page in pages if page.hidden]
    if hidden:
        builder.warn(
            f"Invisible text on page {_listed(hidden)} was left out: a reader cannot see it."
        )
    if not any(page.text.strip() for _, page in pages):
        _refuse(pages, bool(hidden))
    if scanned:
        builder.warn(f"Page {_listed(scanned)} is scanned and has no text layer.")
    outline = _outline(document)
    seen: dict[str, int] = {}
    repeated: list[tuple[int, int]] = []
    furniture = _furniture([page.text for _, page in pages])
    for number, page in pages:
        text = _normalised(page.text)
        twin = seen.setdefault(text, number) if len(text) > _REPEATED_PAGE_CHARACTERS else number
        if twin != number:
            repeated.append((number, twin))
            continue
        _add_page(builder, text, number, outline, furniture)
    if len(repeated) > _NAMED_REPEATS:
        numbers = _listed([number for number, _ in repeated])
        builder.warn(f"Page {numbers} repeat earlier pages and were left out.")
    else:
        for number, twin in repeated:
            builder.warn(f"Page {number} repeats page {twin} and was left out.")
    title = _metadata(document, "Title")
    if not title or _JUNK_TITLE.search(title):
        title = source.stem
    author = _metadata(document, "Author")
    return builder.build(
        title=title, metadata={"author": "" if _JUNK_TITLE.search(author) else author}
    )


def _refuse(pages: list[tuple[int, PageText]], hidden: bool) -> None:
    if hidden:
        raise UnsupportedDocument(
            "The document holds only invisible text; nothing a reader could see.",
            code="hidden_text",
        )
    if any(page.image for _, page in pages):
        raise UnsupportedDocument(
            "The document is scanned and has no text layer; run it through OCR first.",
            code="no_text_layer",
        )


def _pages(document: Any, limits: IngestLimits, builder: TextBuilder) -> list[tuple[int, PageText]]:
    import pypdfium2

    count = len(document)
    if count > limits.max_pages:
        builder.warn(f"Only the first {limits.max_pages} of {count} pages were read.")
    pages: list[tuple[int, PageText]] = []
    failed: list[int] = []
    characters = 0
    for index in range(min(count, limits.max_pages)):
        try:
            page = read_page(document, index)
        except pypdfium2.PdfiumError as error:
            failed.append(index + 1)
            if len(failed) > _MAX_FAILED_PAGES and not pages:
                raise damaged("page tree") from error
            if len(failed) > 20 * _MAX_FAILED_PAGES:
                break
            continue
        characters += len(page.text)
        if characters > limits.max_characters:
            builder.warn(f"Only the first {index} of {count} pages were read.")
            break
        pages.append((index + 1, page))
    if failed and not pages:
        raise damaged("pages")
    if failed:
        builder.warn(f"Page {_listed(failed)} could not be read.")
    return pages


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"


def _metadata(document: Any, key: str) -> str:
    return squeeze(document.get_metadata_value(key) or "")


def _outline(document: Any) -> dict[tuple[int, str], int]:
    """Heading level by (page number, title) from the bookmarks."""
    import pypdfium2

    headings: dict[tuple[int, str], int] = {}
    try:
        for index, bookmark in enumerate(document.get_toc(max_depth=6)):
            if index > 5_000:
                break
            target = bookmark.get_dest()
            page = target.get_index() if target is not None else None
            title = squeeze(bookmark.get_title() or "")
            if page is not None and title:
                headings.setdefault((page + 1, _key(title)), min(6, bookmark.level + 1))
    except pypdfium2.PdfiumError:
        return headings
    return headings


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _furniture(pages: list[str]) -> set[str]:
    """First and last lines that most pages share, digits aside: running heads and feet."""
    if len(pages) < 5:
        return set()
    counts: Counter[str] = Counter()
    for text in pages:
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        counts.update({_shape(line) for line in (*lines[:2], *lines[-2:])})
    return {line for line, count in counts.items() if count > 0.6 * len(pages)}


def _shape(line: str) -> str:
    return re.sub(r"\d+", "0", line.strip())


def _normalised(text: str) -> str:
    return _FORMS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)


def _add_page(
    builder: TextBuilder,
    text: str,
    number: int,
    outline: dict[tuple[int, str], int],
    furniture: set[str],
) -> None:
    """Join wrapped lines into paragraphs; a short line or a full stop ends one."""
    lines = [squeeze(line) for line in text.split("\n")]
    filled = [line for line in lines if line]
    edges = {0, 1, len(filled) - 2, len(filled) - 1}
    if furniture:
        filled = [
            line
            for index, line in enumerate(filled)
            if not (index in edges and _shape(line) in furniture)
        ]
    filled = _without_line_numbers(filled)
    paragraph = ""
    for index, line in enumerate(filled):
        level = outline.get((number, _key(line)))
        if level is not None or _BULLET.match(line):
            builder.add("paragraph", paragraph, page=number)
            paragraph = ""
        if level is not None:
            builder.add("heading", line, level=level, page=number)
            continue
        paragraph = _joined(paragraph, line)
        if _ends_paragraph(filled, index):
            builder.add("paragraph", paragraph, page=number)
            paragraph = ""
    builder.add("paragraph", paragraph, page=number)


def _without_line_numbers(lines: list[str]) -> list[str]:
    """Drop runs of five or more lines that only count: numbered transcripts."""
    kept: list[str] = []
    run: list[str] = []
    for line in [*lines, ""]:
        if line.isascii() and line.isdigit() and (not run or int(line[:9]) == int(run[-1][:9]) + 1):
            run.append(line)
            continue
        kept.extend(run if len(run) < _LINE_NUMBERS else [])
        run = []
        if line.isascii() and line.isdigit():
            run = [line]
        elif line:
            kept.append(line)
    return kept


def _ends_paragraph(lines: list[str], index: int) -> bool:
    """Whether a line that was not wrapped ends here: shorter than its neighbours, or a stop."""
    line = lines[index]
    following = lines[index + 1] if index + 1 < len(lines) else ""
    words = line.split()
    if sum(map(_has_digit, words)) >= max(2, 0.4 * len(words)):
        return True  # a row of figures
    stop = line.endswith(_SENTENCE_END)
    if following[:1].islower() and not stop:
        return False
    if len(line) < (_SHORT_WIDE if _WIDE.search(line) else _SHORT):
        return True
    longest = max(map(len, lines[max(0, index - 2) : index + 2]))
    return len(line) < (0.9 if stop else 0.75) * longest


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def _joined(paragraph: str, line: str) -> str:
    if not paragraph:
        return line
    if _JOINED.match(paragraph[-1]) and _JOINED.match(line[0]):
        return paragraph + line
    if paragraph.endswith("-") and len(paragraph) > 1 and paragraph[-2].isalpha():
        return (paragraph[:-1] + line) if line[0].islower() else paragraph + line
    return f"{paragraph} {line}"
