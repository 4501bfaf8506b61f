"""Random bytes for names of things: drawn by the page, handed out in pieces."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock

PAGE_BYTES = 4096


class RandomBytes:
    """Bytes of the system's source, each handed out once.

    Asking the system releases the interpreter, which a busy process gets back only after half a
    millisecond for every thread that waits for it: once for a hundred names is often enough.
    """

    __slots__ = ("_at", "_lock", "_page", "_source")

    def __init__(self, source: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._source = source
        self._page = b""
        self._at = 0
        self._lock = Lock()

    def __call__(self, count: int) -> bytes:
        """``count`` bytes; many at once come from the system directly."""
        if count > PAGE_BYTES // 8:
            return self._source(count)
        with self._lock:
            if self._at + count > len(self._page):
                self._page, self._at = self._source(PAGE_BYTES), 0
            self._at += count
            return self._page[self._at - count : self._at]


class RandomNames:
    """Names of ``count`` random bytes in hex, each handed out once; made by the page, too.

    Without a lock: taking the last of a list is one step of the interpreter.
    """

    __slots__ = ("_count", "_made", "_source")

    def __init__(self, count: int, source: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._count = count
        self._source = source
        self._made: list[str] = []

    def __call__(self) -> str:
        """Another name."""
        while True:
            try:
                return self._made.pop()
            except IndexError:
                page = self._source(PAGE_BYTES // self._count * self._count).hex()
                size = 2 * self._count
                self._made.extend(page[at : at + size] for at in range(0, len(page), size))
