"""E-mail files through the standard library's parser."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterable
from email.message import EmailMessage, Message
from typing import TYPE_CHECKING

from forebay.ingest.encoding import decode
from forebay.ingest.formats import plain
from forebay.ingest.formats.html import add_html
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, squeeze
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument

if TYPE_CHECKING:
    _Part = Message[str, str]

_HEADERS = ("from", "to", "cc", "date", "subject", "message-id")
_MAX_PARTS = 1_000


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return subject, addresses and body; attachments are named in the warnings."""
    data, encoding = source.data, None
    if b"\x00" in data[:4096] or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        decoded = decode(data, limits)
        data, encoding = decoded.text.encode("utf-8"), decoded.encoding
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    headers = {name: _header(message, name) for name in _HEADERS}
    headers = {name: value for name, value in headers.items() if value}
    builder = TextBuilder(limits, media_type=source.media_type)
    subject = headers.get("subject", "")
    builder.add("heading", subject, level=1)
    shown = [f"{name.title()}: {headers[name]}" for name in _HEADERS[:4] if name in headers]
    builder.add("paragraph", "\n".join(shown))
    found = _add_body(builder, message, limits)
    if not found:
        builder.warn("The message has no text body.")
    return builder.build(
        title=subject or source.stem, encoding=found or encoding or "utf-8", metadata=headers
    )


def _header(message: EmailMessage, name: str) -> str:
    # The parser raises a variety of errors for broken addresses and dates when a header is read.
    try:
        value = message.get(name)
    except (ValueError, IndexError, AttributeError, TypeError, LookupError):
        return ""
    return "" if value is None else squeeze(str(value))


def _add_body(builder: TextBuilder, message: EmailMessage, limits: IngestLimits) -> str | None:
    """Add the text parts, HTML only where there is no plain text; return their encoding."""
    plain_parts: list[_Part] = []
    html_parts: list[_Part] = []
    parts: Iterable[_Part] = message.walk()
    for index, part in enumerate(parts):
        if index > _MAX_PARTS:
            builder.warn(f"Only the first {_MAX_PARTS} parts of the message were read.")
            break
        if part.is_multipart():
            continue
        name = part.get_filename()
        kind = part.get_content_type()
        if name or part.get_content_disposition() == "attachment":
            builder.warn(f"Attachment {squeeze(name or kind)[:100]} was not indexed.")
        elif kind == "text/plain":
            plain_parts.append(part)
        elif kind == "text/html":
            html_parts.append(part)
    encoding = None
    for chosen in plain_parts or html_parts:
        encoding = _add_part(builder, chosen, limits, html=not plain_parts) or encoding
    if encoding is None and plain_parts:
        for chosen in html_parts:
            encoding = _add_part(builder, chosen, limits, html=True) or encoding
    return encoding


def _add_part(builder: TextBuilder, part: _Part, limits: IngestLimits, *, html: bool) -> str | None:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return None
    try:
        decoded = decode(payload, limits, charset=part.get_content_charset())
    except UnsupportedDocument as error:
        if error.code != "empty":
            builder.warn(f"A part of the message was left out: {error.message}")
        return None
    for warning in decoded.warnings:
        builder.warn(warning)
    if html:
        add_html(builder, decoded.text)
    else:
        inner = Source(b"", "body.txt", "text/plain")
        extracted = plain.from_text(decoded.text, inner, limits, decoded.encoding, ())
        for block in extracted.blocks:
            builder.add("paragraph", extracted.text[block.start : block.end])
    return decoded.encoding
