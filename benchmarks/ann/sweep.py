"""Searches a million generated vectors: recall, speed and memory of IVF-PQ and HNSW.

    python benchmarks/ann/sweep.py --cache /tmp/ann > benchmarks/ann/result.json

Needs what ``build.py`` made. Every query is one call, as in serving; each thread takes the next
query when it is done with one. Beside the wall's time each query's own processor time is taken:
on a machine that does other work it says what the search costs, and what a free core would do.
``distances`` are FAISS's own count of distance computations; with the bytes each reads it stands
in for memory bandwidth where hardware counters are out of reach.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from build import DIMENSIONS, EF_CONSTRUCTION, SEED, Clusters, K

NPROBES = (8, 32, 128)
WIDTHS = (16, 32, 64, 128, 256)
REFINE = 8
HALF, SINGLE = 2, 4
CODE_BYTES = 32
Matrix = npt.NDArray[np.float32]
Search = Callable[[Matrix], npt.NDArray[np.int64]]


class Round:
    """One pass over the queries with some threads: what was found, and how long each took."""

    def __init__(self, queries: Matrix) -> None:
        self.found = np.full((len(queries), K), -1, np.int64)
        self.wall_s = np.zeros(len(queries))
        self.cpu_s = np.zeros(len(queries))
        self._queries = queries
        self._next: Iterator[int] = iter(range(len(queries)))
        self._lock = threading.Lock()

    def run(self, search: Search, threads: int) -> float:
        """Ask every query; return the seconds from the first to the last."""
        workers = [threading.Thread(target=self._work, args=(search,)) for _ in range(threads)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - began

    def _work(self, search: Search) -> None:
        faiss.omp_set_num_threads(1)
        while True:
            with self._lock:
                at = next(self._next, None)
            if at is None:
                return
            wall, cpu = time.perf_counter(), time.thread_time()
            self.found[at] = search(self._queries[at : at + 1])
            self.cpu_s[at] = time.thread_time() - cpu
            self.wall_s[at] = time.perf_counter() - wall


def parameters(kind: str, value: int) -> Any:
    """Search parameters of FAISS, whose stubs know none of their arguments."""
    make: Any = getattr(faiss, "SearchParametersIVF" if kind == "ivfpq" else "SearchParametersHNSW")
    return make(nprobe=value) if kind == "ivfpq" else make(efSearch=value)


def searching(index: Any, kind: str, value: int, raw: Matrix | None) -> Search:
    """A search; ``raw``: the index proposes eight times as many, these vectors decide."""
    told = parameters(kind, value)

    def plain(query: Matrix) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = index.search(query, K, params=told)[1][0]
        return rows

    def refined(query: Matrix) -> npt.NDArray[np.int64]:
        rows = index.search(query, K * REFINE, params=told)[1][0]
        rows = rows[rows >= 0]
        assert raw is not None
        best: npt.NDArray[np.int64] = rows[np.argsort(-(raw[rows] @ query[0]))[:K]]
        return best

    return plain if raw is None else refined


def recall(found: npt.NDArray[np.int64], exact: npt.NDArray[np.int64]) -> float:
    """The share of the exact ten that were found."""
    hits = [len(set(row) & set(best)) for row, best in zip(found, exact, strict=True)]
    return float(sum(hits)) / len(hits) / K


def distances(index: Any, kind: str, value: int, queries: Matrix) -> float:
    """Distance computations of a query, on average."""
    known: Any = faiss.cvar
    stats = known.indexIVF_stats if kind == "ivfpq" else known.hnsw_stats
    stats.reset()
    index.search(queries[:200], K, params=parameters(kind, value))
    return float(stats.ndis) / len(queries[:200])


def measure(
    search: Search, queries: Matrix, exact: npt.NDArray[np.int64], threads: int, rounds: int
) -> dict[str, float]:
    """Several passes: the best of the rates (what disturbs only slows), all durations together."""
    passes, rates = [], []
    for _ in range(rounds):
        one = Round(queries)
        rates.append(len(queries) / one.run(search, threads))
        passes.append(one)
    wall_ms = np.concatenate([one.wall_s for one in passes]) * 1000
    cpu_ms = np.concatenate([one.cpu_s for one in passes]) * 1000
    return {
        "threads": threads,
        "recall_at_10": round(recall(passes[0].found, exact), 4),
        "queries_per_s": round(max(rates), 1),
        "queries_per_cpu_s": round(1000 / float(cpu_ms.mean()), 1),
        "p50_ms": round(float(np.quantile(wall_ms, 0.5)), 3),
        "p99_ms": round(float(np.quantile(wall_ms, 0.99)), 3),
        "cpu_p50_ms": round(float(np.quantile(cpu_ms, 0.5)), 3),
        "cpu_p99_ms": round(float(np.quantile(cpu_ms, 0.99)), 3),
    }


class Task:
    """Queries, their exact answers, and how thoroughly to measure."""

    def __init__(self, cache: Path, rows: int, options: argparse.Namespace) -> None:
        truth = np.load(cache / f"queries-{rows}.npz")
        self.queries: Matrix = truth["queries"][: options.queries]
        self.exact = truth["exact"][: options.queries]
        self.raw: Matrix = np.load(cache / f"vectors-{options.rows}.npy", mmap_mode="r")[:rows]
        self.rounds: int = options.rounds
        self.threads: list[int] = options.threads


def sweep(path: Path, kind: str, task: Task) -> dict[str, Any]:
    """Measure one index over its search parameter."""
    index: Any = faiss.read_index(str(path))
    cells = []
    # The first pass touches pages that nobody has read yet: it does not count.
    first = NPROBES[0] if kind == "ivfpq" else WIDTHS[0]
    Round(task.queries).run(searching(index, kind, first, task.raw), 1)
    for value in NPROBES if kind == "ivfpq" else WIDTHS:
        computed = distances(index, kind, value, task.queries)
        each_bytes = CODE_BYTES if kind == "ivfpq" else DIMENSIONS * HALF
        # The lists to look into are found by comparing with every centroid.
        first_bytes = index.nlist * DIMENSIONS * SINGLE if kind == "ivfpq" else 0
        about = {
            "nprobe" if kind == "ivfpq" else "ef": value,
            "distances": round(computed),
            "read_bytes": round(computed * each_bytes) + first_bytes,
        }
        for refined in (False, True) if kind == "ivfpq" else (False,):
            search = searching(index, kind, value, task.raw if refined else None)
            for threads in task.threads:
                found = measure(search, task.queries, task.exact, threads, task.rounds)
                extra = {"refined": refined} if kind == "ivfpq" else {}
                cells.append({**about, **extra, **found, "load": round(os.getloadavg()[0], 1)})
                print(path.stem, cells[-1], file=sys.stderr, flush=True)
    built = json.loads(path.with_suffix(".json").read_text())
    return {
        "index": kind,
        **built,
        "rows": index.ntotal,
        "bytes_per_vector": round(path.stat().st_size / index.ntotal, 1),
        "cells": cells,
    }


def crowd(path: Path, task: Task, ef: int = 64) -> list[dict[str, float]]:
    """F3.5: more at once than there are cores makes waits longer, not more answers."""
    index: Any = faiss.read_index(str(path))
    search = searching(index, "hnsw", ef, None)
    return [measure(search, task.queries, task.exact, threads, 1) for threads in (1, 2, 4, 16)]


def exact_scan(task: Task, queries: int = 20) -> dict[str, float]:
    """What comparing with every vector costs, in half precision as the product keeps them."""
    scan: Any = faiss.IndexScalarQuantizer(
        DIMENSIONS, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )
    for first in range(0, len(task.raw), 100_000):
        scan.add(np.ascontiguousarray(task.raw[first : first + 100_000]))

    def search(query: Matrix) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = scan.search(query, K)[1][0]
        return rows

    found = measure(search, task.queries[:queries], task.exact[:queries], 1, 1)
    return {**found, "rows": len(task.raw), "bytes_per_vector": DIMENSIONS * HALF}


def truth_of(cache: Path, rows: int, full: int) -> None:
    """Write the exact answers among the first ``rows``, for graphs that were not finished."""
    if (cache / f"queries-{rows}.npz").exists():
        return
    raw = np.load(cache / f"vectors-{full}.npy", mmap_mode="r")
    queries = Clusters().block(10**6, len(np.load(cache / f"queries-{full}.npz")["queries"]))
    flat: Any = faiss.IndexFlatIP(DIMENSIONS)
    flat.add(np.ascontiguousarray(raw[:rows]))
    cosines, ids = flat.search(queries[:1000], K)
    np.savez(cache / f"queries-{rows}.npz", queries=queries[:1000], exact=ids, cosines=cosines)


def counters() -> str:
    """Whether the processor's own counters can be read here."""
    try:
        asked = subprocess.run(
            ["perf", "stat", "-e", "cache-misses", "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "perf is not installed"
    return "not supported here" if "not supported" in asked.stderr else "available"


def main() -> None:
    """Measure what the cache holds and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--indexes", nargs="+", default=["ivfpq", "hnsw16", "hnsw64"])
    parser.add_argument("--small", type=int, default=0, help="graphs of the first so many rows too")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    task, results = Task(options.cache, options.rows, options), []
    for name in options.indexes:
        path = options.cache / f"{name}-{options.rows}.faiss"
        if path.exists():
            results.append(sweep(path, name.rstrip("0123456789"), task))
    if options.small:
        truth_of(options.cache, options.small, options.rows)
        few = Task(options.cache, options.small, options)
        for name in options.indexes:
            path = options.cache / f"{name}-{options.small}.faiss"
            if path.exists():
                results.append(sweep(path, name.rstrip("0123456789"), few))
    graph = options.cache / f"hnsw16-{options.rows}.faiss"
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}, "
        f"FAISS {faiss.__version__}",
        "hardware_counters": counters(),
        "seed": SEED,
        "dimensions": DIMENSIONS,
        "ef_construction": EF_CONSTRUCTION,
        "queries": len(task.queries),
        "indexes": results,
        "exact": exact_scan(task),
        "crowd_hnsw16_ef64": crowd(graph, task) if graph.exists() else [],
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
