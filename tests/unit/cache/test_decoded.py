"""What was read is remembered for the very bytes it was read from, within a bound."""

from __future__ import annotations

import msgspec

from forebay.cache.decoded import Decoded
from forebay.cache.values import StructCodec

A, B = b"a" * 16, b"b" * 16


class Value(msgspec.Struct, frozen=True):
    text: str


def codec(max_bytes: int = 1_000) -> Decoded[Value]:
    return Decoded(StructCodec(9, Value), max_bytes)


def test_the_same_bytes_are_read_once() -> None:
    decoded = codec()
    data = decoded.encode(A, Value("one"))
    first = decoded.decode(A, data)
    assert first == Value("one") and decoded.decode(A, data) is first
    again = bytes(bytearray(data))
    assert decoded.decode(A, again) == first and decoded.decode(A, again) is not first


def test_other_bytes_under_a_key_are_read_anew_and_damaged_ones_are_nothing() -> None:
    decoded = codec()
    one, two = (decoded.encode(A, Value(text)) for text in ("one", "two"))
    assert decoded.decode(A, one) == Value("one") and decoded.decode(A, two) == Value("two")
    assert decoded.decode(B, two) is None and decoded.decode(A, two[:-1]) is None
    assert decoded.statistics() == {"entries": 0, "bytes": 0}


def test_it_is_bounded_by_bytes_and_forgets() -> None:
    size = len(codec().encode(A, Value("x" * 100)))
    decoded = codec(2 * size)
    kept = {}
    for number in range(3):
        key = bytes([number]) * 16
        kept[key] = decoded.encode(key, Value("x" * 100))
        decoded.decode(key, kept[key])
    assert decoded.statistics() == {"entries": 2, "bytes": 2 * size}
    large = decoded.encode(A, Value("x" * 1_000))
    assert decoded.decode(A, large) is not None
    assert decoded.statistics()["entries"] == 2
    decoded.clear()
    assert decoded.statistics() == {"entries": 0, "bytes": 0}
