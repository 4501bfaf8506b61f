"""Late interaction: order, bounds, what is kept, and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import ConfigError, DeadlineExceeded, EngineError, InvalidRequest
from forebay.kernel.tokens import TokenStates
from forebay.rerank.late import CodesCache, LateReranker, LateSettings, relevances
from forebay.rerank.late_head import LateHead, TokenCodes
from forebay.testing.embedding import HashTokenEncoder
from tests.unit.rerank.heads import write_small_head


def context(seconds: float = 5) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(seconds, clock), clock=clock
    )


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def reranker(
    folder: Path,
    executor: ThreadPoolExecutor,
    encoder: HashTokenEncoder,
    settings: LateSettings | None = None,
) -> LateReranker:
    head = LateHead(write_small_head(folder, encoder.spec))
    return LateReranker(encoder, head, settings or LateSettings(), executor)


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("reset a password", "Where to reset your password: the portal.", "Lunch is at noon."),
        ("重置密码", "在门户中可以重置密码。", "午餐十二点开始供应。"),
    ],
)
async def test_the_text_that_holds_every_word_comes_first(
    tmp_path: Path, executor: ThreadPoolExecutor, query: str, right: str, wrong: str
) -> None:
    late = reranker(tmp_path, executor, HashTokenEncoder())
    bad, good = await late.rerank(context(), query, [wrong, right])
    assert 0 <= bad < good <= 1


async def test_passages_are_encoded_once(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    encoder = HashTokenEncoder()
    late = reranker(tmp_path, executor, encoder)
    first = await late.rerank(context(), "b", ["a b", "c", "a b"])
    assert first[0] == first[2]
    assert sorted(encoder.calls) == [("a b",), ("b",), ("c",)]
    assert await late.rerank(context(), "b", ["c", "a b"]) == [first[1], first[0]]
    assert encoder.calls[3:] == [("b",)]
    told = late.statistics()
    assert (told.entries, told.hits, told.misses) == (2, 2, 2)
    assert 0 < told.size_bytes < LateSettings().cache_bytes


async def test_what_was_warmed_needs_the_query_only(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    encoder = HashTokenEncoder()
    late = reranker(tmp_path, executor, encoder)
    await late.warm(["one", "two"])
    encoder.calls.clear()
    await late.rerank(context(), "two", ["one", "two"])
    assert encoder.calls == [("two",)]


async def test_no_documents_and_too_many(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    late = reranker(tmp_path, executor, HashTokenEncoder(), LateSettings(max_documents=2))
    assert list(await late.rerank(context(), "q", [])) == []
    with pytest.raises(InvalidRequest, match="at most 2"):
        await late.rerank(context(), "q", ["a", "b", "c"])


class Slow(HashTokenEncoder):
    """Never gets to the passage ``stuck``."""

    async def states(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> tuple[TokenStates, ...]:
        if "stuck" in texts:
            await asyncio.Event().wait()
        return await super().states(texts, kind=kind)


async def test_a_deadline_ends_the_wait_and_what_was_encoded_stays(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    encoder = Slow()
    late = reranker(tmp_path, executor, encoder)
    with pytest.raises(DeadlineExceeded):
        await late.rerank(context(0.5), "q", ["stuck", "fine"])
    assert late.statistics().entries == 1


async def test_an_encoders_error_is_the_requests(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    class Broken(HashTokenEncoder):
        async def states(
            self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
        ) -> tuple[TokenStates, ...]:
            if kind == "passage":
                raise EngineError("the embedding model failed on this input")
            return await super().states(texts, kind=kind)

    late = reranker(tmp_path, executor, Broken())
    with pytest.raises(EngineError, match="failed on this input"):
        await late.rerank(context(), "q", ["a", "b"])


def test_a_head_belongs_to_one_embedder(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    head = LateHead(write_small_head(tmp_path, HashTokenEncoder().spec))
    with pytest.raises(ConfigError, match="another embedder") as told:
        LateReranker(HashTokenEncoder(salt="other"), head, LateSettings(), executor)
    assert told.value.param == "rerank.dear.late.path"


def codes(tokens: int) -> TokenCodes:
    return TokenCodes(np.zeros((tokens, 128), np.int8), np.ones(tokens, np.float16))


def test_the_cache_is_bounded_in_bytes_and_drops_the_least_recent() -> None:
    cache = CodesCache(3 * (10 * 130 + 400))
    for name in (b"a", b"b", b"c"):
        cache.put(name, codes(10))
    assert cache.get(b"a") is not None
    cache.put(b"d", codes(10))
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c", b"d")] == [
        True, False, True, True,
    ]  # fmt: skip
    cache.put(b"a", codes(20))
    assert cache.statistics().size_bytes <= 3 * (10 * 130 + 400)
    cache.put(b"huge", codes(1000))
    assert cache.get(b"huge") is None
    CodesCache(0).put(b"a", codes(1))


def test_relevance_is_one_half_at_the_middle_and_stays_in_bounds() -> None:
    found = relevances(np.array([0.6, -1e3, 1e3], np.float32), 0.6, 1e-3)
    assert found[0] == pytest.approx(0.5, abs=1e-3)
    assert 0 <= found[1] < 1e-9 < 1 - 1e-9 < found[2] <= 1
