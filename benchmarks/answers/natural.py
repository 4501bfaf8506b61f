"""Natural near misses: XQuAD's questions whose own passage was taken out of what was found.

    python benchmarks/answers/natural.py --data ../shared/data > benchmarks/answers/natural.json

Every question goes through the production retriever (five hits), in both languages and across, and
its hits to the extractive generator. Then the passage that answers is taken out: what is left
tells of the same things and does not answer. Questions whose answer stands in what is left all the
same are not counted there. ``held_out``: questions the constants were not fitted on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "extractive"), str(HERE.parent / "retrieval")]

from measure import (  # noqa: E402
    SPEC,
    context,
    embed,
    fill_corpus,
    half,
    lines,
    open_embedder,
)

from forebay.context import language_of  # noqa: E402
from forebay.embedding.settings import EmbeddingSettings  # noqa: E402
from forebay.generation import ExtractiveGenerator  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.documents import Hit  # noqa: E402
from forebay.kernel.stages import (  # noqa: E402
    Embedder,
    GenerationRequest,
    Sampling,
    SearchRequest,
)
from forebay.retrieval import (  # noqa: E402
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.embedding import WordCounter  # noqa: E402
from forebay.testing.index_feed import MemoryIndexFeed  # noqa: E402

SETS = ("xquad_en", "xquad_zh")
Asked = tuple[str, frozenset[str], tuple[str, ...]]
"""A question, the documents that answer it, and the answers in those documents' language."""


def questions(data: Path, asked: str, corpus: str) -> list[Asked]:
    """The questions of one language over the documents of another; identifiers are the same."""
    rows = lines(data / "retrieval" / asked / "queries.jsonl")
    theirs = {r["_id"]: r for r in lines(data / "retrieval" / corpus / "queries.jsonl")}
    gold: dict[str, set[str]] = {}
    relevant = (data / "retrieval" / corpus / "qrels.tsv").read_text(encoding="utf-8")
    for line in relevant.splitlines()[1:]:
        question, document, _ = line.split("\t")
        gold.setdefault(question, set()).add(document)
    return [
        (
            row["text"],
            frozenset(gold[row["_id"]]),
            tuple(theirs[row["_id"]]["metadata"]["answers"]),
        )
        for row in rows
    ]


async def ask(data: Path, cache: Path, embedder: Embedder) -> list[dict[str, Any]]:
    """Put every question to both corpora, and say what came of it."""
    found = []
    for corpus in SETS:
        record = MemoryIndexFeed(SPEC.dimensions)
        await fill_corpus(record, corpus, data, cache, embedder)
        with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
            index = KbIndex.open(
                Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
            )
            for asked in SETS:
                rows = questions(data, asked, corpus)
                vectors = await embed((question for question, _, _ in rows), embedder)
                retriever = HybridRetriever(
                    lambda kb, index=index: index, vectors, RetrievalSettings(), pool
                )
                hits = [
                    (await retriever.retrieve(context(), SearchRequest(kb="kb", query=row[0]))).hits
                    for row in rows
                ]
                found.append({"questions": asked, "documents": corpus, **summary(rows, hits)})
            index.close()
    return found


def summary(rows: list[Asked], found: list[tuple[Hit, ...]]) -> dict[str, Any]:
    """Rates of one set of questions over one corpus."""
    generator = ExtractiveGenerator(WordCounter())
    given: list[tuple[bool, bool, int]] = []
    near: list[tuple[bool, int]] = []
    took = []
    for (question, gold, answers), hits in zip(rows, found, strict=True):
        begun = time.perf_counter()
        refused, text = answer(generator, question, hits)
        took.append(1000 * (time.perf_counter() - begun))
        right = any(one in text for one in answers)
        given.append((refused, right, half(question)))
        left = tuple(h for h in hits if h.chunk.document_id.split("/")[-1] not in gold)
        if not any(one in hit.chunk.text for one in answers for hit in left):
            near.append((not answer(generator, question, left)[0], half(question)))
    return {
        "count": len(given),
        "refused": share(refused for refused, _, _ in given),
        "refused_held_out": share(refused for refused, _, part in given if part),
        "answer_in_quotation_of_all": share(right for _, right, _ in given),
        "near_misses": len(near),
        "near_miss_answered": share(answered for answered, _ in near),
        "near_miss_answered_held_out": share(answered for answered, part in near if part),
        "ms_median": round(float(np.median(took)), 3),
        "ms_p99": round(float(np.percentile(took, 99)), 3),
    }


def share(hits: Any) -> float:
    """The share of true ones."""
    return round(float(np.mean(list(hits))), 4)


def answer(
    generator: ExtractiveGenerator, question: str, hits: tuple[Hit, ...]
) -> tuple[bool, str]:
    """Whether it was refused, and the text."""
    draft = generator.draft(
        GenerationRequest(
            question=question,
            language=language_of(question),
            messages=(),
            passages=hits,
            sampling=Sampling(),
            max_output_tokens=1024,
            prompt_tokens=0,
        )
    )
    return draft.refused, "".join(draft.pieces)


async def main() -> None:
    """Ask, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "forebay-bench")
    chosen = parser.parse_args()
    embedder = await open_embedder(
        EmbeddingSettings(), cache=chosen.cache / "models", clock=SystemClock()
    )
    if embedder is None:
        raise SystemExit("no embedder is configured")
    found = await ask(chosen.data, chosen.cache, embedder)
    await embedder.close()
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    asyncio.run(main())
