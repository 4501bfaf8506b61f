"""Hits that say nothing new: every sentence of theirs stands in a better hit.

Sentences are compared whole, after folding what is typography: widths, quotation marks, dashes,
white space, bullets, final stops, and the words in ``_IDLE``. So whatever may be a fact keeps two
texts apart: a number, a date, a code, a negation, a name, one other word. Sentences may come in
another order, and the better hit may say more. Texts under different headings, or of documents
whose titles differ in a number ("Policy 2025", "Policy 2026"), are never one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from forebay.kernel.documents import ChunkRow
from forebay.retrieval.counts import Mask, packed_hashes, packed_terms

_FOLDED = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
        **dict.fromkeys("\u3000\u00a0\u2009\u202f", " "),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u200b\u00ad\ufeff"),
    }
)
_ENDS = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002!?;])|\n\s*\n")
_HAN_GAPS = re.compile(r"(?<=[\u3000-\u9fff])\s+|\s+(?=[\u3000-\u9fff])")
_STOPS = " .\u3002!;:,"
_BULLET = re.compile(r"\s*[-*\u2022\u00b7]\s+(?=\S)")
_IDLE = frozenset({"the", "The", "an", "please", "Please"})
_WORDS = re.compile(r"[^\W\d\uff00-\uffef]+")
_PROBES, _WINDOW, _WORD = 4, 24, 10
_NUMBERS = re.compile(r"\d+")
_DIGITS = re.compile("[0-9]+")

_MARKS, _MARKS_MIN = 1024, 8
_SAMPLED = 4
"""Of so many terms one leaves a mark."""
_SHARED_MIN = 0.5
_TITLE_SHARE = 2


class Distinct:
    """Takes the hits of one search, best first, and refuses those that say nothing new.

    ``near``, of ``nearness``, saves comparing texts whose words differ.
    """

    def __init__(self, near: Mask | None = None) -> None:
        self._kept: list[_Kept] = []
        self._placed: dict[int, _Kept] = {}
        self._elsewhere: list[_Kept] = []
        self._near_to = {} if near is None else _others(near)
        self._known = 0 if near is None else len(near)

    def adds(self, row: ChunkRow, place: int = -1) -> bool:
        """Whether ``row`` says something that no row taken before says; it is taken then.

        ``place``: its row in ``near``; -1: it has none.
        """
        taken = _Kept(row, place)
        maybe = self._to_compare(taken)
        if not maybe:
            self._keep(taken)
            return True
        words = _looked_at(row.text)
        alike = [kept for kept in maybe if _may_hold(kept.row, row, words)]
        if any(_holds(kept.said, row.text) for kept in alike):
            return False
        self._keep(taken)
        return True

    def _keep(self, taken: _Kept) -> None:
        self._kept.append(taken)
        if 0 <= taken.place < self._known:
            self._placed[taken.place] = taken
        else:
            self._elsewhere.append(taken)

    def _to_compare(self, taken: _Kept) -> list[_Kept]:
        # A title's words are among a chunk's terms, and titles may differ.
        titled = _TITLE_SHARE * len(taken.row.title) > len(taken.row.text)
        if not 0 <= taken.place < self._known or titled:
            return self._kept
        others = self._near_to.get(taken.place, ())
        return [self._placed[place] for place in others if place in self._placed] + self._elsewhere


def nearness(packed: Sequence[bytes | None]) -> Mask:
    """Return which chunk (row), by its facts, may say no more than which other (column).

    Its terms are then nearly all among the other's: half of a sample of them must be. Of a chunk
    with few terms or unknown ones nothing can be said.
    """
    facts = [data or b"" for data in packed]
    hashes = packed_hashes(facts)
    sampled = (hashes % _SAMPLED == 0).nonzero()[0]
    ends = np.array([packed_terms(data) for data in facts]).cumsum()
    marks = np.zeros((len(facts), _MARKS), np.bool_)
    marks[ends.searchsorted(sampled, side="right"), hashes[sampled] // _SAMPLED % _MARKS] = True
    bits = np.ascontiguousarray(np.packbits(marks, axis=1).view(np.uint64).T)
    shared = np.bitwise_count(bits[:, :, None] & bits[:, None]).sum(axis=0, dtype=np.uint16)
    own = shared.diagonal()
    near: Mask = (shared >= _SHARED_MIN * own[:, None]) | (own < _MARKS_MIN)[:, None]
    near[:, [data is None for data in packed]] = True
    return near


def _others(near: Mask) -> dict[int, list[int]]:
    """The columns beside its own that hold in each row."""
    others: dict[int, list[int]] = {}
    for row, column in np.argwhere(near).tolist():
        if row != column:
            others.setdefault(row, []).append(column)
    return others


class _Kept:
    """A row, with its sentences once a row that may say the same has come."""

    def __init__(self, row: ChunkRow, place: int) -> None:
        self.row = row
        self.place = place
        self._said: frozenset[str] | None = None

    @property
    def said(self) -> frozenset[str]:
        if self._said is None:
            self._said = frozenset(sentences(self.row.text))
        return self._said


def _may_hold(kept: ChunkRow, row: ChunkRow, words: list[str]) -> bool:
    """Whether it is worth cutting sentences: of what was looked at of ``row``, all but one is in
    ``kept``.

    Typography inside two of these words and numbers hides a duplicate, which does no harm.
    """
    missed = 0
    for word in words:
        missed += word not in kept.text
        if missed > 1:
            return False
    return (
        kept.heading_path == row.heading_path
        and kept.context == row.context
        and _NUMBERS.findall(kept.title) == _NUMBERS.findall(row.title)
    )


def _looked_at(text: str) -> list[str]:
    """Return the longest word, or part of one, and the longest number at some places of ``text``.

    Tables have the same words, and other numbers.
    """
    step = len(text) // (_PROBES + 1)
    windows = [text[step * place :][:_WINDOW] for place in range(1, _PROBES + 1)]
    words = [max(_WORDS.findall(window), key=len, default="")[:_WORD] for window in windows]
    return words + [max(_DIGITS.findall(window), key=len, default="") for window in windows]


def _holds(said: frozenset[str], text: str) -> bool:
    """Whether ``text`` has sentences, and all are ``said``."""
    sentence = ""
    for sentence in _each_sentence(text):
        if sentence not in said:
            return False
    return bool(sentence)


def sentences(text: str) -> list[str]:
    """Return the sentences of ``text`` with their typography folded."""
    return list(_each_sentence(text))


def _each_sentence(text: str) -> Iterator[str]:
    pieces = (_folded(piece) for piece in _ENDS.split(text.translate(_FOLDED)))
    return (piece for piece in pieces if piece)


def _folded(piece: str) -> str:
    bullet = _BULLET.match(piece)
    rest = piece[bullet.end() :] if bullet else piece
    words = [word for word in rest.split() if word not in _IDLE]
    return _HAN_GAPS.sub("", " ".join(words)).rstrip(_STOPS)
