"""Retrieval quality on the shared sets: words alone, vectors alone, and both, one configuration.

    python benchmarks/retrieval/quality.py --data ../shared/data > benchmarks/retrieval/quality.json

Runs the production retriever. The default model's plain vectors are made once and kept in
``--cache`` (outside the repository); languages are taken off them on loading, as the default
embedder does. recall@10 and MRR@10 are given for all queries and for the half the fusion weights
were not tuned on (``tune.py`` used the other).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.embedding.centering import LanguageMeans, centred
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import EmbedderSpec, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

SETS = ("xquad_en", "xquad_zh", "drcd_dev", "tatqa_dev", "hotpotqa_train100", "scifact_train")
PAIRS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((name, (name,)) for name in SETS),
    ("xquad_zh", ("xquad_en",)),
    ("xquad_en", ("xquad_zh",)),
    ("xquad_zh", ("xquad_en", "drcd_dev")),
    ("xquad_en", ("xquad_zh", "tatqa_dev", "hotpotqa_train100")),
    ("xquad_zh", ("xquad_zh", "tatqa_dev", "hotpotqa_train100")),
    ("xquad_en", ("xquad_en", "drcd_dev")),
    ("tatqa_dev", ("tatqa_dev", "xquad_zh", "drcd_dev")),
)
"""Questions, and the documents they are put to: the first set holds the answers."""
CHINESE = frozenset({"xquad_zh", "drcd_dev"})
PLAIN_BM25 = {
    "scifact_train": (0.924, 0.812),
    "xquad_en": (0.992, 0.953),
    "xquad_zh": (0.992, 0.959),
    "drcd_dev": (0.988, 0.957),
    "tatqa_dev": (0.836, 0.597),
    "hotpotqa_train100": (0.885, 0.842),
}
"""recall@10 and MRR@10 of a plain BM25 over Han bigrams, from the data's own description."""
SPEC = EmbedderSpec("cached", "cached", 384, 512)
Matrix = npt.NDArray[np.float32]


class RetrievalSet(msgspec.Struct, frozen=True):
    """A corpus, questions, and which documents answer each question."""

    documents: list[dict[str, Any]]
    queries: list[dict[str, Any]]
    relevant: dict[str, set[str]]


class CachedEmbedder:
    """Answers with vectors computed before."""

    def __init__(self, vectors: dict[str, Matrix]) -> None:
        self._vectors = vectors

    @property
    def spec(self) -> EmbedderSpec:
        return SPEC

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        rows = np.stack([self._vectors[text] for text in texts])
        return Vectors(tuple(range(len(texts))), SPEC.dimensions, rows.tobytes())


def read(data: Path, corpora: Sequence[str], questions: str) -> RetrievalSet:
    """Read documents, and the questions of a set whose answers are in the first corpus."""
    relevant: dict[str, set[str]] = {}
    for line in (data / questions / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(query, set()).add(f"{corpora[0]}/{document}")
    documents = [
        {**row, "_id": f"{name}/{row['_id']}", "language": "zh" if name in CHINESE else "en"}
        for name in corpora
        for row in lines(data / name / "corpus.jsonl")
    ]
    return RetrievalSet(
        documents,
        [q for q in lines(data / questions / "queries.jsonl") if q["_id"] in relevant],
        relevant,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(row: dict[str, Any]) -> str:
    """What is embedded of a document or a question."""
    return "\n".join(filter(None, (row.get("title", ""), row["text"])))


def load_vectors(data: Path, cache: Path, name: str, file: str) -> Matrix:
    """The cached plain vectors of one file, languages taken off as the default embedder does."""
    rows = np.load(cache / f"{name}.{file}.npy").astype(np.float32)
    means = LanguageMeans.shipped()
    kind: Any = "query" if file == "queries" else "passage"
    texts = [text_of(row) for row in lines(data / name / f"{file}.jsonl")]
    return centred(rows, np.stack([means.mean(text, kind) for text in texts]))


async def embed_sets(data: Path, cache: Path) -> None:
    """Embed what the cache does not have yet; minutes for the largest set."""
    from forebay.embedding.opening import open_plain_e5
    from forebay.embedding.settings import EmbeddingSettings

    wanted = [
        (name, kind, file)
        for name in SETS
        for kind, file in (("query", "queries"), ("passage", "corpus"))
        if not (cache / f"{name}.{file}.npy").exists()
    ]
    if not wanted:
        return
    cache.mkdir(parents=True, exist_ok=True)
    embedder = await open_plain_e5(EmbeddingSettings(), cache=cache / "models", clock=SystemClock())
    for name, kind, file in wanted:
        texts = [text_of(row) for row in lines(data / name / f"{file}.jsonl")]
        asked: Any = kind
        parts = [
            (await embedder.embed(texts[at : at + 256], kind=asked)).data
            for at in range(0, len(texts), 256)
        ]
        matrix = np.frombuffer(b"".join(parts), "<f4").reshape(len(texts), -1)
        np.save(cache / f"{name}.{file}.npy", matrix.astype(np.float16))
        print(f"embedded {name} {file}: {len(texts)}", file=sys.stderr)
    await embedder.close()


def fill(record: MemoryIndexFeed, chosen: RetrievalSet, vectors: Matrix) -> dict[int, str]:
    """Put documents, one chunk each, into a record; returns their names by chunk."""
    names: dict[int, str] = {}
    for document in chosen.documents:
        [chunk_id] = record.add(
            document["text"],
            document=document["_id"],
            title=document.get("title", ""),
            language=document["language"],
        )
        names[chunk_id] = document["_id"]
    record.embed(dict(zip(names, vectors, strict=True)))
    return names


def score(ranked: Sequence[str], relevant: set[str]) -> tuple[float, float]:
    """Return recall@10 and the reciprocal rank of the first relevant document in ten."""
    first = next((1 / place for place, d in enumerate(ranked, 1) if d in relevant), 0.0)
    return len(set(ranked) & relevant) / len(relevant), first


async def measure(
    data: Path, cache: Path, corpora: Sequence[str], questions: str
) -> dict[str, Any]:
    """Measure the three ways on one set of questions and the documents they are put to."""
    chosen = read(data, corpora, questions)
    vectors = np.concatenate([load_vectors(data, cache, name, "corpus") for name in corpora])
    all_queries = lines(data / questions / "queries.jsonl")
    asked = load_vectors(data, cache, questions, "queries")
    embedder = CachedEmbedder({q["text"]: row for q, row in zip(all_queries, asked, strict=True)})
    record = MemoryIndexFeed(SPEC.dimensions)
    names = fill(record, chosen, vectors)
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        # Both legs always: what leaving early costs is early_exit.py's matter.
        settings = RetrievalSettings(early_exit_confidence=2.0)
        retriever = HybridRetriever(lambda kb: index, embedder, settings, pool)
        rows = []
        for query in chosen.queries:
            ranked = await three_ways(index, retriever, embedder, query["text"])
            held_out = zlib.crc32(query["text"].encode()) % 2 == 1
            found = [
                score([names[i] for i in ids], chosen.relevant[query["_id"]]) for ids in ranked
            ]
            rows.append((held_out, found))
        index.close()
    return summary("+".join(corpora), questions, rows)


async def three_ways(
    index: KbIndex, retriever: HybridRetriever, embedder: CachedEmbedder, text: str
) -> tuple[list[int], list[int], list[int]]:
    """Return the first ten by words, by vectors, and by both."""
    snapshot = index.snapshot()
    words = snapshot.lexical.search(snapshot.lexical.parse(text), (), 10).ids.tolist()
    vector = np.frombuffer((await embedder.embed([text], kind="query")).data, "<f4")
    nearest = snapshot.search_vectors(vector[None], 10, ())[0].tolist()
    clock = SystemClock()
    context = RequestContext(
        request_id="b", principal=Principal(), deadline=Deadline.after(60, clock), clock=clock
    )
    result = await retriever.retrieve(context, SearchRequest(kb="kb", query=text, top_k=10))
    return words, nearest, [hit.chunk.chunk_id for hit in result.hits]


def summary(documents: str, questions: str, rows: list[tuple[bool, Any]]) -> dict[str, Any]:
    """Average, for all queries and for the held-out half."""
    result: dict[str, Any] = {"documents": documents, "questions": questions}
    for name, chosen in (
        ("all", [found for _, found in rows]),
        ("held_out", [found for held_out, found in rows if held_out]),
    ):
        means = np.asarray(chosen).mean(axis=0)
        result[name] = {
            "queries": len(chosen),
            **{
                leg: {
                    "recall@10": round(float(means[i][0]), 4),
                    "mrr@10": round(float(means[i][1]), 4),
                }
                for i, leg in enumerate(("bm25", "dense", "hybrid"))
            },
        }
    return result


def verdict(results: list[dict[str, Any]], part: str) -> dict[str, Any]:
    """Compare with the figures to reach."""
    own = [r for r in results if r["documents"] == r["questions"]]
    answer: dict[str, Any] = {}
    for metric in ("recall@10", "mrr@10"):
        means = {
            leg: round(float(np.mean([r[part][leg][metric] for r in own])), 4)
            for leg in ("bm25", "dense", "hybrid")
        }
        behind = {
            f"{r['questions']} on {r['documents']}": round(
                r[part]["hybrid"][metric] - max(r[part]["bm25"][metric], r[part]["dense"][metric]),
                4,
            )
            for r in results
        }
        answer[metric] = {
            "mean": means,
            "better_on_the_mean": bool(means["hybrid"] > max(means["bm25"], means["dense"])),
            "against_the_better_leg": behind,
            "within_0.01_everywhere": min(behind.values()) >= -0.01,
        }
    return answer


async def main() -> None:
    """Measure every pair and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    arguments = parser.parse_args()
    data, cache = arguments.data / "retrieval", arguments.cache
    await embed_sets(data, cache)
    results = []
    for questions, corpora in PAIRS:
        results.append(await measure(data, cache, corpora, questions))
        print(f"{questions} on {'+'.join(corpora)}: {results[-1]['all']}", file=sys.stderr)
    own = {r["documents"]: r["all"]["bm25"] for r in results if r["documents"] == r["questions"]}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    report = {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "commit": commit,
        "plain_bm25_reached": {
            name: own[name]["recall@10"] >= round(plain[0], 4)
            and own[name]["mrr@10"] >= round(plain[1], 4)
            for name, plain in PLAIN_BM25.items()
        },
        "verdict_all": verdict(results, "all"),
        "verdict_held_out": verdict(results, "held_out"),
        "sets": results,
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    asyncio.run(main())
