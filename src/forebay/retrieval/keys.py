"""Filters and rights as exact keys: what a chunk carries and what a request demands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from forebay.kernel.documents import ChunkRow

_KEY_CHARACTERS_MAX = 512
_FIELDS = frozenset({"document_id", "source", "title", "language"})
ALIVE = "*"
"""Carried by every chunk: its count tells how many chunks the engine counts, dead or alive."""
EVERYONE = "p"
"""Carried by chunks of documents without groups: every reader of the kb may see them."""


def row_keys(row: ChunkRow) -> list[str]:
    """Return every key under which ``row`` passes a filter."""
    keys = [
        ALIVE,
        _key("document_id", row.document_id),
        _key("source", row.source),
        _key("title", row.title),
        language_key(row.language),
    ]
    keys += [_key("tags", tag) for tag in row.tags]
    keys += [_metadata_key(name, value) for name, value in row.metadata.items()]
    keys += [group_key(group) for group in row.groups] or [EVERYONE]
    return keys


def group_key(group: str) -> str:
    """Return the key of one access group."""
    return _bounded(f"g:{group}")


def language_key(language: str) -> str:
    """Return the key of a document's language."""
    return _key("language", language)


def rights_keys(groups: frozenset[str] | None) -> tuple[str, ...] | None:
    """Return keys of which a readable chunk carries one; None means all rights."""
    if groups is None:
        return None
    return (EVERYONE, *sorted(group_key(group) for group in groups))


def filter_keys(
    wanted: Mapping[str, str | tuple[str, ...]], groups: frozenset[str] | None
) -> tuple[tuple[str, ...], ...]:
    """Return the demands of a request: of each inner tuple a chunk must carry one key.

    A field that is neither of the document nor ``tags`` is a metadata field. The result is
    hashable and equal for equal demands, so it serves as a cache key.
    """
    demands: list[tuple[str, ...]] = []
    for name in sorted(wanted):
        value = wanted[name]
        values: Sequence[str] = (value,) if isinstance(value, str) else value
        make = _key if name in _FIELDS or name == "tags" else _metadata_key
        demands.append(tuple(sorted({make(name, each) for each in values})))
    rights = rights_keys(groups)
    if rights is not None:
        demands.append(rights)
    return tuple(demands)


def passes(row: ChunkRow, demands: tuple[tuple[str, ...], ...]) -> bool:
    """Whether ``row`` meets every demand: the last check before a text leaves."""
    if not demands:
        return True
    keys = set(row_keys(row))
    return all(any(key in keys for key in demand) for demand in demands)


def _key(field: str, value: str) -> str:
    return _bounded(f"f:{field}={value}")


def _metadata_key(name: str, value: str) -> str:
    return _bounded(f"m:{len(name)}:{name}={value}")


def _bounded(key: str) -> str:
    """Keep keys short: the engine drops terms over 64 KB, which would open a filter."""
    if len(key) <= _KEY_CHARACTERS_MAX:
        return key
    return "h:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
