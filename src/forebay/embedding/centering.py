"""Takes the language out of multilingual vectors, so that meaning decides across languages.

multilingual-e5 puts each language into a corner of its own: unrelated texts of one language are
closer than translations. In a mixed corpus a Chinese question then finds its English answer
behind every Chinese text. Subtracting most of the language's mean vector (of passages, and of
queries, which have another prefix) undoes that; measured in ``benchmarks/embedding``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.embedding.identity import fingerprint
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import EmbedderSpec, at_work_s, in_line

Kind = Literal["query", "passage", "raw"]
Floats = NDArray[np.float32]

# Between no loss within a language (0.5) and the best across languages (1.0).
STRENGTH = 0.9
_SEEN_CHARACTERS = 2000
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z]{2,}")


class ClosableEmbedder(Protocol):
    """An embedder that is closed by its owner."""

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        ...

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """One vector per text."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...


class LanguageMeans:
    """Mean vectors of Chinese and English, for passages and for queries: (2, dimensions) each."""

    def __init__(self, passage: Floats, query: Floats) -> None:
        self.passage = passage
        self.query = query

    @classmethod
    def shipped(cls) -> LanguageMeans:
        """The means of multilingual-e5-small, made by ``tools/language_means.py``."""
        data = resources.files("forebay.embedding") / "data" / "e5_language_means.f4"
        values = np.frombuffer(data.read_bytes(), "<f4").reshape(2, 2, -1)
        return cls(values[0], values[1])

    def mean(self, text: str, kind: Kind) -> Floats:
        """The mean for a text's own mix of languages."""
        han = han_share(text)
        means = self.query if kind == "query" else self.passage
        if han in (0.0, 1.0):
            alone: Floats = means[int(han == 0.0)]
            return alone
        mean: Floats = han * means[0] + (np.float32(1.0) - han) * means[1]
        return mean


def han_share(text: str) -> np.float32:
    """How Chinese a text is, 0..1: a Han character weighs as much as a Latin word."""
    head = text[:_SEEN_CHARACTERS]
    han, words = len(_HAN.findall(head)), len(_WORD.findall(head))
    return np.float32(han / (han + words) if han + words else 0.5)


class CenteredEmbedder:
    """An embedder whose queries and passages have their language's mean taken off.

    ``raw`` texts are passed through: whoever asks for plain vectors gets the model's own.
    """

    def __init__(self, inner: ClosableEmbedder, means: LanguageMeans) -> None:
        self._inner = inner
        self._means = means
        spec = inner.spec
        mark = fingerprint(
            {
                "inner": spec.fingerprint,
                "strength": STRENGTH,
                "means": means.passage.tobytes().hex() + means.query.tobytes().hex(),
            }
        )
        self._spec = EmbedderSpec(spec.name, mark, spec.dimensions, spec.max_tokens)

    @property
    def spec(self) -> EmbedderSpec:
        """Identity: centred vectors do not mix with the model's own."""
        return self._spec

    @property
    def plain(self) -> ClosableEmbedder:
        """The embedder behind this one."""
        return self._inner

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """One unit vector per text."""
        vectors = await self._inner.embed(texts, kind=kind)
        return vectors if kind == "raw" or not texts else self._centred(vectors, texts, kind)

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        """See ``InLine``."""
        plain = in_line(self._inner, text)
        return None if plain is None else lambda: self._centred(plain(), (text,), "query")

    def _centred(self, vectors: Vectors, texts: Sequence[str], kind: Kind) -> Vectors:
        rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), vectors.dimensions)
        means = np.array([self._means.mean(text, kind) for text in texts])
        return msgspec.structs.replace(vectors, data=centred(rows, means).tobytes())

    def at_work_s(self) -> float:
        """See ``Working``."""
        return at_work_s(self._inner)

    async def close(self) -> None:
        """Close the embedder behind this one."""
        await self._inner.close()


def centred(rows: Floats, means: Floats) -> Floats:
    """Rows with ``STRENGTH`` of their means taken off, at unit length."""
    moved = rows - np.float32(STRENGTH) * means
    # As ``np.linalg.norm`` does it, which costs as much again as this.
    lengths = np.sqrt(np.add.reduce(moved * moved, axis=1, keepdims=True))
    result: Floats = (moved / np.maximum(lengths, 1e-12)).astype("<f4", copy=False)
    return result
