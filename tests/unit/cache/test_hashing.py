"""Sums in pieces are the sums of the whole."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from forebay.cache.hashing import add_to, sum_of


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 4094, 4095, 100_000, 1 << 17, (1 << 17) + 1])
def test_pieces_make_no_difference(size: int) -> None:
    data = bytes(at % 251 for at in range(size))
    assert sum_of(data, 16) == blake2b(data, digest_size=16).digest()
    total = blake2b(b"before", digest_size=8)
    add_to(total, memoryview(data))
    assert total.digest() == blake2b(b"before" + data, digest_size=8).digest()
