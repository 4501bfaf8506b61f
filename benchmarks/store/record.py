"""Insert latency, bulk rate, row fetch, polling and size of the record.

``python benchmarks/store/record.py [--chunks 200000] [--folder DIR] [--synchronous full]``
prints one JSON line a figure. Texts are seeded words, about 500 bytes a chunk.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from forebay.kernel.documents import ChunkDraft, DocumentDraft, Vectors
from forebay.kernel.stages import EmbedderSpec
from forebay.store import StoreSettings, StoreWriter

DIMENSIONS = 384


def document(rng: random.Random, words: list[str], number: int, chunks: int) -> DocumentDraft:
    texts = [" ".join(rng.choices(words, k=72)) for _ in range(chunks)]
    drafts, at = [], 0
    for ordinal, text in enumerate(texts):
        drafts.append(ChunkDraft(ordinal, at, at + len(text), text, 100, None, ("Part", "Section")))
        at += len(text) + 1
    return DocumentDraft(
        f"doc-{number:07d}", f"doc-{number:07d}.txt", f"{number:064d}", f"Document {number}",
        "\n".join(texts), tuple(drafts), language="en",
    )  # fmt: skip


def percentiles(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
    return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


def say(figure: str, **values: object) -> None:
    print(json.dumps({"figure": figure, **values}), flush=True)


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def bulk(store: StoreWriter, rng: random.Random, words: list[str], chunks: int) -> None:
    per_document, spent, characters, peak = 25, 0.0, 0, 0
    for first in range(0, chunks // per_document, 256):
        count = min(256, chunks // per_document - first)
        drafts = [document(rng, words, first + at, per_document) for at in range(count)]
        characters += sum(len(draft.text) for draft in drafts)
        began = time.perf_counter()
        store.commit("kb", drafts, [])
        spent += time.perf_counter() - began
        peak = max(peak, size(store.folder))
    say("bulk", seconds=round(spent, 2), characters=characters, chunks=chunks,
        chunks_per_s=round(chunks / spent))  # fmt: skip


def vectors(store: StoreWriter, chunks: int) -> None:
    ids = store.reader.changes("kb", 0).added
    draw = np.random.default_rng(1)
    spent = []
    for first in range(0, chunks, 1000):
        part = ids[first : first + 1000]
        matrix = draw.standard_normal((len(part), DIMENSIONS)).astype("<f4")
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        began = time.perf_counter()
        store.store_vectors("kb", Vectors(part, DIMENSIONS, matrix.tobytes()), "f")
        spent.append(time.perf_counter() - began)
    say("vectors", per="1000 vectors", total_s=round(sum(spent), 2), **percentiles(spent))


def inserts(store: StoreWriter, rng: random.Random, words: list[str]) -> None:
    spent = []
    for number in range(500):
        draft = document(rng, words, 10_000_000 + number, 5)
        began = time.perf_counter()
        store.commit("kb", [draft], [])
        spent.append(time.perf_counter() - began)
    say("insert", per="document of 5 chunks", **percentiles(spent))


def reads(store: StoreWriter, rng: random.Random) -> None:
    ids = store.reader.changes("kb", 0).added
    for name, call in (
        ("rows of 20 random chunks", lambda: store.reader.rows("kb", rng.sample(ids, 20))),
        ("version poll", lambda: store.reader.version("kb")),
        ("vectors of 1000 chunks", lambda: store.reader.vectors("kb", rng.sample(ids, 1000))),
        ("changes of the last 100 versions",
         lambda: store.reader.changes("kb", store.reader.version("kb") - 100)),
    ):  # fmt: skip
        spent = []
        for _ in range(500):
            began = time.perf_counter()
            call()
            spent.append(time.perf_counter() - began)
        say(name, **percentiles(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--synchronous", choices=["full", "normal"], default="full")
    arguments = parser.parse_args()
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 10))) for _ in range(20_000)]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        settings = StoreSettings(synchronous=arguments.synchronous)
        store = StoreWriter(Path(folder), settings)
        bulk(store, rng, words, arguments.chunks)
        store.maintain()
        say("file without vectors", bytes_per_chunk=round(size(store.folder) / arguments.chunks))
        vectors(store, arguments.chunks)
        store.maintain()
        say("file with vectors", bytes_per_chunk=round(size(store.folder) / arguments.chunks))
        inserts(store, rng, words)
        reads(store, rng)
        for figure, call in (
            ("maintain after inserts", store.maintain),
            ("check", store.reader.check),
            ("begin_reembed", lambda: store.begin_reembed("kb", EmbedderSpec("n", "g", 8, 8))),
            ("rewrite", lambda: store.maintain(rewrite=True)),
            ("drop", lambda: store.drop("kb")),
            ("maintain after drop", store.maintain),
        ):
            began = time.perf_counter()
            call()
            say(figure, seconds=round(time.perf_counter() - began, 2))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        say("process", peak_resident_mib=peak, file_bytes_after_drop=size(store.folder))
        store.close()


if __name__ == "__main__":
    main()
