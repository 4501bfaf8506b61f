"""Which passages support a sentence, by the words they share: for answers that cite nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from forebay.folding import simplified
from forebay.kernel.documents import Hit

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HAN_FIRST = re.compile(f"[{_HAN}]")
_TOKEN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_SENTENCE = re.compile(r"[^。！？!?\n]+?(?:[。！？!?]+|\.(?=\s|$)|\n|$)")
_MARKER = re.compile(r"\[\d{1,3}\]")
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_STOP = frozenset(
    "a an and are as at be by do for from has have in is it its no not of on or that the this to "
    "was we were will with you your can if but so than then there they i".split()
)

MIN_PIECES = 4
"""A sentence with fewer distinct words or pairs says too little to be attributed."""
SUPPORTED_SHARE = 0.55
"""Share of a sentence's words and pairs that its passage must hold."""
MAX_TEXT_CHARACTERS = 20_000
MAX_PASSAGES_CITED = 3
_REMEMBERED = 512
_REMEMBERED_CHARACTERS = 2_000
"""Passages whose words are remembered, and their longest: 20 kB each at most."""


def pieces(text: str) -> frozenset[str]:
    """Distinct words (crudely stemmed) and Han pairs of ``text``, without glue words."""
    words, runs = _read(text)
    pairs = {run[at : at + 2] for run in runs for at in range(len(run) - 1)}
    return words | pairs


class _Held(NamedTuple):
    """What a passage holds: words as in ``pieces``, and its Han runs apart, for any pair."""

    words: frozenset[str]
    han: str

    def share_of(self, said: frozenset[str]) -> float:
        """The share of a statement's pieces that are here."""
        words, han = self
        if not han:
            return len(said & words) / len(said)
        there = [piece in words or (len(piece) == 2 and piece in han) for piece in said]
        return sum(there) / len(said)

    def holds(self, said: set[str]) -> bool:
        """Whether all of these are here."""
        return not said or self.share_of(frozenset(said)) == 1.0


def _read(text: str) -> tuple[frozenset[str], list[str]]:
    """The words of a text without glue, and its runs of Han."""
    words: set[str] = set()
    runs: list[str] = []
    for token in _TOKEN.findall(simplified(unicodedata.normalize("NFKC", text)).lower()):
        if _HAN_FIRST.match(token):
            runs.append(token)
        elif token not in _STOP:
            words.add(token[:6] if token.isalpha() and len(token) > 6 else token.removesuffix("s"))
    return frozenset(words), runs


def _held(text: str) -> _Held:
    words, runs = _read(text)
    return _Held(words, "\n".join(runs))


_known_held = lru_cache(maxsize=_REMEMBERED)(_held)


def _passage(hit: Hit) -> _Held:
    """What a hit holds; the same passages are read for answer after answer."""
    text = f"{hit.chunk.context} {hit.chunk.text}"
    return _known_held(text) if len(text) <= _REMEMBERED_CHARACTERS else _held(text)


def supporting(text: str, passages: Sequence[Hit]) -> list[int]:
    """Return the 1-based numbers of the passages that hold the answer's sentences.

    In order of first use, at most three; empty when no sentence is mostly in one passage.
    """
    numbers: list[int] = []
    for statement in _statements(text, passages):
        if statement.pieces < MIN_PIECES or statement.share < SUPPORTED_SHARE:
            continue
        if statement.passage not in numbers:
            numbers.append(statement.passage)
        if len(numbers) == MAX_PASSAGES_CITED:
            break
    return numbers


def unsupported_share(text: str, passages: Sequence[Hit]) -> float:
    """Return the share of the answer's statements that no passage holds, in 0..1 (F0.2).

    A statement too short to be judged by a share must be held whole, numbers must be in any case;
    without statements: 1.
    """
    held = [
        statement.numbers
        and statement.share >= (SUPPORTED_SHARE if statement.pieces >= MIN_PIECES else 1.0)
        for statement in _statements(text, passages)
    ]
    return 1.0 - sum(held) / len(held) if held else 1.0


class _Statement(NamedTuple):
    """A sentence: its distinct pieces, the share of them that the best passage (1-based) holds, and
    whether that passage holds all of its numbers.
    """

    pieces: int
    share: float
    passage: int
    numbers: bool


def _statements(text: str, passages: Sequence[Hit]) -> Iterator[_Statement]:
    """The sentences that say anything, each with the passage that holds most of it."""
    held = [_passage(hit) for hit in passages]
    for sentence in _SENTENCE.findall(_FENCED.sub("\n", text[:MAX_TEXT_CHARACTERS])):
        said = pieces(_MARKER.sub(" ", sentence))
        # What ends in a colon announces a statement and is none; dots tell that more is left out.
        announces = sentence.rstrip().endswith((":", "：")) or sentence.lstrip("> ").startswith("…")
        if not said or not held or announces:
            continue
        shares = [passage.share_of(said) for passage in held]
        best = shares.index(max(shares))
        numbers = {piece for piece in said if not piece.isalpha()}
        yield _Statement(len(said), shares[best], best + 1, held[best].holds(numbers))
