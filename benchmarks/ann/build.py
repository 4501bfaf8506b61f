"""Generates vectors and builds the indexes that ``sweep.py`` measures, each once into a cache.

    python benchmarks/ann/build.py --cache /tmp/ann [--rows 1000000] [--kinds ivfpq hnsw16 hnsw64]

Vectors lie in seeded clusters of a 32-dimensional space, are mapped to 384 dimensions by a random
matrix, blurred a little in all of them and brought to unit length: neighbours mean something, as
among sentences, and no two rows are equal. The indexes are made by production's builders, except
that IVF-PQ learns its lists from 64 rows a list instead of all (single thread: minutes, not an
hour). A graph is saved every 100,000 rows and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from forebay.retrieval.segments import new_hnsw
from forebay.retrieval.settings import VectorSettings

SEED = 20
DIMENSIONS = 384
LATENT = 32
CLUSTERS = 2000
SPREAD = 0.5
"""Standard deviation inside a cluster, against 1 among centres."""
BLUR = 0.2
"""Length of the noise in all dimensions, against about 1 of the rest."""
BLOCK = 100_000
QUERIES = 2000
K = 10
EF_CONSTRUCTION = 80
ROWS_PER_LIST = 64
Matrix = npt.NDArray[np.float32]


class Clusters:
    """The distribution rows and queries are drawn from; a block is its number's alone."""

    def __init__(self) -> None:
        draw = np.random.default_rng((SEED, 0))
        self._centres = draw.standard_normal((CLUSTERS, LATENT)).astype(np.float32)
        self._spreads = (SPREAD * draw.lognormal(0, 0.2, CLUSTERS)).astype(np.float32)
        sizes = draw.lognormal(0, 1, CLUSTERS)
        self._shares = sizes / sizes.sum()
        self._map = draw.standard_normal((LATENT, DIMENSIONS)).astype(np.float32)

    def block(self, number: int, rows: int) -> Matrix:
        """Return ``rows`` unit vectors (rows, 384), the same for the same number."""
        draw = np.random.default_rng((SEED, 1 + number))
        of = draw.choice(CLUSTERS, rows, p=self._shares)
        inner = draw.standard_normal((rows, LATENT), np.float32) * self._spreads[of, None]
        vectors = (self._centres[of] + inner) @ self._map
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        noise = draw.standard_normal((rows, DIMENSIONS), np.float32)
        vectors += noise * np.float32(BLUR / DIMENSIONS**0.5)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def make_vectors(cache: Path, rows: int) -> Matrix:
    """Return the rows, memory-mapped; write them and the queries with their exact best first."""
    path = cache / f"vectors-{rows}.npy"
    if not path.exists():
        clusters = Clusters()
        aside = path.with_suffix(".part.npy")
        out = np.lib.format.open_memmap(aside, "w+", np.float32, (rows, DIMENSIONS))
        queries = clusters.block(10**6, QUERIES)
        best = np.full((QUERIES, 0), -np.inf, np.float32)
        ids = np.zeros((QUERIES, 0), np.int64)
        for first in range(0, rows, BLOCK):
            block = clusters.block(first // BLOCK, min(BLOCK, rows - first))
            out[first : first + len(block)] = block
            for part in range(0, len(block), 10_000):
                cosines = queries @ block[part : part + 10_000].T
                top = np.argpartition(-cosines, K, axis=1)[:, :K]
                best = np.hstack([best, np.take_along_axis(cosines, top, 1)])
                ids = np.hstack([ids, top + first + part])
                keep = np.argsort(-best, axis=1)[:, :K]
                best = np.take_along_axis(best, keep, 1)
                ids = np.take_along_axis(ids, keep, 1)
        out.flush()
        np.savez(cache / f"queries-{rows}.npz", queries=queries, exact=ids, cosines=best)
        aside.rename(path)
    mapped: Matrix = np.load(path, mmap_mode="r")
    return mapped


def note(cache: Path, name: str, **values: object) -> None:
    """Keep what a build took beside the index."""
    (cache / f"{name}.json").write_text(json.dumps(values))
    print(name, values, flush=True)


def build_ivfpq(cache: Path, vectors: Matrix) -> None:
    """F2.8: at most 4096 lists, 32 sub-vectors of 8 bits."""
    rows, name = len(vectors), f"ivfpq-{len(vectors)}"
    if (cache / f"{name}.faiss").exists():
        return
    began = time.process_time()
    settings = VectorSettings()
    lists = min(settings.ivfpq_lists, rows // 39)
    index: Any = faiss.IndexIVFPQ(
        faiss.IndexFlatIP(DIMENSIONS),
        DIMENSIONS,
        lists,
        settings.ivfpq_parts,
        8,
        faiss.METRIC_INNER_PRODUCT,
    )
    index.cp.seed = index.pq.cp.seed = 1234
    sample = np.random.default_rng((SEED, 3)).permutation(rows)[: ROWS_PER_LIST * lists]
    index.train(vectors[np.sort(sample)])
    trained = time.process_time()
    for first in range(0, rows, BLOCK):
        index.add(np.ascontiguousarray(vectors[first : first + BLOCK]))
    faiss.write_index(index, str(cache / f"{name}.faiss"))
    cpu = {"train_cpu_s": trained - began, "add_cpu_s": time.process_time() - trained}
    note(cache, name, rows=rows, lists=lists, **cpu)


def build_hnsw(cache: Path, vectors: Matrix, m: int) -> None:
    """A graph in half precision; goes on where an interrupted build was saved."""
    rows, name = len(vectors), f"hnsw{m}-{len(vectors)}"
    if (cache / f"{name}.faiss").exists():
        return
    settings = VectorSettings(hnsw_m=m, hnsw_ef_construction=EF_CONSTRUCTION)
    part, spent = cache / f"{name}.part", 0.0
    if part.exists():
        index: Any = faiss.read_index(str(part))
        spent = json.loads((cache / f"{name}.json").read_text())["add_cpu_s"]
    else:
        index = new_hnsw(DIMENSIONS, settings)
    for first in range(index.ntotal, rows, BLOCK):
        began = time.process_time()
        index.add(np.ascontiguousarray(vectors[first : first + BLOCK]))
        spent += time.process_time() - began
        faiss.write_index(index, str(part) + ".new")
        Path(str(part) + ".new").rename(part)
        note(cache, name, rows=index.ntotal, m=m, ef_construction=EF_CONSTRUCTION, add_cpu_s=spent)
    part.rename(cache / f"{name}.faiss")


def main() -> None:
    """Build what the cache lacks, on one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=["ivfpq", "hnsw16", "hnsw64"])
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    faiss.omp_set_num_threads(1)
    vectors = make_vectors(options.cache, options.rows)
    for kind in options.kinds:
        if kind == "ivfpq":
            build_ivfpq(options.cache, vectors)
        else:
            build_hnsw(options.cache, vectors, int(kind.removeprefix("hnsw")))


if __name__ == "__main__":
    main()
