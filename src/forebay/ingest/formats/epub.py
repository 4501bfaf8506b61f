"""EPUB: the spine's pages in order, each as HTML."""

from __future__ import annotations

import posixpath
import zipfile
from typing import TYPE_CHECKING
from urllib.parse import unquote

from forebay.ingest.archive import damaged, encrypted, open_archive, read_entry, safe_xml
from forebay.ingest.encoding import decode
from forebay.ingest.formats.html import add_html
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument

if TYPE_CHECKING:
    from lxml import etree

_DC = "{http://purl.org/dc/elements/1.1/}"


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return the book's pages; title, author and language from its package file."""
    archive = open_archive(source.data, limits)
    package_name = _package_name(archive)
    package = safe_xml(read_entry(archive, package_name) or b"")
    builder = TextBuilder(limits, media_type=source.media_type)
    locked = b"EncryptedData" in (read_entry(archive, "META-INF/encryption.xml") or b"")
    folder = posixpath.dirname(package_name)
    for number, href in enumerate(_spine(package), start=1):
        if number > limits.max_pages:
            builder.warn(f"Only the first {limits.max_pages} pages were read.")
            break
        name = posixpath.normpath(posixpath.join(folder, unquote(href.split("#")[0])))
        data = read_entry(archive, name)
        if data is None:
            builder.warn(f"Page {number} of the book is missing or damaged.")
            continue
        try:
            add_html(builder, decode(data, limits).text)
        except UnsupportedDocument as error:
            if error.code == "too_long":
                raise
            if error.code != "empty":
                builder.warn(f"Page {number} of the book could not be read.")
    if builder.empty and locked:
        raise encrypted()
    metadata = {"author": ", ".join(_texts(package, "creator"))}
    return builder.build(
        title=next(iter(_texts(package, "title")), "") or source.stem,
        language=next(iter(_texts(package, "language")), ""),
        metadata=metadata,
    )


def _package_name(archive: zipfile.ZipFile) -> str:
    container = read_entry(archive, "META-INF/container.xml")
    if container is not None:
        for element in safe_xml(container).iter("{*}rootfile"):
            path = element.get("full-path")
            if path:
                return path
    for name in archive.namelist():
        if name.endswith(".opf"):
            return name
    raise damaged("list of its pages")


def _spine(package: etree._Element) -> list[str]:
    items = {
        item.get("id"): item.get("href")
        for item in package.iter("{*}item")
        if "nav" not in (item.get("properties") or "").split()
    }
    refs = [ref.get("idref") for ref in package.iter("{*}itemref")]
    pages = [href for href in (items.get(ref) for ref in refs) if href]
    return pages or [h for h in items.values() if h and h.endswith((".xhtml", ".html", ".htm"))]


def _texts(package: etree._Element, name: str) -> list[str]:
    return [e.text.strip() for e in package.iter(f"{_DC}{name}") if e.text and e.text.strip()]
