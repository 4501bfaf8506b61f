"""Search over 100,000 chunks: latency at rest and beside ingest, recall, restart, memory.

    python benchmarks/retrieval/speed.py --data ../shared/data > benchmarks/retrieval/speed.json

Chunks are seeded: vectors of real passages plus noise, texts by recombining their sentences.
The store and its index are built once into ``--cache`` (outside the repository). Everything that
is measured runs in one process pinned to one core; queries come at a fixed 50 a second whether
or not earlier ones are done, and their vectors are given (search after embedding).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faiss
import msgspec
import numpy as np
import numpy.typing as npt
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from quality import SETS, SPEC, CachedEmbedder, embed_sets, lines

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkDraft, DocumentDraft, Vectors
from forebay.kernel.stages import SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.store import StoreWriter

SEED = 7
CHUNKS_PER_DOCUMENT = 5
QUERIES_PER_S = 50
DOCUMENTS_PER_S = 10
NOISE = 0.3
"""Length of the noise against a unit vector: a copy has a cosine of .96, as a paraphrase has."""
Matrix = npt.NDArray[np.float32]


class Material(msgspec.Struct, frozen=True):
    """Sentences and vectors of real passages, by language, and real questions."""

    sentences: tuple[list[str], list[str]]
    vectors: tuple[Matrix, Matrix]
    questions: list[str]
    question_vectors: Matrix


def load(data: Path, cache: Path) -> Material:
    """Read what chunks and queries are made of."""
    texts: tuple[list[str], list[str]] = ([], [])
    vectors: tuple[list[Matrix], list[Matrix]] = ([], [])
    questions: list[str] = []
    asked: list[Matrix] = []
    for name in SETS:
        chinese = int(name in ("xquad_zh", "drcd_dev"))
        for row in lines(data / name / "corpus.jsonl"):
            parts = re.split(r"(?<=[.!?。！？])\s*", row["text"])
            texts[chinese].extend(part for part in parts if len(part) > 8)
        vectors[chinese].append(np.load(cache / f"{name}.corpus.npy").astype(np.float32))
        rows = lines(data / name / "queries.jsonl")[:200]
        questions += [row["text"] for row in rows]
        asked.append(np.load(cache / f"{name}.queries.npy")[: len(rows)].astype(np.float32))
    return Material(
        texts,
        (np.concatenate(vectors[0]), np.concatenate(vectors[1])),
        questions,
        np.concatenate(asked),
    )


def documents(material: Material, first: int, count: int) -> Iterator[tuple[DocumentDraft, Matrix]]:
    """Make documents by number: the same number always gives the same document."""
    for number in range(first, first + count):
        chance, draw = random.Random(SEED * 10**9 + number), np.random.default_rng((SEED, number))
        chinese = int(number % 4 == 0)
        texts = [
            " ".join(chance.choices(material.sentences[chinese], k=chance.randint(3, 6)))
            for _ in range(CHUNKS_PER_DOCUMENT)
        ]
        drafts, at = [], 0
        for ordinal, text in enumerate(texts):
            drafts.append(ChunkDraft(ordinal, at, at + len(text), text, len(text) // 4))
            at += len(text) + 1
        pool = material.vectors[chinese]
        rows = pool[draw.integers(len(pool), size=CHUNKS_PER_DOCUMENT)]
        noise = draw.standard_normal(rows.shape).astype(np.float32)
        noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        rows = rows + noise
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        draft = DocumentDraft(
            f"doc-{number:07d}",
            f"doc-{number:07d}.md",
            f"{number:064d}",
            texts[0][:40],
            "\n".join(texts),
            tuple(drafts),
            language="zh" if chinese else "en",
            groups=("staff",) if number % 10 == 0 else (),
        )
        yield draft, rows.astype("<f4")


def store_vectors(store: StoreWriter, since: int, rows: Matrix) -> None:
    """Store vectors of the chunks added after ``since``, in order."""
    ids = store.reader.changes("kb", since).added
    vectors = Vectors(ids, SPEC.dimensions, rows.tobytes())
    store.store_vectors("kb", vectors, SPEC.fingerprint)


def open_index(folder: Path, store: StoreWriter) -> KbIndex:
    """Open the index beside the record."""
    return KbIndex.open(
        folder / "index",
        "kb",
        store.reader,
        writable=True,
        settings=RetrievalSettings(),
        fingerprint=lambda: SPEC.fingerprint,
    )


def prepare(material: Material, folder: Path, chunks: int) -> dict[str, Any]:
    """Build store and index of ``chunks`` chunks; minutes, mostly for the graph."""
    shutil.rmtree(folder, ignore_errors=True)
    store = StoreWriter(folder)
    per_commit = 200
    for first in range(0, chunks // CHUNKS_PER_DOCUMENT, per_commit):
        made = list(documents(material, first, per_commit))
        before = store.reader.version("kb") if first else 0
        store.commit("kb", [draft for draft, _ in made], [])
        store_vectors(store, before, np.concatenate([rows for _, rows in made]))
    began = time.perf_counter()
    index = open_index(folder, store)
    opened_s = time.perf_counter() - began
    began = time.perf_counter()
    while index.maintain(force=True):
        pass
    built_s = time.perf_counter() - began
    index.close()
    store.close()
    return {"lexical_and_deltas_s": round(opened_s, 1), "graph_s": round(built_s, 1)}


def resident() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return milliseconds."""
    ms = np.asarray(seconds) * 1000
    return {f"p{p:g}_ms": round(float(np.percentile(ms, p)), 2) for p in (50, 95, 99, 100)} | {
        "count": len(seconds)
    }


def raw_bytes(store: StoreWriter) -> dict[str, int]:
    """Count text as UTF-8 and vectors as float32."""
    ids = store.reader.changes("kb", 0).added
    text = 0
    for at in range(0, len(ids), 1000):
        text += sum(len(row.text.encode()) for row in store.reader.rows("kb", ids[at : at + 1000]))
    return {"chunks": len(ids), "text": text, "vectors": len(ids) * SPEC.dimensions * 4}


async def search_at_rate(
    retriever: HybridRetriever, material: Material, seconds: float, groups: frozenset[str] | None
) -> list[float]:
    """Ask at a fixed rate; return each query's time from when it was due."""
    taken: list[float] = []
    clock = SystemClock()

    async def one(number: int, due: float) -> None:
        context = RequestContext(
            request_id="b",
            principal=Principal(groups=groups),
            deadline=Deadline.after(10, clock),
            clock=clock,
        )
        question = material.questions[(number * 37) % len(material.questions)]
        result = await retriever.retrieve(context, SearchRequest(kb="kb", query=question, top_k=10))
        taken.append(time.perf_counter() - due)
        assert not context.degradations, context.degradations
        assert result.hits

    async with asyncio.TaskGroup() as tasks:
        began = time.perf_counter()
        for number in range(int(seconds * QUERIES_PER_S)):
            due = began + number / QUERIES_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(number, due))
    return taken


class Ingest:
    """Inserts documents at a fixed rate, embeds them once a second, and keeps the index up."""

    def __init__(self, store: StoreWriter, index: KbIndex, material: Material, first: int) -> None:
        self._store = store
        self._index = index
        self._material = material
        self._next = first
        self._stop = threading.Event()
        self.searchable: list[float] = []
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._insert, self._maintain)
        ]

    def __enter__(self) -> Ingest:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        faiss.omp_set_num_threads(1)
        try:
            work()
        except BaseException as error:  # reported by the caller
            self.failures.append(error)

    def _insert(self) -> None:
        waiting: list[Matrix] = []
        since = self._store.reader.version("kb")
        began = time.perf_counter()
        count = 0
        while not self._stop.is_set():
            [(draft, rows)] = documents(self._material, self._next, 1)
            self._next += 1
            due = began + count / DOCUMENTS_PER_S
            count += 1
            if self._stop.wait(max(0.0, due - time.perf_counter())):
                return
            started = time.perf_counter()
            version = self._store.commit("kb", [draft], []).version
            self._index.refresh()
            assert self._index.snapshot().version >= version
            self.searchable.append(time.perf_counter() - started)
            waiting.append(rows)
            if len(waiting) == DOCUMENTS_PER_S:
                store_vectors(self._store, since, np.concatenate(waiting))
                self._index.refresh()
                since, waiting = self._store.reader.version("kb"), []

    def _maintain(self) -> None:
        while not self._stop.wait(1.0):
            self._index.maintain()


def recall(index: KbIndex, material: Material, store: StoreWriter) -> dict[str, float]:
    """Compare the vector leg's first ten with those of a scan over every stored vector."""
    ids = np.asarray(store.reader.changes("kb", 0).embedded)
    parts = []
    for at in range(0, len(ids), 5000):
        found = store.reader.vectors("kb", ids[at : at + 5000].tolist())
        parts.append(np.frombuffer(found.data, "<f4").reshape(len(found.ids), -1))
    flat = faiss.IndexFlatIP(SPEC.dimensions)
    for part in parts:
        flat.add(np.ascontiguousarray(part))
    chosen = material.question_vectors[::3]
    _, rows = flat.search(chosen, 10)
    hits = 0
    for query, best in zip(chosen, rows, strict=True):
        found_ids, _ = index.snapshot().search_vectors(query[None], 50, ())
        hits += len(set(found_ids[:10].tolist()) & set(ids[best].tolist()))
    return {"recall@10": round(hits / (10 * len(chosen)), 4), "queries": len(chosen)}


async def measure(material: Material, folder: Path, seconds: float, base: int) -> dict[str, Any]:
    """Open, search at rest, search beside ingest; all on one core."""
    before = resident()
    began = time.perf_counter()
    store = StoreWriter(folder)
    index = open_index(folder, store)
    with search_executor(2) as pool:
        retriever = HybridRetriever(
            lambda kb: index,
            CachedEmbedder(dict(zip(material.questions, material.question_vectors, strict=True))),
            RetrievalSettings(),
            pool,
        )
        await search_at_rate(retriever, material, 0.1, None)
        ready_s = time.perf_counter() - began
        result: dict[str, Any] = {"restart_to_ready_s": round(ready_s, 2)}
        await search_at_rate(retriever, material, 5, None)
        cpu = time.process_time()
        result["at_rest"] = percentiles(await search_at_rate(retriever, material, seconds, None))
        asked = int(seconds * QUERIES_PER_S)
        result["cpu_ms_per_query"] = round(1000 * (time.process_time() - cpu) / asked, 2)
        grown = resident() - before
        raw = raw_bytes(store)
        result["memory"] = {
            "process_base_mb": round(base / 1e6),
            "index_and_text_mb": round(grown / 1e6),
            "raw_mb": round((raw["text"] + raw["vectors"]) / 1e6),
            "resident_to_raw": round(grown / (raw["text"] + raw["vectors"]), 2),
            **raw,
        }
        result["recall"] = recall(index, material, store)
        result["with_groups"] = percentiles(
            await search_at_rate(retriever, material, seconds / 3, frozenset({"other"}))
        )
        first = raw["chunks"] // CHUNKS_PER_DOCUMENT
        with Ingest(store, index, material, first) as ingest:
            await search_at_rate(retriever, material, 3, None)
            ingest.searchable.clear()
            beside = await search_at_rate(retriever, material, seconds, None)
        if ingest.failures:
            raise ingest.failures[0]
        result["beside_ingest"] = percentiles(beside)
        result["insert_to_searchable"] = percentiles(ingest.searchable)
        again = percentiles(await search_at_rate(retriever, material, seconds, None))
        result["at_rest_again"] = again
        rest = (result["at_rest"]["p99_ms"] + again["p99_ms"]) / 2
        result["p99_beside_ingest_to_rest"] = round(result["beside_ingest"]["p99_ms"] / rest, 2)
        result["index"] = index.statistics()
    index.close()
    store.close()
    return result


def main() -> None:
    """Build when needed, measure in a copy, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    data, cache = arguments.data / "retrieval", arguments.cache
    asyncio.run(embed_sets(data, cache))
    material = load(data, cache)
    folder = cache / f"store-{arguments.chunks}"
    built = None
    if not (folder / "built.json").exists():
        built = prepare(material, folder, arguments.chunks)
        (folder / "built.json").write_text(json.dumps(built))
    work = cache / "store-in-use"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.setswitchinterval(0.0005)  # as a server sets it: a search never waits 5 ms for the lock
    with ThreadPoolExecutor(1) as warm:
        warm.submit(faiss.omp_set_num_threads, 1).result()
    result = asyncio.run(measure(material, work, arguments.seconds, resident()))
    shutil.rmtree(work, ignore_errors=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    report = {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
        f", {os.cpu_count()} cores, one used",
        "load_before": round(os.getloadavg()[0], 1),
        "commit": commit,
        "seed": SEED,
        "build": json.loads((folder / "built.json").read_text()),
        **result,
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
