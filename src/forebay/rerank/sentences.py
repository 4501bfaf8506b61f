"""A dear reranker without a model of its own: the embedder reads every sentence of a text.

A chunk's one vector is a blend of all it says; the best of its sentences' vectors is closer to
what was asked. It costs a run of the embedder per sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Embedder
from forebay.rerank.embedded import check_count, cosines, embedded

_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])|\n+|(?<=[。！？；])")
_HAN = re.compile("[\u3400-\u9fff]")


class SentenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How texts are cut, and how cosines become relevances: a logistic curve around ``middle``.

    Its defaults are fitted to the built-in embedder (``benchmarks/rerank/cascade.py``).
    """

    middle: Annotated[
        float,
        Meta(
            ge=-1,
            le=1,
            description="Cosine of a text's best sentence that counts as relevance one half; the "
            "default is that of the built-in embedder.",
        ),
    ] = 0.63
    width: Annotated[
        float,
        Meta(gt=0, description="Cosine distance over which the odds of relevance move by e."),
    ] = 0.076
    min_characters: Annotated[
        int, Meta(ge=1, description="Shorter sentences are joined; Han characters count 2.5 times.")
    ] = 100
    max_sentences: Annotated[
        int, Meta(ge=1, le=256, description="Sentences of one text that are read.")
    ] = 24
    max_documents: Annotated[int, Meta(ge=1, description="Texts in one request at most.")] = 200


class SentenceReranker:
    """``Reranker`` over any embedder, by the best sentence of each text."""

    def __init__(self, embedder: Embedder, settings: SentenceSettings) -> None:
        self._embedder = embedder
        self._settings = settings

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given."""
        check_count(texts, self._settings.max_documents)
        if not texts:
            return ()
        pieces = [self.pieces(text) for text in texts]
        flat = [piece for some in pieces for piece in some]
        found = cosines(*await embedded(self._embedder, ctx, query, flat))
        ends = np.cumsum([len(some) for some in pieces])
        best = [float(some.max()) for some in np.split(found, ends[:-1])]
        return [self._relevance(cosine) for cosine in best]

    def pieces(self, text: str) -> list[str]:
        """The sentences of ``text``, short ones joined to the next; at least one piece."""
        title, _, body = text.partition("\n")
        head = f"{title}: " if body and len(title) < self._settings.min_characters else ""
        found: list[str] = []
        held = ""
        for sentence in _ENDS.split(body if head else text):
            held = f"{held} {sentence.strip()}".strip()
            if len(held) + 1.5 * len(_HAN.findall(held)) >= self._settings.min_characters:
                found.append(held)
                held = ""
        if held or not found:
            found.append(held or text.strip() or " ")
        return [head + piece for piece in found[: self._settings.max_sentences]]

    def _relevance(self, cosine: float) -> float:
        away = (cosine - self._settings.middle) / self._settings.width
        return float(1 / (1 + np.exp(-np.clip(away, -60, 60))))
