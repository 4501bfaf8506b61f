"""Vectors of single sentences as they are kept: a byte a number, and how far unrelated ones are.

A chunk's sentences are one blob: per sentence its checksum (32 bits), its scale (float32) and its
vector in signed bytes, so 384 dimensions take 392 bytes. Cosines keep to within .002.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from forebay.embedding.calibration import calibrate
from forebay.kernel.documents import Vectors
from forebay.kernel.sentences import SentenceScale, checksum

LAYOUT = 2
"""Raised when the blob or the cut of passages changes: what was kept is made anew then."""
_LEAST_DEVIATION = 0.01


def maker_of(fingerprint: str) -> int:
    """The number under which an embedder's sentence vectors are kept; 63 bits."""
    made = hashlib.blake2b(f"{LAYOUT} {fingerprint}".encode(), digest_size=8).digest()
    return int.from_bytes(made, "big") >> 1


def pack(sentences: Sequence[str], vectors: Vectors) -> bytes:
    """The blob of a chunk's sentences and their unit vectors, row for row."""
    rows = np.frombuffer(vectors.data, "<f4").reshape(len(sentences), vectors.dimensions)
    scales = np.maximum(np.abs(rows).max(axis=1), 1e-12) / 127.0
    found = np.empty(len(sentences), _record(vectors.dimensions))
    found["checksum"] = [checksum(sentence) for sentence in sentences]
    found["scale"] = scales
    found["vector"] = np.rint(rows / scales[:, None])
    return found.tobytes()


def cosines(blob: bytes, query: Vectors) -> dict[int, float]:
    """The cosine of each sentence with a unit vector, by checksum.

    Blobs of several chunks may stand one after another; a blob of another size holds nothing.
    """
    record = _record(query.dimensions)
    if not blob or len(blob) % record.itemsize:
        return {}
    rows = np.frombuffer(blob, record)
    asked = np.frombuffer(query.data, "<f4", query.dimensions)
    found = (rows["vector"].astype(np.float32) @ asked) * rows["scale"]
    return dict(zip(rows["checksum"].tolist(), found.tolist(), strict=True))


def nearest(blobs: Sequence[bytes], query: bytes, dimensions: int) -> list[float]:
    """The cosine of each blob's nearest sentence with a unit vector; NaN: it has no sentences.

    Empty where one is no blob of these dimensions.
    """
    record = _record(dimensions)
    if any(len(blob) % record.itemsize for blob in blobs):
        return []
    rows = np.frombuffer(b"".join(blobs), record)
    found = (rows["vector"].astype(np.float32) @ np.frombuffer(query, "<f4")) * rows["scale"]
    counts = np.array([len(blob) // record.itemsize for blob in blobs])
    best, some = np.full(len(blobs), np.nan, np.float32), counts > 0
    if some.any():
        starts = np.cumsum(counts) - counts
        best[some] = np.maximum.reduceat(found, starts[some])
    told: list[float] = best.tolist()
    return told


class Likeness(Mapping[tuple[int, int], float]):
    """How like two of the sentences of some chunks are, in deviations of unrelated ones.

    By both checksums, the lesser first; worked out when the first pair is asked for.
    """

    def __init__(self, blobs: Sequence[bytes], dimensions: int, scale: SentenceScale) -> None:
        self._record = _record(dimensions)
        size = self._record.itemsize
        self._blobs = [blob for blob in blobs if blob and not len(blob) % size]
        self._scale = scale
        self._rows: dict[int, NDArray[np.float32]] = {}

    def __getitem__(self, pair: tuple[int, int]) -> float:
        places, vectors, scales = self._read
        here, there = places[pair[0]], places[pair[1]]
        if here not in self._rows and there not in self._rows:
            # One of the two will be asked for with many others.
            self._rows |= {
                one: (vectors @ vectors[one]) * (scales * scales[one]) for one in (here, there)
            }
        row, at = (self._rows[here], there) if here in self._rows else (self._rows[there], here)
        return self._scale.of(float(row[at]))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return combinations(sorted(self._read[0]), 2)

    def __len__(self) -> int:
        count = len(self._read[0])
        return count * (count - 1) // 2

    def __bool__(self) -> bool:
        return len(self._blobs) > 1

    @cached_property
    def _read(self) -> tuple[dict[int, int], NDArray[np.float32], NDArray[np.float32]]:
        """The place of each sentence, and its vector there with the scale of it."""
        rows = np.concatenate([np.frombuffer(blob, self._record) for blob in self._blobs or [b""]])
        places = {one: at for at, one in enumerate(rows["checksum"].tolist())}
        return places, rows["vector"].astype(np.float32), rows["scale"]


@cache
def unrelated_sentences() -> tuple[str, ...]:
    """Sentences of many subjects, in English and Chinese, to measure an embedder by."""
    file = resources.files("forebay.embedding") / "data" / "unrelated_sentences.txt"
    return tuple(file.read_text("utf-8").split("\n")[:-1])


def scale_by(vectors: Vectors) -> SentenceScale:
    """Mean and deviation of the cosines of ``unrelated_sentences``, given their vectors."""
    found = calibrate(vectors)
    if found is None:
        raise ValueError("too few sentences to measure an embedder by")
    return SentenceScale(found.mean, max(found.deviation, _LEAST_DEVIATION))


@cache
def _record(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("checksum", "<u4"), ("scale", "<f4"), ("vector", "i1", (dimensions,))])
