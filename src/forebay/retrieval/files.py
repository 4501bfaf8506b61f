"""Small files that are there whole or not at all: written aside, synced, renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: after a crash either the old or the new content is there."""
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def sync_folder(path: Path) -> None:
    """Make renames and new files inside ``path`` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_passing(path: Path, value: msgspec.Struct) -> None:
    """Write ``value`` as JSON for other processes; a power cut may lose or spoil it."""
    aside = path.with_name(path.name + ".new")
    aside.write_bytes(msgspec.json.encode(value))
    aside.replace(path)


def write_struct(path: Path, value: msgspec.Struct) -> None:
    """Write ``value`` as JSON, atomically."""
    write_atomically(path, msgspec.json.encode(value))


def read_struct(path: Path, type_: type[T]) -> T | None:
    """Read a value; None when the file is absent or damaged (its owner then rebuilds)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except (OSError, msgspec.DecodeError):
        return None


def clear_leftovers(folder: Path) -> None:
    """Remove what a crash left half-built; nothing published has these names."""
    for pattern in ("new-*", "input-*", "*.new"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
