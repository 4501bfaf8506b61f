"""What is evaluated: anything that finds passages and answers with citations."""

from __future__ import annotations

from typing import Protocol

import msgspec

from forebay.lab.evaluate.datasets import Question


class Passage(msgspec.Struct, frozen=True):
    """A passage that was found; ``score`` orders those of one search."""

    document_id: str
    text: str
    score: float = 0.0
    title: str = ""


class Cited(msgspec.Struct, frozen=True):
    """A passage that an answer names by ``[index]``."""

    index: int
    document_id: str
    text: str


class Found(msgspec.Struct, frozen=True):
    """What a search found, best first."""

    hits: tuple[Passage, ...]
    rung: str = ""


class Said(msgspec.Struct, frozen=True):
    """An answer; ``refused``: it says that the documents hold none, ``unsure``: that it quotes
    what comes nearest to one.
    """

    text: str
    citations: tuple[Cited, ...] = ()
    refused: bool = False
    rung: str = ""
    unsure: bool = False


class Target(Protocol):
    """A retrieval service; failures are ``ForebayError``s."""

    async def search(self, question: Question, top_k: int) -> Found:
        """At most ``top_k`` passages, best first."""
        ...

    async def answer(self, question: Question) -> Said:
        """The whole answer."""
        ...


class Outcome(msgspec.Struct):
    """What came of one question."""

    searched: bool = False
    hits: tuple[Passage, ...] = ()
    said: Said | None = None
    search_s: float | None = None
    answer_s: float | None = None
    rung: str = ""
    error: str = ""
    judged: dict[str, float] = {}
