"""The shipped head reads the built-in embedder, in both languages and across them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from forebay.embedding.opening import open_embedder, token_encoder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import SystemClock
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead
from tests.unit.rerank.test_late import context


@pytest.fixture
async def late(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LateReranker]:
    cache = tmp_path_factory.getbasetemp().parent / "forebay-e5"
    embedder = await open_embedder(EmbeddingSettings(), cache=cache, clock=SystemClock())
    encoder = token_encoder(embedder)
    assert embedder is not None and encoder is not None
    with ThreadPoolExecutor(1) as executor:
        yield LateReranker(encoder, LateHead.shipped(), LateSettings(), executor)
    await embedder.close()


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        (
            "How long is the warranty of the boiler?",
            "The boiler has a warranty of five years; keep the receipt.",
            "The boiler is serviced once a year by the caretaker.",
        ),
        ("锅炉的保修期有多长？", "锅炉保修五年，请保留发票。", "锅炉每年由管理员检修一次。"),
        (
            "锅炉的保修期有多长？",
            "The boiler has a warranty of five years; keep the receipt.",
            "会议室需要提前一天预订。",
        ),
    ],
)
async def test_the_answer_comes_first(
    late: LateReranker, query: str, right: str, wrong: str
) -> None:
    bad, good = await late.rerank(context(60), query, [wrong, right])
    assert 0 <= bad < good <= 1
