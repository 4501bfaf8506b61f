"""Builds a segment on disk, here or in a process of low priority."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import faiss
import msgspec
import numpy as np

from forebay.kernel.errors import StoreError
from forebay.retrieval.segments import (
    Floats32,
    Ids,
    SegmentFile,
    SegmentKind,
    exact_segment,
    new_hnsw,
    new_ivfpq,
    write_segment,
)
from forebay.retrieval.settings import VectorSettings

_NICENESS = 19
_LIMIT_S = 120.0
_LIMIT_S_PER_ROW = 0.02
_FOLLOWED = 8
"""Links of a row that say where it lies; 4 and 32 serve searches as well."""

_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from forebay.retrieval.segment_build import run
run(sys.argv[2])
"""


class BuildJob(msgspec.Struct, frozen=True):
    """What to build: new rows, and a graph on disk to extend (None: from nothing)."""

    folder: str
    name: str
    kind: SegmentKind
    settings: VectorSettings
    base: SegmentFile | None = None


def build(job: BuildJob, ids: Ids, vectors: Floats32) -> SegmentFile:
    """Build and write the segment; one thread, so that searches keep their core."""
    faiss.omp_set_num_threads(1)
    folder = Path(job.folder)
    if job.kind == "exact":
        flat = exact_segment(ids, vectors, 0).flat
        return write_segment(folder, job.name, ids, flat, flat, "exact")
    if job.kind == "ivfpq":
        flat = exact_segment(ids, vectors, 0).flat
        return write_segment(folder, job.name, ids, new_ivfpq(vectors, job.settings), flat, "ivfpq")
    if job.base is None:
        graph: Any = new_hnsw(vectors.shape[1], job.settings)
    else:
        graph = faiss.read_index(str(folder / f"{job.base.name}.faiss"))
        graph.hnsw.efConstruction = job.settings.hnsw_ef_construction
        graph.keep_max_size_level0 = True
        ids = np.concatenate([np.load(folder / f"{job.base.name}.ids.npy"), ids])
    if len(vectors):
        graph.add(vectors)
    order = _order_by_links(graph)
    graph.permute_entries(order)
    return write_segment(folder, job.name, ids[order], graph, None, "hnsw")


def _order_by_links(graph: Any) -> Ids:
    """The rows of a graph, depth first along the links of each, its nearest first.

    A search goes from link to link: what it compares next then lies near by, in the same pages
    (of 100,000 vectors it takes two thirds of the time, and finds the same).
    """
    neighbours = graph.hnsw.neighbors
    links = faiss.rev_swig_ptr(neighbours.data(), neighbours.size())
    begins = faiss.vector_to_array(graph.hnsw.offsets).astype(np.int64)[:-1, None]
    followed = links[begins + np.arange(min(_FOLLOWED, graph.hnsw.nb_neighbors(0)))][:, ::-1]
    seen, order = bytearray(graph.ntotal), list[int]()
    for first in range(graph.ntotal):
        ahead = [first]
        while ahead:
            row = ahead.pop()
            # -1: no link.
            if row >= 0 and not seen[row]:
                seen[row] = 1
                order.append(row)
                ahead += followed[row].tolist()
    return np.array(order, np.int64)


def run(encoded: str) -> None:
    """Entry of the child process: lowest priority, inputs from files, result to a file."""
    os.nice(_NICENESS)
    job = msgspec.json.decode(base64.b64decode(encoded), type=BuildJob)
    folder = Path(job.folder)
    with np.load(folder / f"input-{job.name}.npz") as rows:
        file = build(job, rows["ids"], rows["vectors"])
    (folder / f"input-{job.name}.done").write_bytes(msgspec.json.encode(file))


class BuildProcess:
    """A build in a process of its own; ``stop`` ends it from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def build(self, job: BuildJob, ids: Ids, vectors: Floats32) -> SegmentFile:
        """Build in a child process and wait for it; raise ``StoreError`` when it fails."""
        folder = Path(job.folder)
        paths = (folder / f"input-{job.name}.npz", folder / f"input-{job.name}.done")
        limit_s = _LIMIT_S + _LIMIT_S_PER_ROW * (len(ids) + (job.base.rows if job.base else 0))
        try:
            np.savez(paths[0], ids=ids, vectors=vectors)
            del vectors
            encoded = base64.b64encode(msgspec.json.encode(job)).decode()
            search_path = msgspec.json.encode(sys.path).decode()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, search_path, encoded],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if self._stopped:
                self._process.terminate()
            code = self._process.wait(limit_s)
            if code != 0:
                raise StoreError(f"Building a vector segment ended with exit code {code}.")
            return msgspec.json.decode(paths[1].read_bytes(), type=SegmentFile)
        except subprocess.TimeoutExpired as error:
            raise StoreError(f"Building a vector segment took over {limit_s:.0f} s.") from error
        finally:
            process, self._process = self._process, None
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            for path in paths:
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the running build and refuse later ones; its ``build`` raises ``StoreError``."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.terminate()
