"""Hybrid search with early exit under load: 100,000 chunks on one core, queries really embedded.

    python benchmarks/retrieval/load.py --data ../shared/data > benchmarks/retrieval/load.json

Vectors, and so the graph, are those of ``speed.py``: of real passages, plus noise. Texts are not:
there sentences stand in twenty chunks each, so that no word hit leads the next. Here each real
passage stands once, in the first chunk that has its vector, and all other texts are made of the
passages' words by how they follow each other in pairs. Questions of the public sets arrive as a
seeded Poisson process, whether or not earlier ones are done; a time is counted from the moment a
question was due. Two loads: 60 a second, each question asked once (all cold); 100 a second, with
so many asked again that early exits and remembered vectors together are two in five or more.
Nothing that was found is kept (no L2). The shares that left early and that found their vector
remembered are printed.

``--rerank light``: what both legs found is ordered anew by the shipped light reranker, thirty
candidates, as a server with ``rerank.backend = "light"`` does. Questions are told their kind by
their words, as a server's are, so that those that want several documents do not leave early.
One thread searches and embeds, as is fitting for one core (``retrieval.embed_in_line``,
``store.reader_threads`` and ``embedding.workers`` 1, ``embedding.query_workers`` 0; the defaults
are for more cores). The loop and the garbage collector are set as a server sets its own, and term
counts are read ahead.
``stages_ms`` is where a question's time went on the mean, waiting left out; ``asked`` says what was
wanted of each load and whether it was reached.

``--before-others``: on a machine that does other work, the scheduler gives the core to this process
whenever it wants it (real-time class, as root; the loop before the threads that search). Memory and
its caches are shared all the same, so that everything costs more than on a quiet machine.

``--replay``: on a machine that does other work, times say nothing. Then questions are asked one
after the other, and their processor times wait in turn for one core, as they would have come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from quality import CHINESE, SETS, SPEC, embed_sets, lines
from speed import (
    CHUNKS_PER_DOCUMENT,
    Material,
    Matrix,
    load,
    open_index,
    percentiles,
    recall,
    store_vectors,
)
from speed import SEED as SPEED_SEED
from speed import documents as plain_documents

from forebay.app.composition import run_loop
from forebay.app.latency import settle_memory
from forebay.app.reading_ahead import AT_ONCE
from forebay.app.settings import load_settings, model_cache
from forebay.cache.embeddings import CachedEmbedder
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.settings import EmbeddingTierSettings
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkDraft, DocumentDraft, Vectors
from forebay.kernel.errors import PartFailed
from forebay.kernel.stages import Embedder, Retriever, SearchRequest, in_line
from forebay.pipeline.reranking import RerankingParts, RerankingRetriever, RerankingSettings
from forebay.query.kinded import with_kind
from forebay.rerank.light import LightModel
from forebay.retrieval import HybridRetriever, RetrievalSettings, WordsRetriever, search_executor
from forebay.store import StoreWriter

SEED = 11
P99_MS, SHARE, RECALL = 41.0, 0.4, 0.99
"""What is asked of both loads, of the second, and of the vectors (F2.10 and ours)."""
AGAIN = 0.35
"""Of the questions of the second load, so many were asked before."""


class Texts:
    """The text of each chunk, in order, by the row of the passage its vector is made of."""

    def __init__(self, data: Path) -> None:
        self._passages: tuple[list[str], list[str]] = ([], [])
        for name in SETS:
            own = self._passages[name in CHINESE]
            own += [row["text"] for row in lines(data / name / "corpus.jsonl")]
        self._follow: list[dict[str, list[str]]] = [{}, {}]
        for chinese, passages in enumerate(self._passages):
            follow = self._follow[chinese]
            for text in passages:
                units = list(text) if chinese else text.split()
                for one, next_one in pairwise(units):
                    follow.setdefault(one, []).append(next_one)
        self._told: tuple[set[int], set[int]] = (set(), set())

    def of(self, chance: random.Random, chinese: bool, row: int) -> str:
        """The passage itself, the first time; else a walk from word to word."""
        told = self._told[chinese]
        if row not in told:
            told.add(row)
            return self._passages[chinese][row]
        follow = self._follow[chinese]
        unit = chance.choice(self._passages[chinese][row].split() or [""])
        unit = unit[:1] if chinese else unit
        walk = [unit]
        for _ in range(chance.randint(150, 300) if chinese else chance.randint(60, 120)):
            unit = chance.choice(follow.get(unit) or walk)
            walk.append(unit)
        return ("" if chinese else " ").join(walk)


def documents(
    material: Material, texts: Texts, first: int, count: int
) -> Iterator[tuple[DocumentDraft, Matrix]]:
    """``speed.py``'s documents under other texts: ask for all, in order."""
    for number in range(first, first + count):
        [(draft, rows)] = plain_documents(material, number, 1)
        chinese = number % 4 == 0
        draw = np.random.default_rng((SPEED_SEED, number))
        chance = random.Random(SEED * 10**9 + number)
        passages = draw.integers(len(material.vectors[chinese]), size=CHUNKS_PER_DOCUMENT)
        drafts, at = [], 0
        for ordinal, row in enumerate(passages.tolist()):
            text = texts.of(chance, chinese, row)
            drafts.append(ChunkDraft(ordinal, at, at + len(text), text, len(text) // 4))
            at += len(text) + 1
        whole = "\n".join(chunk.text for chunk in drafts)
        title = drafts[0].text[:40]
        yield (
            msgspec.structs.replace(draft, title=title, text=whole, chunks=tuple(drafts)),
            rows,
        )


def prepare(data: Path, cache: Path, folder: Path, chunks: int) -> None:
    """Build the store; its graph is taken over from ``speed.py``'s, where that was built."""
    shutil.rmtree(folder, ignore_errors=True)
    material, texts = load(data, cache), Texts(data)
    store = StoreWriter(folder)
    for first in range(0, chunks // CHUNKS_PER_DOCUMENT, 200):
        made = list(documents(material, texts, first, 200))
        before = store.reader.version("kb") if first else 0
        store.commit("kb", [draft for draft, _ in made], [])
        store_vectors(store, before, np.concatenate([rows for _, rows in made]))
        print(first, file=sys.stderr, flush=True)
    graph = cache / f"store-{chunks}" / "index"
    if graph.exists():
        (folder / "index").mkdir()
        for path in (graph / "vectors", *graph.glob("segment-*")):
            shutil.copy(path, folder / "index" / path.name)
    index = open_index(folder, store)
    while index.maintain(force=True):
        pass
    index.close()
    store.close()
    (folder / "built.json").write_text("{}")


class Renamed:
    """The default embedder under the fingerprint of the store's vectors, which are like its own."""

    spec = SPEC

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner

    async def embed(self, texts: Any, *, kind: Any) -> Vectors:
        return await self._inner.embed(texts, kind=kind)

    def in_line(self, text: str) -> Callable[[], Vectors] | None:
        return in_line(self._inner, text)


class Load:
    """Asks at a rate, and remembers what became of it."""

    def __init__(self, retriever: Retriever, words: WordsRetriever) -> None:
        """``words`` answer where vectors come too late, as the ladder has it."""
        self._retriever = retriever
        self._words = words
        self._clock = SystemClock()
        self.taken: list[float] = []
        self.rungs: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.stages_s: Counter[str] = Counter()

    async def run(self, questions: list[str], per_s: float) -> dict[str, Any]:
        """Ask every question once, at ``per_s`` on the mean."""
        chance = random.Random(SEED)
        cpu, began = time.process_time(), time.perf_counter()
        due = began
        async with asyncio.TaskGroup() as tasks:
            for question in questions:
                due += chance.expovariate(per_s)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(self._one(question, due))
        return {
            "per_s": per_s,
            **percentiles(self.taken),
            **self._shares(),
            "cpu_ms_per_question": round(1000 * (time.process_time() - cpu) / len(questions), 2),
        }

    async def replay(self, questions: list[str], per_s: float) -> dict[str, Any]:
        """Ask one after the other, and let their processor times wait for one core in turn."""
        costs = []
        for question in questions:
            cpu = time.process_time()
            await self._one(question, time.perf_counter())
            costs.append(time.process_time() - cpu)
        chance = random.Random(SEED)
        due = free = 0.0
        taken = []
        for cost in costs:
            due += chance.expovariate(per_s)
            free = max(due, free) + cost
            taken.append(free - due)
        return {
            "per_s": per_s,
            **percentiles(taken),
            **self._shares(),
            "cpu_ms": percentiles(costs),
            "cpu_ms_per_question": round(1000 * sum(costs) / len(costs), 2),
            "busy": round(sum(costs) / due, 3),
        }

    def _shares(self) -> dict[str, Any]:
        asked = len(self.taken)
        return {
            "left_early": round(self.rungs["early"] / asked, 4),
            "vector_remembered": round(self.rungs["remembered"] / asked, 4),
            "cold": round(self.rungs["cold"] / asked, 4),
            "left_early_or_remembered": round(
                (self.rungs["early"] + self.rungs["remembered"]) / asked, 4
            ),
            "ordered_anew": round(self.rungs["ordered"] / asked, 4),
            "degraded": dict(self.failures),
            "stages_ms": {
                name: round(1000 * spent / asked, 3) for name, spent in self.stages_s.most_common()
            },
        }

    async def _one(self, question: str, due: float) -> None:
        ctx = RequestContext(
            request_id="b",
            principal=Principal(),
            deadline=Deadline.after(120, self._clock),
            clock=self._clock,
        )
        request = with_kind(SearchRequest(kb="kb", query=question, top_k=10))
        failed = ""
        try:
            found = await self._retriever.retrieve(ctx, request)
        except PartFailed as error:
            failed = error.reason
            found = await self._words.retrieve(ctx, request)
        self.taken.append(time.perf_counter() - due)
        for stage in ctx.stages:
            self.stages_s[stage.name] += stage.worked_s
        self.failures.update(step.reason for step in ctx.degradations)
        self.rungs["ordered"] += bool(found.hits) and found.hits[0].rerank is not None
        if failed:
            self.failures[failed] += 1
        elif found.rung == "bm25":
            self.rungs["early"] += 1
        else:
            self.rungs["remembered" if ctx.cache["embedding"] == "hit" else "cold"] += 1


def all_questions(data: Path) -> list[str]:
    """Every question of the sets, each once, in a seeded order."""
    texts = {row["text"] for name in SETS for row in lines(data / name / "queries.jsonl")}
    questions = sorted(texts)
    random.Random(SEED).shuffle(questions)
    return questions


def partly_again(questions: list[str]) -> list[str]:
    """As many, of which a share were asked before."""
    chance, asked = random.Random(SEED), list[str]()
    for question in questions:
        old = asked and chance.random() < AGAIN
        asked.append(chance.choice(asked) if old else question)
    return asked


def before_others() -> None:
    """Let the threads there are run before those of other processes, the first one first."""
    for thread in [int(path.name) for path in Path("/proc/self/task").iterdir()]:
        priority = os.sched_param(6 if thread == os.getpid() else 5)
        os.sched_setscheduler(thread, os.SCHED_FIFO, priority)


async def measure(
    data: Path, cache: Path, folder: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """Open, warm, and ask under both loads; recall of the vectors afterwards."""
    seconds, replayed, light = asked.seconds, asked.replay, asked.rerank == "light"
    settings, _ = load_settings(None, {}, {})
    clock = SystemClock()
    one_core = msgspec.structs.replace(settings.embedding, workers=1, query_workers=0)
    embedder = await open_embedder(one_core, cache=model_cache(settings), clock=clock)
    assert embedder is not None
    store = StoreWriter(folder)
    index = open_index(folder, store)
    questions = all_questions(data)
    model = LightModel.shipped() if light else None

    def fresh() -> Load:
        memory: MemoryTier[bytes] = MemoryTier(MemorySettings(50_000_000), clock)
        kept = CachedEmbedder(Renamed(embedder), memory, EmbeddingTierSettings(), clock)
        settings = RetrievalSettings(
            words_timeout_ms=60_000,
            vector_timeout_ms=60_000 if replayed else 300,
            in_flight_max=100_000,
            embed_in_line=True,
        )
        shared = (settings, pool)
        words = WordsRetriever(lambda kb: index, *shared, chosen=False)
        scorer = None if model is None else model.relevances
        hybrid = HybridRetriever(lambda kb: index, kept, *shared, with_vectors=light, scorer=scorer)
        if model is None:
            return Load(hybrid, words)
        timeout_ms = 60_000 if replayed else RerankingSettings().timeout_ms
        ordering = RerankingParts(model, pool, RerankingSettings(timeout_ms=timeout_ms))
        return Load(RerankingRetriever(hybrid, ordering), words)

    async def under(questions: list[str], per_s: float) -> dict[str, Any]:
        one = fresh()
        return await (one.replay if replayed else one.run)(questions, per_s)

    result: dict[str, Any] = {
        "replayed": replayed,
        "before_others": asked.before_others,
        "rerank": asked.rerank,
    }
    with search_executor(1) as pool:
        await under(questions[-200:], 40.0)
        # As a server does once a knowledge base is in use.
        while index.snapshot().lexical.base.read_ahead(AT_ONCE):
            pass
        settle_memory()
        if asked.before_others:
            before_others()
        count = int(60 * seconds)
        result["all_cold"] = await under(questions[:count], 60.0)
        mixed = partly_again(questions[count : count + int(100 * seconds)])
        result["mixed"] = await under(mixed, 100.0)
    result["recall"] = recall(index, load(data, cache), store)
    index.close()
    store.close()
    await embedder.close()
    return {**result, "asked": judged(result)}


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """What was asked, and whether it was reached."""
    cold, mixed = result["all_cold"], result["mixed"]
    found_of_ten = result["recall"]["recall@10"]
    found = {
        "p99_ms_at_60_all_cold": (cold["p99_ms"], cold["p99_ms"] <= P99_MS),
        "p99_ms_at_100": (mixed["p99_ms"], mixed["p99_ms"] <= P99_MS),
        "left_early_or_remembered_at_100": (
            mixed["left_early_or_remembered"],
            mixed["left_early_or_remembered"] >= SHARE,
        ),
        "recall@10": (found_of_ten, found_of_ten >= RECALL),
        "answered_by_both_legs_or_sure": (
            1.0 - sum(cold["degraded"].values()) / max(1, cold["count"]),
            not cold["degraded"] and not mixed["degraded"],
        ),
    }
    return {name: {"measured": value, "reached": ok} for name, (value, ok) in found.items()}


def main() -> None:
    """Build the store when needed, measure in a copy, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rerank", choices=("off", "light"), default="off")
    parser.add_argument("--replay", action="store_true", help="on a machine that is busy")
    parser.add_argument("--before-others", action="store_true", help="the same, as root")
    arguments = parser.parse_args()
    data, cache = arguments.data / "retrieval", arguments.cache
    asyncio.run(embed_sets(data, cache))
    folder = cache / f"load-{arguments.chunks}"
    if not (folder / "built.json").exists():
        prepare(data, cache, folder, arguments.chunks)
    work = cache / "load-in-use"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    result = run_loop(measure(data, cache, work, arguments))
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
        "chunks": arguments.chunks,
        **result,
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
