"""Keys of chunks, for what keeps things by chunk outside: ``doc-{hash}-chunk-{n}-v{version}``.

The hash is of the document (knowledge base, id, title, content), ``n`` the chunk's place in it and
``version`` the knowledge base's when the chunk came. So a key names one text for ever, even where
a store was put back from a backup and counts its versions anew. It is a name, not a secret: who
may read is decided where it is resolved.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Literal

import msgspec

from forebay.kernel.documents import ChunkRow

DIGEST_BYTES = 16
_FORM = re.compile(r"doc-([0-9a-f]{32})-chunk-(0|[1-9][0-9]{0,8})-v(0|[1-9][0-9]{0,14})")

KeyState = Literal["living", "superseded", "deprecated"]
"""Superseded: another text took its place and the old one can still be read; deprecated: it is
gone.
"""


class ChunkKey(msgspec.Struct, frozen=True):
    """One key in its parts."""

    digest: bytes
    ordinal: int
    version: int

    def __str__(self) -> str:
        return f"doc-{self.digest.hex()}-chunk-{self.ordinal}-v{self.version}"


def parse_key(text: str) -> ChunkKey | None:
    """The key that ``text`` spells; None when it spells none."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    return ChunkKey(bytes.fromhex(found[1]), int(found[2]), int(found[3]))


def document_digest(kb: str, document_id: str, title: str, content_hash: str) -> bytes:
    """What the keys of a document's chunks begin with."""
    parts = msgspec.json.encode((kb, document_id, title, content_hash))
    return blake2b(parts, digest_size=DIGEST_BYTES).digest()


class KeyedText(msgspec.Struct, frozen=True):
    """What a chunk's key stands for: the text and what belongs to reading it."""

    text: str
    context: str
    heading_path: tuple[str, ...]


class KeyedChunk(msgspec.Struct, frozen=True):
    """What the record says of a key.

    ``readers``: the groups of which each has to be met (an empty one is). ``chunk`` is there for
    what lives, ``kept`` for what lives or is superseded. ``document_id`` None: the document is
    gone. ``successor`` is the key of what took its place.
    """

    key: ChunkKey
    state: KeyState
    document_id: str | None
    readers: tuple[tuple[str, ...], ...]
    kept: KeyedText | None = None
    chunk: ChunkRow | None = None
    retired_at: float | None = None
    successor: ChunkKey | None = None
