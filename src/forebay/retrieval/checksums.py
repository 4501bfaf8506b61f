"""The checksums that the engine writes at the end of its files, looked at while these are in use.

A file ends with ``{"version": …, "crc": CRC-32 of all before}``, the length of that, and a mark.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Set
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

_MARK = 1337
_TAIL = struct.Struct("<II")
_FOOTER_BYTES_MAX = 4096
_READ_BYTES = 1_000_000


class _Segment(msgspec.Struct):
    segment_id: str


class _Meta(msgspec.Struct):
    segments: list[_Segment]


class _Footer(msgspec.Struct):
    version: dict[str, Any]
    crc: int


class Checksums:
    """Reads each file of committed segments once, and again when its time or size has changed.

    Not safe for concurrent calls.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}

    def damaged(self, folder: Path, segments: Set[str]) -> Path | None:
        """Return a file of ``segments`` in ``folder`` that is not what was written; None: all are.

        Files that are written once and whole: not those of deletions and of running merges.
        """
        seen, self._seen = self._seen, {}
        for path in sorted(path for path in folder.glob("*.*") if path.stem in segments):
            try:
                status = path.stat()
                state = (status.st_mtime_ns, status.st_size)
                if seen.get(path) != state and not intact(path):
                    return path
            except OSError:  # merged away meanwhile
                continue
            self._seen[path] = state
        return None


def committed_segments(folder: Path) -> frozenset[str]:
    """Return the names of the segments of the engine's last commit; none when it is unreadable."""
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_Meta)
    except (OSError, msgspec.DecodeError):
        return frozenset()
    return frozenset(one.segment_id.replace("-", "") for one in meta.segments)


def intact(path: Path) -> bool:
    """Whether the file is what its checksum says; raises ``OSError``."""
    with path.open("rb") as file:
        size = path.stat().st_size
        footer = _footer(file, size)
        if footer is None:
            return False
        left, crc = size - footer[1], 0
        file.seek(0)
        while left > 0 and (data := file.read(min(left, _READ_BYTES))):
            crc, left = zlib.crc32(data, crc), left - len(data)
    return left == 0 and crc == footer[0].crc


def _footer(file: BinaryIO, size: int) -> tuple[_Footer, int] | None:
    """Return the footer and all its bytes, the tail's with them."""
    if size < _TAIL.size:
        return None
    file.seek(size - _TAIL.size)
    length, mark = _TAIL.unpack(file.read(_TAIL.size))
    whole = length + _TAIL.size
    if mark != _MARK or length > _FOOTER_BYTES_MAX or whole > size:
        return None
    file.seek(size - whole)
    try:
        return msgspec.json.decode(file.read(length), type=_Footer), whole
    except msgspec.DecodeError:
        return None
