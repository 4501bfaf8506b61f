"""Answers: how long, and which text of exactly that many tokens.

The text is a window on a ring of words, one token each, that begins where the prompt's own number
says: equal prompts get equal answers, and any piece of an answer is one slice.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import Literal

import msgspec

from forebay.lab.sim.serving.prompts import Prompt
from forebay.lab.workload.text import OPENING_TOKENS, TextMaker, mixed
from forebay.lab.workload.tokens import count_tokens

_RING_TOKENS = 4096
_NORMAL = NormalDist()
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+\s*|\s+")
_LENGTH = 0x9D2C_5680  # so that a length tells nothing of the text


class Ring:
    """Words of one token each in a circle, as UTF-8 that needs no escape in JSON."""

    def __init__(self, words: Sequence[str], separator: str) -> None:
        self.tokens = len(words)
        pieces = [(separator + word).encode() for word in words]
        self._text = b"".join(pieces) * 2
        sizes = [len(piece) for piece in pieces] * 2
        self._starts = list(itertools.accumulate(sizes, initial=0))
        self._separator_bytes = len(separator)

    def slice(self, offset: int, first: int, last: int) -> bytes:
        """Tokens ``first`` to ``last``, that one not included, of the answer from ``offset`` on.

        The first token of an answer comes without its separator.
        """
        if last <= first:
            return b""
        skip = 0 if first else self._separator_bytes
        begin = (offset + first) % self.tokens
        count = last - first
        starts = self._starts
        if count <= self.tokens:
            return self._text[starts[begin] + skip : starts[begin + count]]
        rounds, rest = divmod(count, self.tokens)
        circle = self._text[starts[begin] : starts[begin + self.tokens]]
        return (circle * rounds + circle[: starts[begin + rest] - starts[begin]])[skip:]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What will be written: ``tokens`` tokens, then the end for ``reason``."""

    tokens: int
    reason: Literal["stop", "length"]
    ring: Ring
    offset: int
    visible_bytes: int | None = None
    """Where a stop text cuts it; None: nowhere."""

    def piece(self, first: int, last: int) -> bytes:
        """The text of these tokens, safe inside a JSON string."""
        data = self.ring.slice(self.offset, first, last)
        if self.visible_bytes is None:
            return data
        before = len(self.ring.slice(self.offset, 0, first))
        return data[: max(0, self.visible_bytes - before)]


class Wish(msgspec.Struct, frozen=True, gc=False):
    """What a request says about its answer; ``cap`` None: as long as the model allows."""

    cap: int | None = None
    least: int = 0
    ignore_end: bool = False
    seed: int = 0
    stop: tuple[str, ...] = ()


class Lengths(msgspec.Struct, frozen=True):
    """How long answers are: see ``SimulatedServer``."""

    draw: bool = True
    median_tokens: int = 200
    sigma: float = 0.7


class AnswerMaker:
    """Plans answers; equal prompt, wish and seed give equal answers in every process."""

    def __init__(self, lengths: Lengths, seed: int) -> None:
        self._lengths = lengths
        self._seed = mixed(seed)
        self._english = _ring("en")
        self._chinese = _ring("zh")

    def plan(self, prompt: Prompt, wish: Wish, room: int) -> Answer:
        """The answer to a prompt that leaves ``room`` tokens in the model's window."""
        bits = mixed(prompt.number ^ self._seed ^ (wish.seed * 0x9E3779B1))
        ring = self._chinese if prompt.chinese else self._english
        quoted = _quoted(prompt.passage) if prompt.passage else None
        cap = room if wish.cap is None else min(room, wish.cap)
        if wish.ignore_end or (wish.cap is not None and not self._lengths.draw):
            tokens = cap
        else:
            tokens = max(1, min(cap, max(wish.least, self._drawn(bits))))
        reason: Literal["stop", "length"] = "length" if tokens == cap else "stop"
        if quoted is not None:
            answer = Answer(tokens, reason, quoted, 0)
        else:
            answer = Answer(tokens, reason, ring, bits % ring.tokens)
        return _stopped(answer, wish.stop) if wish.stop else answer

    def _drawn(self, bits: int) -> int:
        chance = ((mixed(bits ^ _LENGTH) >> 11) + 0.5) / (1 << 53)
        spread = math.exp(self._lengths.sigma * _NORMAL.inv_cdf(chance))
        return max(1, round(self._lengths.median_tokens * spread))


@cache
def _ring(language: Literal["en", "zh"]) -> Ring:
    maker = TextMaker(language)
    texts = [maker.text(number, OPENING_TOKENS) for number in range(_RING_TOKENS // OPENING_TOKENS)]
    if language == "en":
        return Ring(" ".join(texts).split(), " ")
    return Ring(list("".join(texts)), "")


def _quoted(passage: str) -> Ring | None:
    """A passage as an answer that begins with its beginning and cites it at the end."""
    words = [_escaped(piece) for piece in _WORD.findall(passage)]
    return Ring([*words, " [1]. "], "") if words else None


def _escaped(word: str) -> str:
    """A word as it stands inside a JSON string."""
    return msgspec.json.encode(word)[1:-1].decode()


def _stopped(answer: Answer, stops: tuple[str, ...]) -> Answer:
    """The answer cut before the first stop text; it costs the tokens up to that text's end."""
    text = answer.piece(0, answer.tokens).decode()
    found = [(text.find(stop), len(stop)) for stop in stops if stop and stop in text]
    if not found:
        return answer
    begin, length = min(found, key=lambda place: (place[0] + place[1], place[0]))
    return msgspec.structs.replace(
        answer,
        tokens=count_tokens(text[: begin + length]),
        reason="stop",
        visible_bytes=len(text[:begin].encode()),
    )
