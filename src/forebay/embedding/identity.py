"""Fingerprints: which embedders give the same vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

_LENGTH = 32


def fingerprint(parts: Mapping[str, str | int | float | bool | None]) -> str:
    """A stable digest of everything that decides a vector: weights, tokenizer, pooling, prefixes.

    Paths, hosts and library versions are not part of it, so machines agree.
    """
    encoded = msgspec.json.encode(dict(parts), order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:_LENGTH]


def file_digest(*paths: Path) -> str:
    """SHA-256 over the contents of ``paths``, in the order given (blocking)."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
