"""What the hit rate of vectors is where nothing is wrong with them, and where something is.

    python benchmarks/ladder/hit_rate.py --data ../shared/data --vectors FOLDER \
        > benchmarks/ladder/hit_rate.json

FOLDER has one SET.npz for each set (doc_ids, docs, query_ids, queries), as an embedder made them.
Each question is searched by both legs through the real rung. Judged are those whose best word hit
is right with the probability of ``retrieval.witness_confidence`` and more, but not so surely that
vectors are skipped; a hit is that chunk among the first ten by vector. ``whole``: the vectors as
they are. ``shuffled``: each chunk has another's. ``other_model``: questions by vectors that chance
made. ``half``: every second chunk has another's. Windows of 200 judged requests, as the breaker
has them, are drawn 2,000 times: how many of them would leave vectors at 0.65.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import EmbedderSpec, SearchRequest
from forebay.policy.ladder import LadderSettings
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

SETS = (
    "tatqa_dev", "xquad_en", "xquad_zh", "hotpotqa_train100", "drcd_dev", "scifact_train",
)  # fmt: skip
SEED = 4
WINDOW, DRAWS = 200, 2000
Matrix = npt.NDArray[np.float32]


class Known:
    """An embedder that looks vectors up."""

    def __init__(self, vectors: dict[str, Matrix], dimensions: int) -> None:
        self._vectors = vectors
        self.spec = EmbedderSpec("known", "known", dimensions, 512)

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        rows = np.stack([self._vectors[text] for text in texts])
        return Vectors(tuple(range(len(texts))), rows.shape[1], rows.astype("<f4").tobytes())


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def spoilt(docs: Matrix, queries: Matrix, how: str) -> tuple[Matrix, Matrix]:
    """The vectors as they are in one way of being wrong."""
    chance = np.random.default_rng(SEED)
    if how == "shuffled":
        return docs[chance.permutation(len(docs))], queries
    if how == "half":
        mixed = docs.copy()
        mixed[::2] = docs[::2][chance.permutation(len(docs[::2]))]
        return mixed, queries
    if how == "other_model":
        made = chance.normal(size=queries.shape).astype(np.float32)
        return docs, made / np.linalg.norm(made, axis=1, keepdims=True)
    return docs, queries


async def judged(folder: Path, vectors: Path, how: str) -> list[bool]:
    """Whether each judged question was a hit."""
    kept = np.load(vectors)
    docs, queries = spoilt(kept["docs"], kept["queries"], how)
    texts = {
        row["_id"]: f"{row.get('title', '')}\n{row['text']}"
        for row in read(folder / "corpus.jsonl")
    }
    asked = {row["_id"]: row["text"] for row in read(folder / "queries.jsonl")}
    record = MemoryIndexFeed(docs.shape[1])
    ids = record.add(*[texts[str(name)] for name in kept["doc_ids"]])
    record.embed(dict(zip(ids, docs.astype("<f4"), strict=True)))
    by_text = {asked[str(name)]: queries[at] for at, name in enumerate(kept["query_ids"])}
    embedder, clock, found = Known(by_text, docs.shape[1]), SystemClock(), list[bool]()
    with tempfile.TemporaryDirectory() as place, search_executor(1) as pool:
        index = KbIndex.open(Path(place), "kb", record, writable=True, fingerprint=lambda: "known")
        retriever = HybridRetriever(
            lambda _: index, embedder, RetrievalSettings(vector_timeout_ms=30_000), pool
        )
        for text in by_text:
            ctx = RequestContext(
                request_id="r",
                principal=Principal(),
                deadline=Deadline.after(120, clock),
                clock=clock,
            )
            result = await retriever.retrieve(ctx, SearchRequest("kb", text))
            found += [use.found for use in result.uses if use.found is not None]
        index.close()
    return found


def told(found: Sequence[bool], questions: int) -> dict[str, Any]:
    chance = random.Random(SEED)
    limit = LadderSettings().vector.hit_rate
    left = sum(
        sum(chance.choices(found, k=WINDOW)) < limit * WINDOW for _ in range(DRAWS if found else 0)
    )
    return {
        "judged": len(found),
        "share_judged": round(len(found) / questions, 3),
        "hit_rate": round(sum(found) / len(found), 3) if found else None,
        "windows_that_leave": round(left / DRAWS, 4),
    }


async def measure(data: Path, vectors: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in SETS:
        folder = data / "retrieval" / name
        if not (vectors / f"{name}.npz").exists():
            continue
        questions = len(np.load(vectors / f"{name}.npz")["query_ids"])
        result[name] = {
            how: told(await judged(folder, vectors / f"{name}.npz", how), questions)
            for how in ("whole", "shuffled", "other_model", "half")
        }
        print(f"{name} done", file=sys.stderr)
    return result


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--vectors", type=Path, required=True)
    options = arguments.parse_args()
    settings = RetrievalSettings()
    result = {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "seed": SEED,
        "witness_confidence": settings.witness_confidence,
        "early_exit_confidence": settings.early_exit_confidence,
        "sets": asyncio.run(measure(options.data, options.vectors)),
    }
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
