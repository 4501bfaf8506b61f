"""Which format module reads a file: by magic bytes first, then extension, then media type."""

from __future__ import annotations

import importlib
import re
import zipfile
from types import ModuleType

from forebay.ingest.archive import ZIP_ERRORS, damaged, encrypted, open_archive
from forebay.ingest.formats.plain import CODE_EXTENSIONS
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument

_OFFICE = "application/vnd.openxmlformats-officedocument."
# Format: module, media type, extensions. Modules are imported when first needed, so that a worker
# that reads text never loads the PDF or Office libraries.
_FORMATS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "markdown": ("markdown", "text/markdown", (".md", ".mdx", ".markdown", ".mkd")),
    "html": ("html", "text/html", (".html", ".htm", ".xhtml")),
    "pdf": ("pdf", "application/pdf", (".pdf",)),
    "docx": ("docx", f"{_OFFICE}wordprocessingml.document", (".docx", ".docm")),
    "pptx": ("pptx", f"{_OFFICE}presentationml.presentation", (".pptx", ".pptm")),
    "xlsx": ("xlsx", f"{_OFFICE}spreadsheetml.sheet", (".xlsx", ".xlsm")),
    "csv": ("csv_table", "text/csv", (".csv",)),
    "tsv": ("csv_table", "text/tab-separated-values", (".tsv", ".tab")),
    "json": ("json_data", "application/json", (".json", ".geojson")),
    "jsonl": ("json_data", "application/x-ndjson", (".jsonl", ".ndjson")),
    "mail": ("mail", "message/rfc822", (".eml",)),
    "epub": ("epub", "application/epub+zip", (".epub",)),
    "plain": ("plain", "text/plain", (".txt", ".text", ".rst", ".adoc", ".org", ".srt", ".vtt")),
}
_SAVE_AS = {
    ".doc": ("an old Word document", ".docx"),
    ".dot": ("an old Word template", ".docx"),
    ".xls": ("an old Excel workbook", ".xlsx"),
    ".ppt": ("an old PowerPoint presentation", ".pptx"),
    ".odt": ("an OpenDocument text", ".docx"),
    ".ods": ("an OpenDocument spreadsheet", ".xlsx"),
    ".odp": ("an OpenDocument presentation", ".pptx"),
    ".rtf": ("a rich-text document", ".docx"),
    ".xlsb": ("a binary Excel workbook", ".xlsx"),
    ".msg": ("an Outlook message", ".eml"),
    ".mobi": ("a Mobipocket book", ".epub"),
    ".pages": ("a Pages document", ".docx"),
}
_BINARY = (
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"II*\x00", "an image"),
    (b"MM\x00*", "an image"),
    (b"\x1f\x8b", "a compressed archive"),
    (b"7z\xbc\xaf", "a compressed archive"),
    (b"Rar!", "a compressed archive"),
    (b"\xfd7zXZ", "a compressed archive"),
    (b"(\xb5/\xfd", "a compressed archive"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"SQLite format 3", "a database"),
    (b"OggS", "a sound file"),
    (b"ID3", "a sound file"),
    (b"fLaC", "a sound file"),
    (b"RIFF", "a sound or video file"),
    (b"\x1aE\xdf\xa3", "a video"),
)
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HTML_START = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_SVG_START = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*(?:<\?xml\b[^>]*>\s*)?<svg\b")
_MAIL_START = re.compile(
    rb"(?:(?:From|To|Subject|Date|Message-ID|MIME-Version|Received|Return-Path|Delivered-To):"
    rb"[^\n]*\n(?:[ \t][^\n]*\n)*){3}",
    re.IGNORECASE,
)


def supported_extensions() -> frozenset[str]:
    """Every extension (lower case, with its dot) that ``parse`` can read."""
    known = {extension for _, _, names in _FORMATS.values() for extension in names}
    return frozenset(known) | CODE_EXTENSIONS


def parse(
    data: bytes,
    *,
    name: str,
    media_type: str | None = None,
    settings: IngestLimits | None = None,
) -> Extracted:
    """Return the text and structure of ``data``; nothing it refers to is fetched.

    Errors: ``UnsupportedDocument`` with one sentence a person can act on and a ``code`` such as
    ``encrypted``, ``empty``, ``not_text``, ``no_text_layer``, ``damaged``, ``too_large``.
    """
    limits = settings or IngestLimits()
    if len(data) > limits.max_file_bytes:
        raise UnsupportedDocument(
            f"The file has {len(data)} bytes, over the limit of {limits.max_file_bytes}.",
            code="too_large",
        )
    if not data:
        raise UnsupportedDocument("The document is empty: it holds no text.", code="empty")
    charset = None
    if media_type and "charset=" in media_type.lower():
        charset = re.split("charset=", media_type, flags=re.I)[1].split(";")[0].strip(" \"'")
    chosen = _choose(Source(data, name, ""), media_type, limits)
    module, kind, _ = _FORMATS[chosen]
    source = Source(data, name, kind, charset)
    try:
        parsed = _load(module).parse(source, limits)
    except (UnsupportedDocument, MemoryError):
        raise
    # The libraries meet damaged input with whatever error comes first: here it becomes one.
    except Exception as error:
        raise damaged("content") from error
    assert isinstance(parsed, Extracted)
    return parsed


def _load(module: str) -> ModuleType:
    return importlib.import_module(f"forebay.ingest.formats.{module}")


def _choose(source: Source, media_type: str | None, limits: IngestLimits) -> str:
    data = source.data
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _choose_zip(source, limits)
    if data.startswith(_OLE_MAGIC):
        raise _ole(source)
    if data.startswith(b"{\\rtf"):
        raise _save_as(".rtf")
    for magic, what in _BINARY:
        if data.startswith(magic):
            raise UnsupportedDocument(f"The file is {what}, not text.", code="not_text")
    if data[4:8] == b"ftyp":
        raise UnsupportedDocument("The file is a sound or video file, not text.", code="not_text")
    return _choose_text(source, media_type)


def _picture() -> UnsupportedDocument:
    """An SVG: its markup is text, but nobody asks about coordinates."""
    return UnsupportedDocument("The file is an image, not text.", code="not_text")


def _choose_text(source: Source, media_type: str | None) -> str:
    extension = source.extension
    binary = ("pdf", "docx", "pptx", "xlsx", "epub")
    for key, (_, _, extensions) in _FORMATS.items():
        if extension in extensions:
            if key in binary:
                raise UnsupportedDocument(
                    f"The file is named {extension} but is not such a document.", code="damaged"
                )
            return key
    if extension == ".svg":
        raise _picture()
    if extension in _SAVE_AS and extension not in (".doc", ".dot", ".pages"):
        raise _save_as(extension)
    declared = (media_type or "").split(";")[0].strip().lower()
    for key, (_, kind, _) in _FORMATS.items():
        if declared == kind and key != "plain" and key not in binary:
            return key
    if extension not in CODE_EXTENSIONS:
        if _SVG_START.match(source.data[:2048]):
            raise _picture()
        if _HTML_START.match(source.data[:512]):
            return "html"
        if not extension and _MAIL_START.match(source.data[:4096].replace(b"\r", b"")):
            return "mail"
    return "plain"


def _choose_zip(source: Source, limits: IngestLimits) -> str:
    with open_archive(source.data, limits) as archive:
        names = set(archive.namelist())
        for part, key in (
            ("word/", "docx"),
            ("ppt/presentation.xml", "pptx"),
            ("xl/workbook.xml", "xlsx"),
        ):
            if part in names or (part[-1] == "/" and any(n.startswith(part) for n in names)):
                return key
        try:
            kind = _mimetype(archive, names)
        except ZIP_ERRORS as error:
            raise damaged("zip container") from error
    if kind.startswith("application/epub"):
        return "epub"
    if "opendocument" in kind:
        last = kind.rsplit(".", 1)[-1]
        known = {"text": ".odt", "spreadsheet": ".ods", "presentation": ".odp"}
        raise _save_as(known.get(last, ".odt"))
    if source.extension == ".epub" or "META-INF/container.xml" in names:
        return "epub"
    if source.extension in _SAVE_AS:
        raise _save_as(source.extension)
    raise UnsupportedDocument(
        "The file is a zip archive; unpack it and ingest the files.", code="unsupported_document"
    )


def _mimetype(archive: zipfile.ZipFile, names: set[str]) -> str:
    if "mimetype" not in names or archive.getinfo("mimetype").file_size > 1000:
        return ""
    return archive.read("mimetype").decode("ascii", errors="ignore").strip()


def _ole(source: Source) -> UnsupportedDocument:
    """What an OLE container holds: its directory names its streams in UTF-16."""
    data = source.data
    for stream, extension in (
        ("EncryptedPackage", None),
        ("WordDocument", ".doc"),
        ("PowerPoint Document", ".ppt"),
        ("Workbook", ".xls"),
        ("__properties_version1.0", ".msg"),
        ("Book", ".xls"),
    ):
        if stream.encode("utf-16-le") in data:
            return encrypted() if extension is None else _save_as(extension)
    return _save_as(source.extension if source.extension in _SAVE_AS else ".doc")


def _save_as(extension: str) -> UnsupportedDocument:
    what, target = _SAVE_AS[extension]
    return UnsupportedDocument(f"The file is {what}; save it as {target} and ingest that.")
