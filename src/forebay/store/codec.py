"""How values are laid out in columns: compressed text, JSON lists, half-precision vectors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.kernel.errors import InvalidRequest, StoreError

_strings = msgspec.json.Decoder(tuple[str, ...])
_mapping = msgspec.json.Decoder(dict[str, str])
_encode = msgspec.json.encode

# Level 1 packs a text corpus at about 90 MB/s a core; level 6 saves a tenth and costs four times.
_LEVEL = 1


def pack_text(text: str) -> bytes:
    """A document's extracted text, compressed."""
    return zlib.compress(text.encode(), _LEVEL)


def unpack_text(data: bytes) -> str:
    """The text behind ``pack_text``."""
    try:
        return zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError("a stored text is damaged; restore the folder from a backup.") from error


def pack_strings(values: Sequence[str]) -> str:
    """A list of strings as JSON."""
    return _encode(list(values)).decode() if values else "[]"


def unpack_strings(data: str) -> tuple[str, ...]:
    """The strings behind ``pack_strings``."""
    return () if data == "[]" else _strings.decode(data)


def pack_mapping(values: Mapping[str, str]) -> str:
    """String metadata as JSON, in key order."""
    return _encode(dict(sorted(values.items()))).decode() if values else "{}"


def unpack_mapping(data: str) -> Mapping[str, str]:
    """The metadata behind ``pack_mapping``."""
    return {} if data == "{}" else _mapping.decode(data)


def pack_vectors(data: bytes, rows: int, dimensions: int) -> npt.NDArray[np.float16]:
    """float32 row vectors as half precision, ``(rows, dimensions)``.

    Unit vectors keep their cosines to within 1e-6 (components are rounded to 11 bits), and take
    half the room. Anything that is not a finite number is refused.
    """
    if rows * dimensions * 4 != len(data) or (rows and dimensions < 1):
        raise InvalidRequest("the vectors' bytes do not match their number and dimensions.")
    matrix = np.frombuffer(data, dtype="<f4").reshape(rows, dimensions)
    if not np.isfinite(matrix).all() or (np.abs(matrix) > 2.0).any():
        raise InvalidRequest("the vectors are not unit vectors of finite numbers.")
    return matrix.astype("<f2")


def unpack_vectors(blobs: Sequence[bytes], dimensions: int) -> bytes:
    """Stored vectors as float32 rows, normalised again after the rounding."""
    if not blobs:
        return b""
    matrix = np.frombuffer(b"".join(blobs), dtype="<f2").reshape(len(blobs), dimensions)
    wide = matrix.astype("<f4")
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    norms[norms == 0.0] = 1.0
    wide /= norms[:, None]
    return wide.tobytes()
