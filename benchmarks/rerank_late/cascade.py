"""The cascade with late interaction as the dear reranker, on questions neither model learned from.

    python -m benchmarks.rerank_late.cascade --data ../shared/data --cache CACHE --vectors VECTORS \
        > benchmarks/rerank_late/cascade.json

Questions that are held out both for the head (by document) and for the light reranker (by the
CRC-32 of the text). The production retriever, light model, cascade and late reranker; token states
come from the cache in place of the model. nDCG@10 with 95 % intervals of paired differences.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.rerank_late.data import PATIENT, VECTORS, Pair, Places, spec
from benchmarks.rerank_late.measure import MAIN, context, told
from benchmarks.retrieval.quality import CachedEmbedder, fill, read
from forebay.kernel.stages import EmbedderSpec, SearchRequest
from forebay.kernel.tokens import TokenStates
from forebay.lab.distill.light_data import is_held_out
from forebay.lab.evaluate.intervals import mean_interval
from forebay.lab.evaluate.measures import ndcg
from forebay.pipeline.reranking import (
    RerankingParts,
    RerankingRetriever,
    RerankingSettings,
)
from forebay.policy.cascade import CascadeSettings
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead
from forebay.rerank.light import LightModel
from forebay.retrieval import HybridRetriever, KbIndex, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

ASKED = {
    "light": None,
    "cascade": CascadeSettings(),
    "dear always": CascadeSettings(floor=0.0, sure_from=1.0),
}
SETTINGS = RerankingSettings(timeout_ms=60_000, dear_timeout_ms=60_000)


class CachedStates:
    """Token states computed before, by text."""

    def __init__(self, spec: EmbedderSpec, pair: Pair) -> None:
        self.spec = spec
        self._pair = pair
        self._names = {
            kind: dict(zip(map(str.strip, texts.texts), texts.place, strict=True))
            for kind, texts in (("query", pair.questions), ("passage", pair.documents))
        }

    async def states(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> tuple[TokenStates, ...]:
        source = self._pair.questions if kind == "query" else self._pair.documents
        return tuple(told(source[self._names[kind][text.strip()]]) for text in texts)


async def orders(places: Places, pair: Pair, names: tuple[str, str]) -> dict[str, Any]:
    """Rankings of every way by question, and how often the dear model was asked."""
    questions, documents = names
    chosen = read(places.data, [documents], questions)
    asked = np.load(places.vectors / f"{questions}.npz")
    rows = dict(zip(asked["query_ids"].tolist(), asked["queries"], strict=True))
    texts = {row["_id"]: row["text"] for row in chosen.queries}
    embedder = CachedEmbedder({text: rows[key] for key, text in texts.items()})
    record = MemoryIndexFeed(VECTORS.dimensions)
    ids = fill(record, chosen, np.load(places.vectors / f"{documents}.npz")["docs"])
    queries = [q for q in pair.held_out if is_held_out(texts[q])]
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: VECTORS.fingerprint
        )
        plain = HybridRetriever(lambda kb: index, embedder, PATIENT, pool, with_vectors=True)
        late = LateReranker(
            CachedStates(spec(places), pair),
            LateHead.shipped(),
            LateSettings(cache_bytes=2_000_000_000),
            ThreadPoolExecutor(1),
        )
        ways: dict[str, Any] = {"hybrid": plain}
        for way, cascade in ASKED.items():
            dear = None if cascade is None else late
            parts = RerankingParts(
                light=LightModel.shipped(),
                executor=pool,
                settings=SETTINGS,
                dear=dear,
                cascade=cascade or CascadeSettings(),
            )
            ways[way] = RerankingRetriever(plain, parts)
        result: dict[str, Any] = {way: {} for way in ways}
        for query in queries:
            request = SearchRequest(kb="kb", query=texts[query], top_k=30)
            for way, retriever in ways.items():
                hits = (await retriever.retrieve(context(), request)).hits
                result[way][query] = [ids[hit.chunk.chunk_id].split("/", 1)[1] for hit in hits]
        index.close()
    counts = {way: one.statistics() for way, one in ways.items() if way in ASKED}
    return {"rankings": result, "counts": counts}


def table(pair: Pair, found: dict[str, Any]) -> dict[str, Any]:
    rankings = found["rankings"]
    relevance = {query: dict.fromkeys(pair.relevant[query], 1) for query in rankings["hybrid"]}
    values = {way: ndcg(relevance, ranking, 10) for way, ranking in rankings.items()}
    result: dict[str, Any] = {"questions": len(relevance), "counts": found["counts"]}
    for way, each in values.items():
        result[way] = {"ndcg@10": round(float(np.mean(list(each.values()))), 4)}
    for way in ("cascade", "dear always"):
        gains = np.array([values[way][query] - values["light"][query] for query in relevance])
        low, high = mean_interval(gains, np.random.default_rng(5))
        result[way]["over_light"] = [round(float(x), 4) for x in (gains.mean(), low, high)]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True)
    arguments = parser.parse_args()
    places = Places(arguments.data / "retrieval", arguments.cache, arguments.vectors)
    report = {}
    for names in MAIN:
        pair = Pair(places, *names)
        report[pair.name] = table(pair, asyncio.run(orders(places, pair, names)))
        print(pair.name, report[pair.name], file=sys.stderr)
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
