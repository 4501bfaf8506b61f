"""The log of questions to learn from: a bounded file, appended to by every process of a store.

It holds what users asked, so it is readable by its owner alone, lies in the store's folder and is
only written where the operator wants it. Two files: when the current one has half of the bound, it
becomes the one before, which is dropped. A line that was cut or is of another release is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from forebay.cache.prewarm import Asked

CURRENT, BEFORE = "requests.jsonl", "requests.before.jsonl"
LINE_BYTES = 4096
"""A request that is longer, by its filter say, is not learned: each may stay in memory."""
EARLY = 0.9
"""Of a file's bound: the rest is for those who may not exchange files."""
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Asked)


def line_of(asked: Asked) -> bytes:
    """One request as a line; empty when it is too long to be kept."""
    try:
        line = _encode(asked) + b"\n"
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return b""  # half a surrogate pair is no question
    return line if len(line) <= LINE_BYTES else b""


class RequestLog:
    """The files; ``rotates``: whether this process may exchange them. All calls block."""

    def __init__(self, folder: Path, max_bytes: int, *, rotates: bool) -> None:
        self._current, self._before = folder / CURRENT, folder / BEFORE
        self._half = max_bytes // 2
        self._rotates = rotates

    def append(self, lines: bytes) -> None:
        """Add whole lines at once: those of other processes stay whole. Over the bound: nothing.

        Whoever rotates calls this now and then, with nothing to add, too.
        """
        size = self._size()
        if self._rotates and size + len(lines) > self._half * EARLY:
            with suppress(FileNotFoundError):
                self._current.replace(self._before)
            size = 0
        if not lines or size + len(lines) > self._half:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._current, flags, 0o600)
        try:
            os.write(file, lines)
        finally:
            os.close(file)

    def read(self) -> list[Asked]:
        """What is kept, in the order of times."""
        found = [*_read(self._before), *_read(self._current)]
        found.sort(key=lambda asked: asked.at)
        return found

    def _size(self) -> int:
        try:
            return self._current.stat().st_size
        except FileNotFoundError:
            return 0


def _read(path: Path) -> Iterator[Asked]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(LINE_BYTES + 1):
            with suppress(msgspec.MsgspecError, RecursionError):
                yield _decoder.decode(line)
