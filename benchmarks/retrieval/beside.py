"""What an early exit costs and finds where documents are in two languages.

    python benchmarks/retrieval/beside.py --data ../shared/data > benchmarks/retrieval/beside.json

Mixed corpora of ``quality.py``: of the questions that leave early, nDCG@10 and recall@5 by words
alone and with what is near the best hit in the other language beside it, the processor time of
both, and what always asking both legs would find. The last corpus holds XQuAD in both languages:
every paragraph stands there twice, and ``both_told`` is the share of questions whose first five
hits hold it in both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from quality import SPEC, CachedEmbedder, embed_sets, fill, load_vectors, read

from forebay.kernel.stages import SearchRequest
from forebay.query.understanding import kind_by_words
from forebay.retrieval import (
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.generation import context
from forebay.testing.index_feed import MemoryIndexFeed

PAIRS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("xquad_zh", ("xquad_en", "drcd_dev")),
    ("xquad_en", ("xquad_zh", "tatqa_dev", "hotpotqa_train100")),
    ("xquad_zh", ("xquad_zh", "tatqa_dev", "hotpotqa_train100")),
    ("xquad_en", ("xquad_en", "drcd_dev")),
    ("tatqa_dev", ("tatqa_dev", "xquad_zh", "drcd_dev")),
    ("xquad_en", ("xquad_en", "xquad_zh")),
    ("xquad_zh", ("xquad_zh", "xquad_en")),
)
SETTINGS = {
    "words alone": RetrievalSettings(early_exit_foreign=0.0),
    "with what is beside": RetrievalSettings(),
    "both legs": RetrievalSettings(early_exit_confidence=2.0),
}


def gains(names: Sequence[str], relevant: set[str]) -> tuple[float, float, float]:
    """nDCG@10, recall@5, and whether a name stands in the first five in two languages."""
    first = list(dict.fromkeys(names))
    places = [1.0 / np.log2(at + 2) for at, name in enumerate(first[:10]) if name in relevant]
    ideal = sum(1.0 / np.log2(at + 2) for at in range(min(10, len(relevant))))
    found = len(relevant & set(first[:5])) / len(relevant)
    same = [name.partition("/")[2] for name in names[:5]]
    twice = any(same.count(name.partition("/")[2]) > 1 for name in relevant)
    return sum(places) / ideal, found, float(twice)


async def measure(data: Path, cache: Path, questions: str, corpora: Sequence[str]) -> Any:
    """One pair: the questions that leave early, searched in each of the three ways."""
    record = MemoryIndexFeed(SPEC.dimensions)
    chosen = read(data, corpora, questions)
    vectors = np.concatenate([load_vectors(data, cache, name, "corpus") for name in corpora])
    names = fill(record, chosen, vectors)
    asked = load_vectors(data, cache, questions, "queries")
    embedder = CachedEmbedder(
        {query["text"]: row for query, row in zip(chosen.queries, asked, strict=True)}
    )
    told: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SETTINGS}
    took: dict[str, float] = dict.fromkeys(SETTINGS, 0.0)
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        ways = {
            name: HybridRetriever(lambda kb: index, embedder, settings, pool)
            for name, settings in SETTINGS.items()
        }
        for query in chosen.queries:
            relevant = chosen.relevant[query["_id"]]
            request = SearchRequest("kb", query["text"], 10, kind=kind_by_words(query["text"]))
            for name, retriever in ways.items():
                begun = time.process_time()
                found = await retriever.retrieve(context(), request)
                spent = time.process_time() - begun
                if name == "words alone" and found.rung != "bm25":
                    break
                ranked = [names[hit.chunk.chunk_id] for hit in found.hits]
                told[name].append(gains(ranked, relevant))
                took[name] += 1000 * spent
        index.close()
    count = len(told["words alone"])
    return {
        "questions": questions,
        "documents": "+".join(corpora),
        "asked": len(chosen.queries),
        "left_early": count,
        **{
            name: {
                "ndcg@10": round(float(np.mean([row[0] for row in rows])), 4),
                "recall@5": round(float(np.mean([row[1] for row in rows])), 4),
                "both_told": round(float(np.mean([row[2] for row in rows])), 4),
                "cpu_ms": round(took[name] / max(1, count), 3),
            }
            for name, rows in told.items()
            if rows
        },
    }


async def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "forebay-bench")
    chosen = parser.parse_args()
    data = chosen.data / "retrieval"
    await embed_sets(data, chosen.cache)
    found = []
    for questions, corpora in PAIRS:
        found.append(await measure(data, chosen.cache, questions, corpora))
        print(found[-1], file=sys.stderr)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
