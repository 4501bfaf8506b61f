"""Sums of what may be long, without letting go of the interpreter on the way."""

from __future__ import annotations

from hashlib import blake2b

_PIECE = 2047
"""For one byte more hashlib lets go of the interpreter, which a busy process gets back only after
half a millisecond or more: two kilobytes are summed up in two microseconds."""
_LONG = 1 << 17
"""From here on others had better run meanwhile: this takes a tenth of a millisecond."""


def add_to(total: blake2b, data: bytes | memoryview) -> None:
    """Add ``data`` to a sum."""
    if len(data) <= _PIECE or len(data) >= _LONG:
        total.update(data)
        return
    view = memoryview(data)
    for at in range(0, len(view), _PIECE):
        total.update(view[at : at + _PIECE])


def sum_of(data: bytes, size: int) -> bytes:
    """BLAKE2b of ``data`` in ``size`` bytes."""
    total = blake2b(digest_size=size)
    add_to(total, data)
    return total.digest()
