"""What a judge says of the passages found for a question, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.target import Passage

RELEVANT = 0.5
"""A score from which a passage counts as relevant."""
CONSISTENT = 0.5
"""Consistency under which a judgement contradicts itself: it is told of, and teaches nothing."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One passage; shares are 0..1.

    ``score`` is what the judge thinks of it altogether, ``corrected`` the same without what its
    place before the judge and its length lent it, ``importance`` its softmax among the passages.
    ``place`` is where the judge ordered it, 1 first.
    """

    score: float
    corrected: float
    importance: float = 0.0
    relevance: float = 0.0
    information: float = 0.0
    redundancy: float = 0.0
    place: int = 0


class Judgement(msgspec.Struct, frozen=True):
    """Verdicts in the order of the passages.

    ``consistency`` is the share of pairs that order and relevance put alike, after the check;
    ``revised``: the judge changed its mind when asked again.
    """

    verdicts: tuple[Verdict, ...]
    consistency: float = 1.0
    revised: bool = False


class JudgedPassage(msgspec.Struct, frozen=True):
    """A passage with its verdict; ``rank`` 1 was found first, ``label`` is its grade if known."""

    passage: Passage
    verdict: Verdict
    rank: int
    label: int | None = None


class JudgedQuestion(msgspec.Struct, frozen=True):
    """One line of a file of judgements."""

    set: str
    id: str
    question: str
    language: str
    passages: tuple[JudgedPassage, ...]
    consistency: float = 1.0


class Judge(Protocol):
    """Says how good passages are for a question; ``EngineError`` and its like when it cannot."""

    async def judge(self, question: Question, passages: Sequence[Passage]) -> Judgement:
        """One verdict a passage, in their order."""
        ...


def write_judgements(path: Path, judged: Iterable[JudgedQuestion]) -> None:
    """Write JSON lines; they hold the texts, which is what a small judge learns from."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for one in judged:
            file.write(encoder.encode(one) + b"\n")


def read_judgements(path: Path) -> Iterator[JudgedQuestion]:
    """The lines of a file; ``ConfigError`` says which is none."""
    decoder = msgspec.json.Decoder(JudgedQuestion)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise ConfigError(f"{path}:{number} is no judgement: {error}.") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from error
