"""Opening zip-based documents without falling for a bomb."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING

from forebay.ingest.settings import IngestLimits
from forebay.kernel.errors import UnsupportedDocument

if TYPE_CHECKING:
    from lxml import etree

_SMALL_BYTES = 1_000_000
_ENCRYPTED_FLAG = 0x1
# What zipfile and the decompressors raise for damaged input.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
)


def open_archive(data: bytes, limits: IngestLimits) -> zipfile.ZipFile:
    """Return the archive after checking what its directory promises.

    ``zipfile`` reads no more of an entry than its directory says, so the sums bound memory.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (*ZIP_ERRORS, ValueError) as error:
        raise damaged("zip container") from error
    entries = archive.infolist()
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise encrypted()
    total = sum(entry.file_size for entry in entries)
    if len(entries) > limits.max_archive_entries or total > limits.max_archive_bytes:
        raise UnsupportedDocument(
            f"The document unpacks to {len(entries)} parts and {total} bytes, which is over the "
            f"limit of {limits.max_archive_entries} parts and {limits.max_archive_bytes} bytes.",
            code="too_large",
        )
    for entry in entries:
        ratio = entry.file_size / max(1, entry.compress_size)
        if entry.file_size > _SMALL_BYTES and ratio > limits.max_archive_ratio:
            raise UnsupportedDocument(
                f"A part of the document unpacks to {ratio:.0f} times its size, over the limit of "
                f"{limits.max_archive_ratio}: it looks like a zip bomb.",
                code="too_large",
            )
    return archive


def read_entry(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """Return an entry's bytes, None where there is none or it is damaged."""
    try:
        return archive.read(name)
    except (KeyError, *ZIP_ERRORS, ValueError, RuntimeError):
        return None


def safe_xml(data: bytes) -> etree._Element:
    """Parse XML without entities, DTDs or network; depth and size as lxml bounds them."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=False
    )
    try:
        return etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise damaged("XML inside it") from error


def damaged(what: str) -> UnsupportedDocument:
    """The error for a file that breaks its own format."""
    return UnsupportedDocument(
        f"The document is damaged: the {what} cannot be read; save it again and retry.",
        code="damaged",
    )


def encrypted() -> UnsupportedDocument:
    """The error for a document behind a password."""
    return UnsupportedDocument(
        "The document is encrypted; save it without a password.", code="encrypted"
    )
