"""Which format module reads a file: by magic bytes first, then extension, then media type."""

from __future__ import annotations

from forebay.ingest.formats import plain
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.kernel.documents import Extracted


def parse(
    data: bytes,
    *,
    name: str,
    media_type: str | None = None,
    settings: IngestLimits | None = None,
) -> Extracted:
    """Return the text and structure of ``data``; raise ``UnsupportedDocument`` with a reason."""
    from forebay.ingest.formats import markdown

    source = Source(data, name, media_type or "text/plain")
    if source.extension in (".md", ".mdx", ".markdown"):
        return markdown.parse(source, settings or IngestLimits())
    return plain.parse(source, settings or IngestLimits())
