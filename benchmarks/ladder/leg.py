"""How long vectors take at several rates, and what a time-out of 80, 150 or 300 ms would lose.

    python benchmarks/ladder/leg.py --data ../shared/data > benchmarks/ladder/leg.json

The default embedder and the index of one set's passages, searched by both legs without a time-out
and without early exits; questions arrive as a seeded Poisson process whether or not earlier ones
are done. The time is the vector leg's own: embedding, its wait for a worker, the search and its
wait for a thread. ``beside_ingest``: passages are embedded meanwhile, as during ingest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from forebay.app.settings import load_settings, model_cache
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import Embedder, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

SET = "xquad_en"
RATES = (5, 20, 40)
SECONDS = 10.0
SEED = 3
TIMEOUTS_MS = (80, 150, 300)


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


async def asked(
    retriever: HybridRetriever, questions: list[str], rate: float, chance: random.Random
) -> dict[str, Any]:
    """Ask at a rate; quantiles of the vector leg, and what each time-out would have lost."""
    clock, took = SystemClock(), list[float]()

    async def one(question: str) -> None:
        ctx = RequestContext(
            request_id="r",
            principal=Principal(),
            deadline=Deadline.after(60, clock),
            clock=clock,
        )
        found = await retriever.retrieve(ctx, SearchRequest("kb", question))
        took.extend(use.took_s * 1000 for use in found.uses if use.part == "vector")

    began = time.process_time()
    ends_at = clock.now() + SECONDS
    async with asyncio.TaskGroup() as group:
        while clock.now() < ends_at:
            group.create_task(one(chance.choice(questions)))
            await asyncio.sleep(chance.expovariate(rate))
    took.sort()
    return {
        "rate": rate,
        "requests": len(took),
        "p50_ms": round(took[len(took) // 2], 1),
        "p95_ms": round(took[int(0.95 * len(took))], 1),
        "p99_ms": round(took[int(0.99 * len(took))], 1),
        "lost_by_timeout_ms": {
            str(limit): round(sum(one > limit for one in took) / len(took), 4)
            for limit in TIMEOUTS_MS
        },
        "cpu_ms_a_request": round((time.process_time() - began) / len(took) * 1000, 1),
    }


async def measure(data: Path) -> dict[str, Any]:
    settings, _ = load_settings(None, {}, {})
    clock = SystemClock()
    embedder = await open_embedder(settings.embedding, cache=model_cache(settings), clock=clock)
    assert embedder is not None
    texts = [row["text"] for row in read(data / "retrieval" / SET / "corpus.jsonl")]
    questions = [row["text"] for row in read(data / "retrieval" / SET / "queries.jsonl")]
    record = MemoryIndexFeed(embedder.spec.dimensions)
    ids = record.add(*texts)
    vectors = await embedder.embed(texts, kind="passage")
    rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
    record.embed(dict(zip(ids, rows, strict=True)))
    chance, result = random.Random(SEED), {}
    slow = RetrievalSettings(vector_timeout_ms=60_000, early_exit_confidence=2.0)
    with tempfile.TemporaryDirectory() as folder, search_executor(4) as pool:
        index = KbIndex.open(
            Path(folder),
            "kb",
            record,
            writable=True,
            fingerprint=lambda: embedder.spec.fingerprint,
        )
        retriever = HybridRetriever(lambda _: index, embedder, slow, pool)
        await asked(retriever, questions, 5, random.Random(0))
        result["at_rest"] = [await asked(retriever, questions, rate, chance) for rate in RATES]
        async with asyncio.TaskGroup() as group:
            ingest = group.create_task(passages(embedder, texts))
            result["beside_ingest"] = [
                await asked(retriever, questions, rate, chance) for rate in RATES[:2]
            ]
            ingest.cancel()
        index.close()
    await embedder.close()
    return result


async def passages(embedder: Embedder, texts: list[str]) -> None:
    """Embed passages until somebody calls it off."""
    while True:
        for text in texts:
            await embedder.embed([text], kind="passage")


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    options = arguments.parse_args()
    result = {
        "machine": f"{platform.machine()}, {platform.system()}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores",
        "load_before": round(os.getloadavg()[0], 1),
        "seed": SEED,
        **uvloop.run(measure(options.data)),
    }
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
