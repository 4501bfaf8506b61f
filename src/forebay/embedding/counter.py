"""An exact token counter with bounded time for any input."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec

_SAMPLE_CHARACTERS = 4096


class CounterSettings(msgspec.Struct, frozen=True):
    """Bounds of one count."""

    exact_characters: Annotated[
        int,
        msgspec.Meta(
            ge=1024,
            description="Longer texts are counted in evenly spread samples of this many "
            "characters in all, and extrapolated.",
        ),
    ] = 262_144
    piece_characters: Annotated[
        int,
        msgspec.Meta(
            ge=64,
            description="Characters given to the tokenizer at once, cut at white space; matters "
            "for tokenizers that hold the interpreter lock.",
        ),
    ] = 4096


class PieceCounter(Protocol):
    """A tokenizer that can count, in time that grows with the text."""

    def count(self, text: str) -> int:
        """Tokens in ``text``, special tokens not included."""
        ...


class BoundedTokenCounter:
    """Counts as the tokenizer does; exact up to ``exact_characters``, extrapolated beyond.

    A text is cut at white space, which no Unigram piece crosses; where a run has none within
    ``piece_characters`` it is cut there, which may add a token a cut.
    """

    def __init__(self, tokenizer: PieceCounter, settings: CounterSettings | None = None) -> None:
        self._tokenizer = tokenizer
        self._settings = settings or CounterSettings()

    def count(self, text: str) -> int:
        """Tokens in ``text``, special tokens not included; bounded time for any input."""
        bound = self._settings.exact_characters
        if len(text) <= bound:
            return self._count(text)
        size = min(_SAMPLE_CHARACTERS, self._settings.piece_characters)
        samples = bound // size
        step = len(text) / samples
        starts = [int(index * step) for index in range(samples)]
        counted = sum(self._tokenizer.count(text[start : start + size]) for start in starts)
        return round(counted * len(text) / (samples * size))

    def _count(self, text: str) -> int:
        size = self._settings.piece_characters
        if len(text) <= size:
            return self._tokenizer.count(text)
        total, start = 0, 0
        while start < len(text):
            end = start + size
            if end < len(text):
                end = _cut(text, start, end)
            total += self._tokenizer.count(text[start:end])
            start = end
        return total


def _cut(text: str, start: int, end: int) -> int:
    """The last white space in the second half of ``text[start:end]``, else ``end``."""
    for at in range(end, start + (end - start) // 2, -1):
        if text[at].isspace():
            return at
    return end
