"""HdrHistogram's standard text: the V2 encoding, compressed, in base64.

Layout (HdrHistogram/HdrHistogram, ``AbstractHistogram.encodeIntoByteBuffer``): cookie, payload
length, normalising offset, digits, lowest and highest value, conversion ratio; then counts in
bucket order as ZigZag LEB128 integers, a run of n empty buckets as -n. All of that in zlib
behind its own cookie and length.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence

from forebay.kernel.errors import ConfigError

_INNER_COOKIE = 0x1C849303 | 0x10
_OUTER_COOKIE = 0x1C849304 | 0x10
_HEADER = struct.Struct(">iiiiqqd")
_OUTER = struct.Struct(">ii")
_MAX_PAYLOAD_BYTES = 1 << 20
"""Far more than a full histogram of ours; a damaged text must not fill the memory."""


def write_counts(index: Sequence[int], counts: Sequence[int], digits: int, highest: int) -> str:
    """The text of ``counts`` in the buckets ``index`` (ascending)."""
    body = bytearray()
    expected = 0
    for at, count in zip(index, counts, strict=True):
        if at > expected:
            _write(body, -(at - expected))
        _write(body, count)
        expected = at + 1
    inner = _HEADER.pack(_INNER_COOKIE, len(body), 0, digits, 1, highest, 1.0) + body
    packed = zlib.compress(inner)
    return base64.b64encode(_OUTER.pack(_OUTER_COOKIE, len(packed)) + packed).decode("ascii")


def read_counts(text: str) -> tuple[int, list[int], list[int]]:
    """Digits, buckets (ascending) and counts of a text; ``ConfigError`` when it is none."""
    try:
        raw = base64.b64decode(text, validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        packed = raw[_OUTER.size : _OUTER.size + length]
        unpacker = zlib.decompressobj()
        inner = unpacker.decompress(packed, _MAX_PAYLOAD_BYTES)
        if not unpacker.eof:
            raise ValueError("cut short")
        inner_cookie, _, _, digits, _, _, _ = _HEADER.unpack_from(inner)
        if (cookie, inner_cookie) != (_OUTER_COOKIE, _INNER_COOKIE) or digits not in (2, 3):
            raise ValueError("another encoding")
        index, counts = _read_body(inner, _HEADER.size)
    except (binascii.Error, struct.error, zlib.error, ValueError, IndexError) as error:
        raise ConfigError(
            f"a histogram in the result is damaged ({error}); run the measurement again"
        ) from error
    return digits, index, counts


def _write(body: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    # Nine bytes at most: the ninth holds eight bits, as the format has it.
    for _ in range(8):
        if value < 0x80:
            body.append(value)
            return
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value & 0xFF)


def _read_body(data: bytes, at: int) -> tuple[list[int], list[int]]:
    index: list[int] = []
    counts: list[int] = []
    bucket = 0
    end = len(data)
    while at < end:
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            if shift == 56:
                value |= byte << 56
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        value = value >> 1 if not value & 1 else -((value + 1) >> 1)
        if value < 0:
            bucket -= value
            continue
        if value:
            index.append(bucket)
            counts.append(value)
        bucket += 1
    return index, counts
