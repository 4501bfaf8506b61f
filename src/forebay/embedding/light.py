"""A light encoder of queries: one vector a token, weighted and added, in an embedder's own space.

vector = unit(sum over the tokens of weight[token] * row[token])

It takes some 30 us where the embedder takes milliseconds, and knows no order of words. Its rows are
fitted to the embedder's vectors (``light_fit``), so it searches the same index. A token that no
fitted text held has no row: ``known`` says how much of a query has one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tokens = Callable[[str], Sequence[int]]
"""From a text to the ids of its tokens; blocks for some microseconds."""
LAYOUT = 1
"""Raised when the file or what is fitted changes: what was kept is fitted anew then."""
_TINY = 1e-6


class LightDescription(msgspec.Struct, frozen=True):
    """What an encoder was fitted to.

    ``fingerprint`` is the embedder's; ``chunks``: how many the record had then. ``cosine``: to the
    embedder's vectors of texts that were held out.
    """

    fingerprint: str
    chunks: int
    texts: int
    cosine: float
    layout: int = LAYOUT


class LightEncoder:
    """Rows of tokens, a byte a number; may be used by several threads at once."""

    def __init__(
        self,
        description: LightDescription,
        ids: NDArray[np.int64],
        codes: tuple[NDArray[np.int8], Floats],
        weights: Floats,
    ) -> None:
        """``ids`` ascending; by them ``codes``, rows in signed bytes with a scale each, and
        ``weights``, above 0.
        """
        self.description = description
        self._ids, self._weights = ids, weights.astype(np.float32)
        self._codes, self._scales = codes[0], codes[1].astype(np.float32)
        self._unknown = float(np.median(weights)) if len(weights) else 1.0

    @classmethod
    def of(
        cls, description: LightDescription, ids: NDArray[np.int64], rows: Floats, weights: Floats
    ) -> LightEncoder:
        """The encoder with ``rows`` (len(ids), dimensions), to a byte a number."""
        scales = np.maximum(np.abs(rows).max(axis=1), 1e-12) / 127.0
        codes = np.rint(rows / scales[:, None]).astype(np.int8)
        return cls(description, ids, (codes, scales), weights)

    @property
    def dimensions(self) -> int:
        """Of the embedder's vectors."""
        return int(self._codes.shape[1])

    @property
    def tokens(self) -> int:
        """How many have a row."""
        return len(self._ids)

    def encode(self, tokens: Sequence[int]) -> tuple[Floats, float]:
        """Return the unit vector ``(1, dimensions)`` and the share of the weight that is known.

        An unknown token weighs as much as half of the known ones exceed; zeros without a direction.
        """
        asked = np.array(tokens, np.int64)
        places = np.minimum(np.searchsorted(self._ids, asked), max(0, len(self._ids) - 1))
        found = self._ids[places] == asked if len(self._ids) else np.zeros(len(asked), bool)
        places = places[found]
        weights = self._weights[places]
        vector: Floats = (weights * self._scales[places]) @ self._codes[places].astype(np.float32)
        length = float(np.sqrt(vector @ vector))
        if length < _TINY:
            return np.zeros((1, self.dimensions), np.float32), 0.0
        known = float(weights.sum())
        unknown = (len(asked) - len(places)) * self._unknown
        return (vector / np.float32(length))[None], known / (known + unknown)

    def write(self, path: Path) -> None:
        """Put the file in its place whole; blocking."""
        told = np.frombuffer(msgspec.json.encode(self.description), np.uint8)
        buffer = io.BytesIO()
        np.savez(
            buffer,
            description=told,
            ids=self._ids,
            codes=self._codes,
            scales=self._scales,
            weights=self._weights,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(buffer.getvalue())
        scratch.replace(path)

    @classmethod
    def read(cls, path: Path) -> LightEncoder | None:
        """What a file holds; None where this code can read none; blocking."""
        try:
            with np.load(path, allow_pickle=False) as kept:
                description = msgspec.json.decode(kept["description"], type=LightDescription)
                ids, codes = kept["ids"], kept["codes"]
                scales, weights = kept["scales"], kept["weights"]
        # A file that was cut or is none of ours raises whatever the formats inside it do.
        except Exception:
            return None
        shapes = {(len(ids),), scales.shape, weights.shape, codes.shape[:1]}
        if description.layout != LAYOUT or len(shapes) != 1 or codes.dtype != np.int8:
            return None
        return cls(description, ids, (codes, scales), weights)
