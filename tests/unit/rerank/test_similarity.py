"""The built-in reranker: order, bounds, both languages."""

from __future__ import annotations

import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import InvalidRequest
from forebay.rerank import SimilarityReranker, SimilaritySettings
from forebay.rerank.similarity import terms
from forebay.testing.embedding import HashEmbedder


def context() -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(5, clock), clock=clock
    )


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("how to reset a password", "Reset your password in the portal.", "Lunch is at noon."),
        ("如何重置密码", "在门户中重置密码。", "午餐十二点开始。"),
    ],
)
async def test_the_answering_text_comes_first(query: str, right: str, wrong: str) -> None:
    reranker = SimilarityReranker(HashEmbedder(), SimilaritySettings(middle=0.3, width=0.1))
    good, bad = await reranker.rerank(context(), query, [right, wrong])
    assert 0 <= bad < good <= 1


async def test_no_documents_and_too_many() -> None:
    reranker = SimilarityReranker(HashEmbedder(), SimilaritySettings(max_documents=2))
    assert list(await reranker.rerank(context(), "q", [])) == []
    with pytest.raises(InvalidRequest, match="at most 2"):
        await reranker.rerank(context(), "q", ["a", "b", "c"])


def test_terms_fold_width_and_case_and_pair_han() -> None:
    assert terms("ＦＢ-2041 备份脚本") == {"fb", "2041", "备份", "份脚", "脚本"}
    assert terms("備份腳本") == terms("备份脚本")
