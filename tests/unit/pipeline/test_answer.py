"""What the answering life does on the event loop, and what beside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from forebay.kernel.clock import Deadline, SystemClock, WallClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.pipeline.answer import INLINE_CHARACTERS, AnswerParts, AnswerPipeline
from forebay.policy.admission import Admission, AdmissionSettings, Desk


class _Nothing:
    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        return SearchResult(hits=(), rung="bm25", kb_version=1)


@pytest.mark.parametrize("characters", [10, INLINE_CHARACTERS + 1])
async def test_long_queries_are_counted_beside_the_loop(characters: int) -> None:
    counted: list[threading.Thread] = []

    def count(texts: Sequence[str]) -> int:
        counted.append(threading.current_thread())
        return len(texts)

    absent = cast(Any, None)
    clock = SystemClock()
    admission = Admission(Desk(AdmissionSettings(), (), {}, clock, WallClock()))
    parts = AnswerParts(
        cast(Retriever, _Nothing()), absent, absent, cite=absent, admission=admission, count=count
    )
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(5.0, clock), clock=clock
    )
    wanted = SearchRequest(kb="kb", query="!" * characters, top_k=1)
    await AnswerPipeline(parts).search(ctx, wanted)
    on_the_loop = counted == [threading.main_thread()]
    assert on_the_loop == (characters <= INLINE_CHARACTERS)
