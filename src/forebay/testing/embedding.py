"""A deterministic embedder without a model, for tests of everything around one."""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Sequence
from math import sqrt
from sys import byteorder
from typing import Literal

from forebay.kernel.documents import Vectors
from forebay.kernel.stages import EmbedderSpec
from forebay.kernel.tokens import TokenStates

_MAX_CHARACTERS = 8192
_GRAMS = (1, 2, 3)


class HashEmbedder:
    """Hashed character n-grams: texts that share wording are similar, in any language.

    Vectors depend on the text, ``dimensions`` and ``salt`` alone; another salt is another
    embedder of the same size. ``calls`` keeps the texts of every call.
    """

    def __init__(self, dimensions: int = 64, *, salt: str = "", max_tokens: int = 512) -> None:
        self._salt = salt.encode()
        identity = hashlib.sha256(f"hash:{dimensions}:{salt}".encode()).hexdigest()[:32]
        self._spec = EmbedderSpec("hash", identity, dimensions, max_tokens)
        self.calls: list[tuple[str, ...]] = []

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        return self._spec

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """Return one unit vector per text; ``kind`` makes no difference."""
        self.calls.append(tuple(texts))
        data = array("f")
        for text in texts:
            data.extend(self._vector(text))
            await asyncio.sleep(0)
        if byteorder == "big":
            data.byteswap()
        return Vectors(tuple(range(len(texts))), self._spec.dimensions, data.tobytes())

    async def close(self) -> None:
        """Nothing to close."""

    def _vector(self, text: str) -> list[float]:
        size = self._spec.dimensions
        values = [0.0] * size
        # The frame gives the empty text a direction too.
        framed = f" {text[:_MAX_CHARACTERS].lower()} "
        for length in _GRAMS:
            for start in range(len(framed) - length + 1):
                gram = framed[start : start + length].encode("utf-8", "replace")
                code = int.from_bytes(
                    hashlib.blake2b(gram, digest_size=8, key=self._salt[:64]).digest(), "little"
                )
                values[code % size] += length if code >> 63 else -length
        norm = sqrt(sum(value * value for value in values))
        if norm == 0:
            values[0] = norm = 1.0
        return [value / norm for value in values]


class HashTokenEncoder:
    """Token states without a model: each word or CJK character has the vector of its letters.

    ``calls`` keeps the texts of every call.
    """

    def __init__(self, dimensions: int = 64, *, salt: str = "", max_tokens: int = 512) -> None:
        self._embedder = HashEmbedder(dimensions, salt=salt, max_tokens=max_tokens)
        self.calls: list[tuple[str, ...]] = []

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        return self._embedder.spec

    async def states(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> tuple[TokenStates, ...]:
        """Return one value per text; ``kind`` makes no difference."""
        self.calls.append(tuple(texts))
        found = []
        for text in texts:
            spaced = "".join(
                f" {c} " if "\u3040" <= c <= "\u9fff" else c for c in text[:_MAX_CHARACTERS]
            )
            words = ["", *spaced.split()][: self.spec.max_tokens]
            vectors = await self._embedder.embed(words, kind="raw")
            found.append(TokenStates(len(words), vectors.dimensions, vectors.data))
        return tuple(found)


class WordCounter:
    """A token counter without a vocabulary: a word or one CJK character is one token."""

    def count(self, text: str) -> int:
        """Words plus CJK characters."""
        wide = sum("\u3040" <= character <= "\u9fff" for character in text)
        narrow = "".join(" " if "\u3040" <= c <= "\u9fff" else c for c in text)
        return wide + len(narrow.split())
