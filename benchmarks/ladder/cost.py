"""What the ladder costs a request with nothing wrong, and who pays for a hung embedder.

    python benchmarks/ladder/cost.py > benchmarks/ladder/cost.json

Overhead: the ladder over rungs that answer at once, and the first of those rungs without it, take
turns in blocks; processor time of this thread, the median of the differences of neighbouring
blocks. Hung: a real index under the real rungs, searched 200 times a second at even distances,
each request on its own whether the last one is through or not; the embedder hangs from the start
of the third second to the end of the eighth. All times are the ladder's callers'.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import uvloop

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import DeadlineExceeded
from forebay.kernel.stages import EmbedderSpec, PartUse, Retriever, SearchRequest, SearchResult
from forebay.policy.breaker import Breaker
from forebay.policy.ladder import (
    LadderRetriever,
    LadderSettings,
    Part,
    Rung,
    VectorBreakerSettings,
    WordsBreakerSettings,
)
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    KeywordRetriever,
    MeaningRetriever,
    RetrievalSettings,
    WordsRetriever,
    search_executor,
)
from forebay.testing.embedding import HashEmbedder
from forebay.testing.index_feed import MemoryIndexFeed

PAIRS, BLOCK = 60, 2000
RATE, DEADLINE_S = 200, 1.0
HANGS = (2.0, 8.0)
ENDS = 12.0
SEED = 5
WARM = 200
"""Searches before the first that counts: threads, caches and the interpreter's own warm up."""
CHUNKS = 500


class Instant:
    """A rung that has its answer at once."""

    def __init__(self) -> None:
        uses = (PartUse("bm25", 0.002), PartUse("vector", 0.01, found=True))
        self._result = SearchResult((), "vector+bm25", 1, sure=True, uses=uses)

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        return self._result


class Hanging:
    """An embedder that can be made to hang."""

    def __init__(self, inner: HashEmbedder) -> None:
        self._inner = inner
        self.hangs = False
        self.asked = 0

    @property
    def spec(self) -> EmbedderSpec:
        return self._inner.spec

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(3600)
        return await self._inner.embed(texts, kind=kind)


def context(seconds: float = 60.0) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r",
        principal=Principal(),
        deadline=Deadline.after(seconds, clock),
        clock=clock,
    )


async def overhead() -> dict[str, Any]:
    """Microseconds of processor time a request."""
    rung = Instant()
    settings = LadderSettings()
    parts = [
        Part("vector", Breaker(settings.vector), rung, 0.3),
        Part("bm25", Breaker(settings.words), rung, 0.08),
    ]
    # In a row a request takes microseconds, so that more come in a second than words are meant for.
    parts[1].breaker.settings = WordsBreakerSettings(max_per_s=0)
    parts[0].breaker.settings = VectorBreakerSettings()
    ladder = LadderRetriever([Rung("vector+bm25", rung, ("vector", "bm25"))], parts, SystemClock())
    ctx, request = context(), SearchRequest("kb", "q")

    async def block(retriever: Retriever) -> float:
        began = time.thread_time()
        for _ in range(BLOCK):
            await retriever.retrieve(ctx, request)
        return (time.thread_time() - began) / BLOCK * 1e6

    for retriever in (rung, ladder):
        await block(retriever)
    pairs = [(await block(rung), await block(ladder)) for _ in range(PAIRS)]
    assert not ctx.degradations
    differences = sorted(with_ - without for without, with_ in pairs)
    return {
        "bare_us": round(median(one for one, _ in pairs), 2),
        "with_ladder_us": round(median(two for _, two in pairs), 2),
        "overhead_us": round(median(differences), 2),
        "quartiles_us": [round(differences[PAIRS // 4], 2), round(differences[-PAIRS // 4], 2)],
        "pairs": PAIRS,
        "requests_a_block": BLOCK,
    }


async def hung(folder: Path) -> dict[str, Any]:
    """Two hundred searches a second while the embedder hangs."""
    chance = random.Random(SEED)
    words = [f"word{n}" for n in range(4000)]
    texts = [" ".join(chance.choices(words, k=60)) for _ in range(CHUNKS)]
    embedder = Hanging(HashEmbedder(64))
    record = MemoryIndexFeed(64)
    ids = record.add(*texts)
    vectors = await embedder.embed(texts, kind="passage")
    rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
    record.embed(dict(zip(ids, rows, strict=True)))
    index = KbIndex.open(
        folder, "kb", record, writable=True, fingerprint=lambda: embedder.spec.fingerprint
    )
    settings, clock = RetrievalSettings(early_exit_confidence=2.0), SystemClock()
    keyword = KeywordRetriever(lambda _: index, settings, clock)
    with search_executor(4) as pool:

        def get(_: str) -> KbIndex:
            return index

        by_words = WordsRetriever(get, settings, pool, chosen=False)
        by_vectors = MeaningRetriever(get, embedder, settings, pool)
        ladder_settings = LadderSettings()
        parts = [
            Part(
                "vector",
                Breaker(ladder_settings.vector, chance.random),
                by_vectors,
                settings.vector_timeout_ms / 1000,
            ),
            Part("bm25", Breaker(ladder_settings.words, chance.random), by_words, 0.08),
        ]
        ladder = LadderRetriever(
            [
                Rung(
                    "vector+bm25",
                    HybridRetriever(get, embedder, settings, pool),
                    ("vector", "bm25"),
                ),
                Rung("bm25", by_words, ("bm25",)),
                Rung("vector", by_vectors, ("vector",), spare=True),
                Rung("keyword", keyword),
            ],
            parts,
            clock,
        )
        seen = await drive(ladder, embedder, chance, words)
        probes = parts[0].breaker.probes
        await ladder.close()
        keyword.close()
    index.close()
    return {**seen, "probes": probes, "chunks": CHUNKS, "rate": RATE, "deadline_s": DEADLINE_S}


async def drive(
    ladder: LadderRetriever, embedder: Hanging, chance: random.Random, words: list[str]
) -> dict[str, Any]:
    """Ask at the rate; what came of it, by whether the embedder hung."""
    found: list[tuple[float, float, str, str]] = []
    late = 0
    for _ in range(WARM):
        await ladder.retrieve(context(), SearchRequest("kb", " ".join(chance.choices(words, k=5))))
    began_at = time.perf_counter()

    async def one(due: float) -> None:
        nonlocal late
        ctx = context(DEADLINE_S)
        try:
            result = await ladder.retrieve(
                ctx, SearchRequest("kb", " ".join(chance.choices(words, k=5)))
            )
        except DeadlineExceeded:
            late += 1
            return
        took = time.perf_counter() - began_at - due
        late += ctx.deadline.expired()
        reason = ctx.degradations[0].reason if ctx.degradations else ""
        found.append((due, took, result.rung, reason))

    async with asyncio.TaskGroup() as group:
        for number in range(int(ENDS * RATE)):
            due = number / RATE
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - began_at)))
            embedder.hangs = HANGS[0] <= due < HANGS[1]
            group.create_task(one(due))
    return {
        "requests": len(found),
        "over_their_deadline": late,
        "time_outs": sum(reason == "vector_timeout" for *_, reason in found),
        "before": told([one for one in found if one[0] < HANGS[0]]),
        "hung": told([one for one in found if HANGS[0] <= one[0] < HANGS[1]]),
        "after": told([one for one in found if one[0] >= HANGS[1]]),
        "whole_again_after_s": round(
            min(due for due, _, rung, _ in found if due >= HANGS[1] and rung == "vector+bm25")
            - HANGS[1],
            2,
        ),
    }


def told(found: Sequence[tuple[float, float, str, str]]) -> dict[str, Any]:
    took = sorted(took * 1000 for _, took, _, _ in found)
    return {
        "p50_ms": round(took[len(took) // 2], 1),
        "p99_ms": round(took[int(0.99 * len(took))], 1),
        "most_ms": round(took[-1], 1),
        "by": dict(Counter(f"{rung} {reason}".strip() for *_, rung, reason in found)),
    }


def main() -> None:
    """Print one JSON object."""
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {platform.system()}, Python "
        f"{platform.python_version()}, 2 cores",
        "load_before": round(os.getloadavg()[0], 1),
        "seed": SEED,
        "overhead": uvloop.run(overhead()),
    }
    with tempfile.TemporaryDirectory() as folder:
        result["hung_embedder"] = uvloop.run(hung(Path(folder)))
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
