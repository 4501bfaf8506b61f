"""A codec that remembers what it has read of late: the same few results are found again and again.

What is remembered is used only for the very bytes it was read from, so a tier that has other bytes
under a key, or none, never sees it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from forebay.cache.values import Codec

V = TypeVar("V")


class Decoded(Generic[V]):
    """``Codec`` around another; values, which nobody may change, of up to ``max_bytes`` encoded.

    Decoded they weigh about twice that. Used from the event loop only.
    """

    def __init__(self, inner: Codec[V], max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes
        self._known: OrderedDict[bytes, tuple[bytes, V]] = OrderedDict()
        self._bytes = 0

    def encode(self, key: bytes, value: V) -> bytes:
        """See ``Codec``."""
        return self._inner.encode(key, value)

    def decode(self, key: bytes, data: bytes) -> V | None:
        """See ``Codec``."""
        known = self._known.get(key)
        if known is not None and known[0] is data:
            self._known.move_to_end(key)
            return known[1]
        value = self._inner.decode(key, data)
        if known is not None:
            self._bytes -= len(self._known.pop(key)[0])
        if value is not None and len(data) <= self._max_bytes:
            self._known[key] = data, value
            self._bytes += len(data)
            while self._bytes > self._max_bytes:
                _, (old, _) = self._known.popitem(last=False)
                self._bytes -= len(old)
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._bytes = 0

    def statistics(self) -> dict[str, int]:
        """Values remembered, and the bytes they were read from."""
        return {"entries": len(self._known), "bytes": self._bytes}
