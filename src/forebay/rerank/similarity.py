"""A reranker without a model of its own: meaning by the embedder, words by overlap."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated

import msgspec

from forebay.folding import simplified
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Embedder
from forebay.rerank.embedded import check_count, cosines, embedded

_WORD = re.compile(r"[0-9a-z]+|[\u3400-\u9fff\uf900-\ufaff]+")


class SimilaritySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How cosines become relevances: a logistic curve around ``middle``.

    The defaults fit the built-in embedder with its languages' means taken off: of XQuAD questions
    in both languages the answering paragraph has .39 to .59 (5th to 75th percentile), and 99 % of
    the others less than .42.
    """

    middle: Annotated[
        float, msgspec.Meta(ge=-1, le=1, description="Cosine that counts as relevance one half.")
    ] = 0.4
    width: Annotated[
        float, msgspec.Meta(gt=0, description="Cosine distance over which relevance moves by e.")
    ] = 0.05
    words_share: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Weight of word overlap beside the cosine.")
    ] = 0.3
    max_documents: Annotated[
        int, msgspec.Meta(ge=1, description="Texts in one request at most.")
    ] = 1000


class SimilarityReranker:
    """``Reranker`` over any embedder; relevances are comparable between requests."""

    def __init__(self, embedder: Embedder, settings: SimilaritySettings) -> None:
        self._embedder = embedder
        self._settings = settings

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given."""
        check_count(texts, self._settings.max_documents)
        if not texts:
            return ()
        with ctx.stage("rerank"):
            vectors = await embedded(self._embedder, ctx, query, texts)
        wanted = terms(query)
        return [
            self._relevance(cosine, _coverage(wanted, text))
            for cosine, text in zip(cosines(*vectors).tolist(), texts, strict=True)
        ]

    def _relevance(self, cosine: float, coverage: float) -> float:
        settings = self._settings
        meaning = 1 / (1 + math.exp(-(cosine - settings.middle) / settings.width))
        return (1 - settings.words_share) * meaning + settings.words_share * coverage


def terms(text: str) -> frozenset[str]:
    """Words of a text: Latin words and numbers whole, Han text as pairs of characters."""
    found: set[str] = set()
    for run in _WORD.findall(simplified(unicodedata.normalize("NFKC", text)).lower()):
        if run.isascii() or len(run) == 1:
            found.add(run)
        else:
            found.update(run[i : i + 2] for i in range(len(run) - 1))
    return frozenset(found)


def _coverage(wanted: frozenset[str], text: str) -> float:
    return len(wanted & terms(text)) / len(wanted) if wanted else 0.0
