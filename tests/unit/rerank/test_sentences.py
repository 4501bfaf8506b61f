"""The dear reranker by sentences: how texts are cut, and that one sentence is enough."""

from __future__ import annotations

import pytest

from forebay.kernel.errors import InvalidRequest
from forebay.rerank.sentences import SentenceReranker, SentenceSettings
from forebay.testing.embedding import HashEmbedder
from forebay.testing.reranker_suite import reranking_context

FILLER = "The weather was fine and nobody said a word about anything that matters to anyone here. "


def reranker(**changes: float) -> SentenceReranker:
    return SentenceReranker(HashEmbedder(64), SentenceSettings(**changes))  # type: ignore[arg-type]


def test_texts_are_cut_at_sentences_under_their_title() -> None:
    cut = reranker(min_characters=25).pieces
    assert cut("Returns\nParcels may be returned soon. Ask the desk. Then wait for an answer.") == [
        "Returns: Parcels may be returned soon.",
        "Returns: Ask the desk. Then wait for an answer.",
    ]
    assert cut("七天内可以申请退货，请保留发票。超过七天请联系客服人员处理。") == [
        "七天内可以申请退货，请保留发票。",
        "超过七天请联系客服人员处理。",
    ]
    assert cut("") == [" "]
    assert len(reranker(max_sentences=3).pieces(FILLER * 50)) == 3


async def test_one_sentence_that_answers_is_enough() -> None:
    query = "parcels returned within thirty days"
    answer = "Parcels may be returned within thirty days of their delivery to the customer."
    blurred = FILLER * 6 + answer + " " + FILLER * 6
    found = await reranker(middle=0.5, width=0.1).rerank(
        reranking_context(), query, [FILLER * 12, blurred]
    )
    assert found[1] > found[0] + 0.1


async def test_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 2"):
        await reranker(max_documents=2).rerank(reranking_context(), "q", ["a", "b", "c"])
