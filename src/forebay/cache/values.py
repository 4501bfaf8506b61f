"""Stored values as bytes that nobody has to trust.

Layout: magic ``FB``, format version (1 byte), kind (1 byte), checksum (8 bytes), body. The checksum
is BLAKE2b-64 over header, the shape of the type, the key and the body. So what was cut, altered,
written by a release with other fields, or put under another key is no value: ``decode`` answers
None and raises nothing. It guards against accidents; whoever can write to the store on purpose can
also reckon checksums.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

import msgspec

from forebay.cache.hashing import add_to
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import SearchResult

V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)

FORMAT_VERSION = 1
"""Raised when bodies change while their types do not."""

KIND_VECTORS = 1
KIND_RETRIEVAL = 2
KIND_ANSWER = 3
KIND_EMPTY = 4
KIND_SUMMARY = 5

_MAGIC = b"FB"
_HEADER = struct.Struct("<2sBB")
_SUM_BYTES = 8
_BODY_AT = _HEADER.size + _SUM_BYTES
_SHAPE = struct.Struct("<II")


class Codec(Protocol[V]):
    """Turns values of one kind into bytes and back."""

    def encode(self, key: bytes, value: V) -> bytes:
        """The bytes to keep under ``key``."""
        ...

    def decode(self, key: bytes, data: bytes) -> V | None:
        """The value, or None when these are not the bytes of one under this key."""
        ...


class Envelope:
    """Header and checksum around a body of one kind and shape."""

    __slots__ = ("_header", "_shape")

    def __init__(self, kind: int, shape: bytes) -> None:
        self._header = _HEADER.pack(_MAGIC, FORMAT_VERSION, kind)
        self._shape = shape

    def seal(self, key: bytes, body: bytes) -> bytes:
        """A body with what proves it."""
        return b"".join((self._header, self._sum(key, body), body))

    def open(self, key: bytes, data: bytes) -> bytes | memoryview | None:
        """The body; None: these bytes are something else."""
        if len(data) < _BODY_AT or data[: _HEADER.size] != self._header:
            return None
        body = memoryview(data)[_BODY_AT:]
        return body if data[_HEADER.size : _BODY_AT] == self._sum(key, body) else None

    def _sum(self, key: bytes, body: bytes | memoryview) -> bytes:
        total = blake2b(self._header, digest_size=_SUM_BYTES)
        # Lengths, lest bytes move from key to body.
        total.update(_SHAPE.pack(len(self._shape), len(key)))
        total.update(self._shape)
        total.update(key)
        add_to(total, body)
        return total.digest()


def unproven(data: bytes) -> memoryview:
    """The body of bytes that this process itself has sealed; nothing is checked."""
    return memoryview(data)[_BODY_AT:]


class StructCodec(Generic[S]):
    """Values of one struct type as msgpack; ``kind`` keeps types apart that look alike."""

    __slots__ = ("_decoder", "_encode", "_envelope")

    def __init__(self, kind: int, of: type[S]) -> None:
        # Another release may give a field's absence another meaning: its values are not ours.
        shape = msgspec.json.encode(msgspec.json.schema(of), order="deterministic")
        self._envelope = Envelope(kind, blake2b(shape, digest_size=8).digest())
        self._decoder = msgspec.msgpack.Decoder(of)
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, key: bytes, value: S) -> bytes:
        """See ``Codec``."""
        return self._envelope.seal(key, self._encode(value))

    def decode(self, key: bytes, data: bytes) -> S | None:
        """See ``Codec``."""
        body = self._envelope.open(key, data)
        if body is None:
            return None
        try:
            return self._decoder.decode(body)
        except Exception:
            # Whatever bytes from elsewhere do to a decoder, they are a miss: also recursion, also
            # a type's own checks.
            return None


def retrieval_codec() -> StructCodec[SearchResult]:
    """Results of retrieval and reranking, with their evidence."""
    return StructCodec(KIND_RETRIEVAL, SearchResult)


class VectorCodec:
    """Embedded texts: numbers of rows and dimensions, then raw little-endian float32."""

    __slots__ = ("_dimensions", "_envelope")

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._envelope = Envelope(KIND_VECTORS, b"")

    def encode(self, key: bytes, value: Vectors) -> bytes:
        """See ``Codec``; ``ids`` are 0..n-1, as embedders give them."""
        return self._envelope.seal(key, _SHAPE.pack(len(value.ids), value.dimensions) + value.data)

    def decode(self, key: bytes, data: bytes) -> Vectors | None:
        """See ``Codec``; None also for vectors of another size."""
        body = self._envelope.open(key, data)
        if body is None or len(body) < _SHAPE.size:
            return None
        rows, dimensions = _SHAPE.unpack_from(body)
        numbers = body[_SHAPE.size :]
        if dimensions != self._dimensions or len(numbers) != 4 * rows * dimensions:
            return None
        return Vectors(tuple(range(rows)), dimensions, bytes(numbers))
