"""Single sentences of chunks, whose vectors are kept beside their chunks'."""

from __future__ import annotations

from zlib import crc32

import msgspec


class SentenceScale(msgspec.Struct, frozen=True):
    """What cosines of unrelated sentences are under one embedder."""

    mean: float
    deviation: float

    def of(self, cosine: float) -> float:
        """Deviations above unrelated sentences."""
        return (cosine - self.mean) / self.deviation

    def cosine(self, deviations: float) -> float:
        """The other way round."""
        return self.mean + deviations * self.deviation


class SentenceText(msgspec.Struct, frozen=True):
    """A chunk, and its sentences that are to have vectors."""

    chunk_id: int
    sentences: tuple[str, ...]


class LackingSentences(msgspec.Struct, frozen=True):
    """Chunks to make sentence vectors for, in the order in which they were embedded.

    ``after``: where to go on, a version of the kb and a chunk. ``kept``: how many chunks have
    theirs.
    """

    texts: tuple[SentenceText, ...]
    after: tuple[int, int]
    kept: int


def checksum(sentence: str) -> int:
    """By what a sentence is found again where passages are cut anew; 32 bits."""
    return crc32(sentence.encode())
