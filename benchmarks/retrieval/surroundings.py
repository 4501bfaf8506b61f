"""Whether a prompt holds the answer more often with text around fewer hits or with more hits.

    python benchmarks/retrieval/surroundings.py --data ../shared/data --chunk-tokens 256 \
        > benchmarks/retrieval/surroundings.json

Paragraphs of four sets are joined to long documents (by title, or so many in a row), cut by the
production chunker, embedded, stored and searched by the production retriever. For each budget of
passage tokens, hits alone fill it, or hits fill a share of it and what stands around them the rest.
A prompt holds the answer when one of the gold answers is a part of its passages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

from quality import CachedEmbedder, lines, load_vectors

from forebay.app.settings import load_settings, model_cache
from forebay.context.settings import ContextSettings
from forebay.context.surroundings import Surroundings
from forebay.embedding.opening import open_embedder
from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Block, DocumentDraft, Extracted, Hit, Vectors
from forebay.kernel.stages import SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.store import StoreWriter

JOINED = {"xquad_en": 0, "drcd_dev": 0, "tatqa_dev": 10, "hotpotqa_train100": 20}
"""Paragraphs of a document; 0: all of one title."""
DOCUMENTS_MAX = 50
QUESTIONS_MAX = 300
BUDGETS = (400, 800, 1200)
SHARES = (0.25, 0.5, 0.75)
"""Of the budget, for hits; what stands around them has the rest."""
Matrix = npt.NDArray[np.float32]
T = TypeVar("T")


def batched(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Parts of so many items."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def joined(data: Path, name: str) -> list[tuple[Extracted, set[str]]]:
    """Long documents, each with the ids of its paragraphs."""
    rows = lines(data / name / "corpus.jsonl")
    size = JOINED[name]
    if size:
        parts = list(batched(rows, size))
    else:
        rows.sort(key=lambda row: row["title"])
        parts = [list(part) for _, part in groupby(rows, key=lambda row: row["title"])]
        parts.sort(key=len, reverse=True)
    made = []
    for part in parts[:DOCUMENTS_MAX]:
        text, blocks = "", []
        for row in part:
            for paragraph in row["text"].split("\n"):
                blocks.append(Block("paragraph", len(text), len(text) + len(paragraph)))
                text += paragraph + "\n"
        title = part[0]["title"] if not size else ""
        extracted = Extracted(text, tuple(blocks), "text/plain", title=title)
        made.append((extracted, {row["_id"] for row in part}))
    return made


def fill(store: StoreWriter, documents: Sequence[Extracted], chunk_tokens: int) -> list[str]:
    """Store documents; returns what is embedded of their chunks, in order."""
    settings = ChunkSettings(chunk_tokens, chunk_tokens * 48 // 256, chunk_tokens // 8)
    chunker = StructureChunker(settings, EstimatedTokenCounter())
    drafts, texts = [], []
    for number, extracted in enumerate(documents):
        chunks = chunker.chunk(extracted)
        name = f"d{number:04d}"
        drafts.append(
            DocumentDraft(name, name, name, extracted.title, extracted.text, tuple(chunks))
        )
        texts += ["\n".join(filter(None, (extracted.title, chunk.text))) for chunk in chunks]
    store.commit("kb", drafts, [])
    return texts


async def embed(texts: Sequence[str], kept: Path) -> Matrix:
    """Vectors of the default embedder, made once."""
    if kept.exists():
        found: Matrix = np.load(kept)
        if len(found) == len(texts):
            return found
    settings, _ = load_settings(None, {}, {})
    cache = model_cache(settings)
    embedder = await open_embedder(settings.embedding, cache=cache, clock=SystemClock())
    assert embedder is not None
    parts = [(await embedder.embed(part, kind="passage")).data for part in batched(texts, 32)]
    await embedder.close()
    made = np.frombuffer(b"".join(parts), "<f4").reshape(len(texts), -1)
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, made)
    return made


def taken(hits: Sequence[Hit], tokens: float) -> list[Hit]:
    """The best hits that fit, one at least."""
    kept: list[Hit] = []
    for hit in hits:
        tokens -= hit.chunk.tokens
        if kept and tokens < 0:
            break
        kept.append(hit)
    return kept


def holds(passages: Sequence[Hit], answers: Sequence[str]) -> bool:
    """Whether a gold answer is a part of a passage."""
    shown = ["".join(hit.chunk.text.split()).casefold() for hit in passages]
    return any("".join(answer.split()).casefold() in text for answer in answers for text in shown)


def prompts(store: StoreWriter, hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Passages under each budget, with and without what stands around."""
    made = {}
    for budget in BUDGETS:
        made[f"{budget} hits alone"] = taken(hits, budget)
        for share in SHARES:
            kept = taken(hits, budget * share)
            left = max(0, budget - sum(hit.chunk.tokens for hit in kept))
            settings = ContextSettings(
                max_passages=100, surrounding_tokens=left, surrounding_chunks=4
            )
            wide = Surroundings(store.reader, settings).widen("kb", kept)
            made[f"{budget} hits {share:g}"] = list(wide)
    return made


async def measure(data: Path, cache: Path, name: str, chunk_tokens: int) -> dict[str, Any]:
    """One set: shares of questions whose prompt holds the answer, and tokens of a prompt."""
    documents = joined(data, name)
    inside = set[str]().union(*(ids for _, ids in documents))
    qrels = [line.split("\t") for line in (data / name / "qrels.tsv").read_text().splitlines()[1:]]
    wanted = {query for query, document, grade in qrels if int(grade) > 0 and document in inside}
    rows = lines(data / name / "queries.jsonl")
    asked = load_vectors(data, cache, name, "queries").astype(np.float32)
    vectors = {row["text"]: vector for row, vector in zip(rows, asked, strict=True)}
    questions = sorted(
        (row for row in rows if row["_id"] in wanted and len(row["metadata"]["answers"][0]) > 2),
        key=lambda row: zlib.crc32(row["text"].encode()),
    )[:QUESTIONS_MAX]
    embedder = CachedEmbedder(vectors)
    found: dict[str, list[tuple[bool, int]]] = {}
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        store = StoreWriter(Path(folder) / "store")
        texts = fill(store, [document for document, _ in documents], chunk_tokens)
        made = await embed(texts, cache / f"joined.{name}.{chunk_tokens}.npy")
        ids = store.reader.changes("kb", 0).added
        store.store_vectors(
            "kb",
            Vectors(ids, made.shape[1], made.astype("<f4").tobytes()),
            embedder.spec.fingerprint,
        )
        index = KbIndex.open(
            Path(folder) / "index",
            "kb",
            store.reader,
            writable=True,
            fingerprint=lambda: embedder.spec.fingerprint,
        )
        retriever = HybridRetriever(lambda kb: index, embedder, RetrievalSettings(), pool)
        for question in questions:
            hits = await ask(retriever, question["text"])
            for way, passages in prompts(store, hits).items():
                tokens = sum(EstimatedTokenCounter().count(hit.chunk.text) for hit in passages)
                right = holds(passages, question["metadata"]["answers"])
                found.setdefault(way, []).append((right, tokens))
        index.close()
        store.close()
    shown = {
        way: {
            "holds": round(float(np.mean([right for right, _ in each])), 4),
            "tokens": round(float(np.mean([tokens for _, tokens in each]))),
        }
        for way, each in found.items()
    }
    return {"documents": len(documents), "chunks": len(texts), "questions": len(questions), **shown}


async def ask(retriever: HybridRetriever, text: str) -> tuple[Hit, ...]:
    """The best thirty hits."""
    clock = SystemClock()
    context = RequestContext(
        request_id="b", principal=Principal(), deadline=Deadline.after(60, clock), clock=clock
    )
    found = await retriever.retrieve(context, SearchRequest(kb="kb", query=text, top_k=30))
    return found.hits


async def main() -> None:
    """Measure every set, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--chunk-tokens", type=int, nargs="*", default=[256, 96])
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    }
    for tokens in arguments.chunk_tokens:
        for name in JOINED:
            found = await measure(arguments.data / "retrieval", arguments.cache, name, tokens)
            report[f"{name}, chunks of {tokens}"] = found
            print(tokens, name, found, file=sys.stderr, flush=True)
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    asyncio.run(main())
