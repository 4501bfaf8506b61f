"""Carried retrievals under continual ingest: are they what a fresh one finds, and what they save.

    python benchmarks/caching/carry.py --data ../shared/data > benchmarks/caching/carry.json

100,000 generated chunks with an HNSW graph, live BM25 statistics. One-chunk documents come at a
steady virtual rate, each one commit, their vectors once a virtual second; real questions are asked
at a fixed virtual rate, Zipf-distributed. Virtual time costs nothing: commits and look-ups happen
as fast as the machine does them, in the order of their virtual times.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "retrieval"))

import speed
from quality import SETS, CachedEmbedder, embed_sets, lines

from forebay.cache.carrying import CarryingSettings, carried
from forebay.kernel.caching import Evidence
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.stages import SearchRequest
from forebay.retrieval import (
    HybridRetriever,
    LoggedBounds,
    RetrievalSettings,
    search_executor,
)
from forebay.store import StoreWriter

SEED = 11
DAY_S = 86_400.0
MAINTAIN_EVERY_S = 20.0
PINNED = CarryingSettings(drift_max=math.inf, lead_min=0.0, lead_per_drift=0.0, lead_per_shift=0.0)
"""Tells entries that a change touched from those that are trusted no more."""


class Run(msgspec.Struct, frozen=True):
    """One setting of the simulation; ``check_share`` of the hits are compared with a fresh one."""

    documents_per_day: int
    virtual_s: float
    questions_per_s: float
    top_k: int
    check_share: float


class Entry(msgspec.Struct):
    """A cached retrieval."""

    version: int
    evidence: Evidence


class Tally(msgspec.Struct):
    """What happened."""

    lookups: int = 0
    same_version: int = 0
    carried: int = 0
    touched: int = 0
    unknown: int = 0
    drifted: int = 0
    cold: int = 0
    thrown_away_hits: int = 0
    checked: int = 0
    other: int = 0
    other_set: int = 0
    first_other: int = 0
    by_drift: dict[str, list[int]] = {}
    lookup_s: list[float] = []
    fresh_s: list[float] = []


def one_chunk_documents(
    material: speed.Material, first: int
) -> Iterator[tuple[DocumentDraft, speed.Matrix]]:
    """New documents of one chunk, made as the corpus' were."""
    number = first
    while True:
        [(draft, rows)] = speed.documents(material, number, 1)
        text = draft.chunks[0].text
        chunk = ChunkDraft(0, 0, len(text), text, len(text) // 4)
        yield msgspec.structs.replace(draft, text=text, chunks=(chunk,)), rows[:1]
        number += 1


def all_questions(data: Path, cache: Path) -> tuple[list[str], speed.Matrix]:
    """Every real question of the sets, each once, in an order of its own."""
    texts: list[str] = []
    vectors = []
    for name in SETS:
        texts += [row["text"] for row in lines(data / name / "queries.jsonl")]
        vectors.append(np.load(cache / f"{name}.queries.npy").astype(np.float32))
    matrix = np.concatenate(vectors)
    _, first = np.unique(np.array(texts), return_index=True)
    order = np.random.default_rng(SEED).permutation(first)
    return [texts[i] for i in order], matrix[order]


class Stand:
    """Store, index, retriever and a cache of entries."""

    def __init__(
        self, folder: Path, material: speed.Material, cache: tuple[list[str], Any]
    ) -> None:
        self.store = StoreWriter(folder)
        self.index = speed.open_index(folder, self.store)
        self.pool = search_executor(1)
        self.questions, vectors = cache
        self.retriever = HybridRetriever(
            lambda _: self.index,
            CachedEmbedder(dict(zip(self.questions, vectors, strict=True))),
            # However busy the machine is: a degraded retrieval proves nothing here.
            RetrievalSettings(vector_timeout_ms=30_000, words_timeout_ms=30_000),
            self.pool,
        )
        self.bounds = LoggedBounds(lambda _: self.index)
        self.documents = one_chunk_documents(material, 10_000_000)
        self.entries: dict[int, Entry] = {}
        self.fresh_versions: dict[int, int] = {}
        self.waiting: list[speed.Matrix] = []
        self.embedded_at = self.store.reader.version("kb")
        self.clock = SystemClock()
        self.draw = np.random.default_rng(SEED + 1)

    def commit(self) -> None:
        """One document."""
        draft, rows = next(self.documents)
        self.store.commit("kb", [draft], [])
        self.index.refresh()
        self.waiting.append(rows)

    def embed(self) -> None:
        """The vectors of what came since the last time."""
        if not self.waiting:
            return
        speed.store_vectors(self.store, self.embedded_at, np.concatenate(self.waiting))
        self.index.refresh()
        self.embedded_at, self.waiting = self.store.reader.version("kb"), []

    async def fresh(self, question: int, top_k: int) -> tuple[int, Evidence]:
        """Retrieve."""
        context = RequestContext(
            request_id="b",
            principal=Principal(),
            deadline=Deadline.after(60, self.clock),
            clock=self.clock,
        )
        request = SearchRequest(kb="kb", query=self.questions[question], top_k=top_k)
        result = await self.retriever.retrieve(context, request)
        assert result.evidence is not None, context.degradations
        return result.kb_version, result.evidence

    def close(self) -> None:
        """Let go."""
        self.pool.shutdown()
        self.index.close()
        self.store.close()


async def look_up(stand: Stand, run: Run, tally: Tally, question: int) -> None:
    """Answer one question from the cache or afresh."""
    tally.lookups += 1
    now = stand.index.snapshot().version
    tally.thrown_away_hits += stand.fresh_versions.get(question) == now
    stand.fresh_versions[question] = now
    entry = stand.entries.get(question)
    if entry is None:
        tally.cold += 1
    elif entry.version == now:
        tally.same_version += 1
        return
    elif await carry(stand, run, tally, question, entry):
        return
    began = time.perf_counter()
    version, evidence = await stand.fresh(question, run.top_k)
    tally.fresh_s.append(time.perf_counter() - began)
    stand.entries[question] = Entry(version, evidence)


async def carry(stand: Stand, run: Run, tally: Tally, question: int, entry: Entry) -> bool:
    """Carry an entry to the present version; False when it does not stand."""
    began = time.perf_counter()
    changes = stand.bounds.changes("kb", entry.version, entry.evidence)
    kept = None if changes is None else carried(entry.evidence, changes, run.top_k)
    tally.lookup_s.append(time.perf_counter() - began)
    if changes is None:
        tally.unknown += 1
        return False
    if kept is None:
        stands = carried(entry.evidence, changes, run.top_k, PINNED) is not None
        tally.drifted += stands
        tally.touched += not stands
        return False
    tally.carried += 1
    entry.version, entry.evidence = changes.version, kept
    if stand.draw.random() < run.check_share:
        _, fresh = await stand.fresh(question, run.top_k)
        note(tally, kept.moved / kept.chunks, kept.fused.ids, fresh.fused.ids)
    return True


def note(tally: Tally, drift: float, kept: tuple[int, ...], fresh: tuple[int, ...]) -> None:
    """Compare hits."""
    tally.checked += 1
    tally.other += kept != fresh
    tally.other_set += set(kept) != set(fresh)
    tally.first_other += kept[:1] != fresh[:1]
    counts = tally.by_drift.setdefault(f"{int(drift * 200) / 2:.1f} %", [0, 0])
    counts[0] += 1
    counts[1] += kept != fresh


def zipf(count: int, draw: np.random.Generator, size: int) -> Any:
    """Numbers of questions, Zipf(1.0)."""
    weights = 1.0 / np.arange(1, count + 1)
    return draw.choice(count, size=size, p=weights / weights.sum())


async def simulate(stand: Stand, run: Run) -> tuple[Tally, dict[str, Any]]:
    """Commits, embeddings, upkeep and look-ups in the order of their virtual times."""
    tally = Tally()
    draw = np.random.default_rng(SEED)
    asked = zipf(len(stand.questions), draw, int(run.virtual_s * run.questions_per_s))
    gap_s = DAY_S / run.documents_per_day
    due: list[tuple[float, str]] = [
        (gap_s / 2, "commit"),
        (1.0, "embed"),
        (MAINTAIN_EVERY_S, "maintain"),
    ]
    every = {"commit": gap_s, "embed": 1.0, "maintain": MAINTAIN_EVERY_S}
    began = time.perf_counter()
    for number, question in enumerate(asked.tolist()):
        at = number / run.questions_per_s
        while due[0][0] <= at:
            when, what = heapq.heappop(due)
            heapq.heappush(due, (when + every[what], what))
            if what == "commit":
                stand.commit()
            elif what == "embed":
                stand.embed()
            else:
                stand.index.maintain()
        await look_up(stand, run, tally, question)
    return tally, {"wall_s": round(time.perf_counter() - began, 1), **stand.index.statistics()}


def micros(seconds: list[float]) -> dict[str, float]:
    """Percentiles in microseconds."""
    if not seconds:
        return {}
    us = np.asarray(seconds) * 1e6
    return {f"p{p}": round(float(np.percentile(us, p)), 1) for p in (50, 95, 99)} | {
        "mean": round(float(us.mean()), 1)
    }


def report(run: Run, tally: Tally, index: dict[str, Any]) -> dict[str, Any]:
    """One JSON object for one run."""
    hits = tally.same_version + tally.carried
    counts = {
        key: value for key, value in msgspec.structs.asdict(tally).items() if type(value) is int
    }
    return {
        "run": msgspec.structs.asdict(run),
        **counts,
        "hit_rate_carrying": round(hits / tally.lookups, 4),
        "hit_rate_throw_away": round(tally.thrown_away_hits / tally.lookups, 4),
        "hit_rate_ideal": round(1 - tally.cold / tally.lookups, 4),
        "disagreement": round(tally.other / max(1, tally.checked), 5),
        "disagreement_of_sets": round(tally.other_set / max(1, tally.checked), 5),
        "disagreement_by_drift": dict(sorted(tally.by_drift.items())),
        "revalidation_us": micros(tally.lookup_s),
        "retrieval_us_wall": micros(tally.fresh_s),
        "index": index,
    }


def main() -> None:
    """Run both rates over copies of the prepared store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--runs", type=Path, help="JSON list of runs instead of the usual ones")
    arguments = parser.parse_args()
    data, cache = arguments.data / "retrieval", arguments.cache
    asyncio.run(embed_sets(data, cache))
    material = speed.load(data, cache)
    questions = all_questions(data, cache)
    folder = cache / f"store-{arguments.chunks}"
    if not (folder / "built.json").exists():
        (folder / "built.json").write_text(
            json.dumps(speed.prepare(material, folder, arguments.chunks))
        )
    runs = [
        Run(100_000, 1200.0, 25.0, 5, 0.12),
        Run(1_000_000, 300.0, 50.0, 5, 0.25),
        Run(100_000, 600.0, 25.0, 20, 0.15),
    ]
    if arguments.runs:
        runs = msgspec.json.decode(arguments.runs.read_bytes(), type=list[Run])
    faiss.omp_set_num_threads(1)
    sys.setswitchinterval(0.0005)
    results = []
    for run in runs:
        work = cache / f"carry-{os.getpid()}"
        shutil.copytree(folder, work)
        try:
            stand = Stand(work, material, questions)
            results.append(report(run, *asyncio.run(simulate(stand, run))))
            stand.close()
        finally:
            shutil.rmtree(work, ignore_errors=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    json.dump(
        {
            "machine": f"{machine}, {os.cpu_count()} cores",
            "load": round(os.getloadavg()[0], 1),
            "commit": commit,
            "seed": SEED,
            "questions": len(questions[0]),
            "chunks": arguments.chunks,
            "runs": results,
        },
        sys.stdout,
        indent=1,
    )


if __name__ == "__main__":
    main()
