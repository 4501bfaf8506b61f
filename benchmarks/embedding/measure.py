"""Measure the default embedder: memory, query latency, passages per second, token counting.

    python benchmarks/embedding/measure.py --data ../shared/data --cache var/models > result.json

Passages are SciFact abstracts (English) and XQuAD paragraphs (Chinese), queries XQuAD questions in
both languages; the counter runs over their concatenation. One JSON object goes to standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

WARM = 5
QUERIES = 100
PASSAGES = 60


def resident_mb() -> dict[str, float]:
    """Resident memory of this process; ``private`` leaves out mapped files others share."""
    info = psutil.Process().memory_full_info()
    return {"rss": round(info.rss / 1e6, 1), "private": round(info.uss / 1e6, 1)}


def texts(data: Path, name: str, file: str, count: int) -> list[str]:
    """The first ``count`` texts of a retrieval set."""
    with (data / "retrieval" / name / file).open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for _, line in zip(range(count), lines, strict=False)]


async def measure_embedder(data: Path, cache: Path, workers: int) -> dict[str, Any]:
    """Latency and throughput through the public interface, with one calling task."""
    from forebay.embedding.counting import open_e5_counter
    from forebay.embedding.opening import open_embedder
    from forebay.embedding.settings import EmbeddingSettings
    from forebay.kernel.clock import SystemClock

    before = resident_mb()
    began = time.perf_counter()
    settings = EmbeddingSettings(workers=workers)
    embedder = await open_embedder(settings, cache=cache, clock=SystemClock())
    if embedder is None:
        raise SystemExit("no embedder")
    loaded_s = time.perf_counter() - began
    loaded = resident_mb()
    half = QUERIES // 2
    queries = texts(data, "xquad_en", "queries.jsonl", half)
    queries += texts(data, "xquad_zh", "queries.jsonl", half)
    for query in queries[:WARM]:
        await embedder.embed([query], kind="query")
    taken = []
    for query in queries:
        began = time.perf_counter()
        await embedder.embed([query], kind="query")
        taken.append(1000 * (time.perf_counter() - began))
    result: dict[str, Any] = {
        "workers": workers,
        "load_s": round(loaded_s, 2),
        "mb_before": before,
        "mb_loaded": loaded,
        "query_ms": {str(p): round(float(np.percentile(taken, p)), 2) for p in (50, 95, 99)},
    }
    sets = {
        "scifact_en": texts(data, "scifact_train", "corpus.jsonl", PASSAGES),
        "xquad_zh": texts(data, "xquad_zh", "corpus.jsonl", PASSAGES),
    }
    for name, passages in sets.items():
        began = time.perf_counter()
        await embedder.embed(passages, kind="passage")
        result[f"passages_per_s_{name}"] = round(len(passages) / (time.perf_counter() - began), 1)
    result["mb_after"] = resident_mb()
    result["query_under_ingest_ms"] = await under_ingest(embedder, sets["scifact_en"], queries)
    result["mb_end"] = resident_mb()
    counter = open_e5_counter(cache)
    for name, passages in sets.items():
        lengths = [min(512, counter.count(passage) + 4) for passage in passages]
        result[f"mean_tokens_{name}"] = round(float(np.mean(lengths)), 1)
    await embedder.close()
    return result


async def under_ingest(embedder: Any, passages: list[str], queries: list[str]) -> dict[str, float]:
    """Query latency while passages keep every worker busy."""
    taken = []
    async with asyncio.TaskGroup() as group:
        busy = group.create_task(embedder.embed(passages * 10, kind="passage"))
        for query in queries[:40]:
            await asyncio.sleep(0.05)
            began = time.perf_counter()
            await embedder.embed([query], kind="query")
            taken.append(1000 * (time.perf_counter() - began))
        busy.cancel()
    return {str(p): round(float(np.percentile(taken, p)), 1) for p in (50, 95, 100)}


def measure_counter(data: Path, cache: Path) -> dict[str, Any]:
    """Speed and memory of the counter alone."""
    before = resident_mb()
    from forebay.embedding.counting import open_e5_counter

    began = time.perf_counter()
    counter = open_e5_counter(cache)
    result: dict[str, Any] = {
        "load_s": round(time.perf_counter() - began, 2),
        "mb_before": before,
        "mb_loaded": resident_mb(),
    }
    for name, corpus in (("en", "scifact_train"), ("zh", "xquad_zh")):
        passages = texts(data, corpus, "corpus.jsonl", 1000)
        size = sum(len(passage.encode()) for passage in passages)
        began = time.perf_counter()
        for passage in passages:
            counter.count(passage)
        result[f"mb_per_s_{name}"] = round(size / 1e6 / (time.perf_counter() - began), 1)
    for name, text in (("spaceless_2mb_ms", "x" * 2_000_000), ("han_2m_ms", "检索" * 1_000_000)):
        began = time.perf_counter()
        counter.count(text)
        result[name] = round(1000 * (time.perf_counter() - began), 1)
    result["mb_after"] = resident_mb()
    return result


def main() -> None:
    """Run each part in a process of its own, so that memory figures do not mix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--part", default="")
    options = parser.parse_args()
    if options.part == "counter":
        print(json.dumps(measure_counter(options.data, options.cache)))
        return
    if options.part:
        part = measure_embedder(options.data, options.cache, int(options.part))
        print(json.dumps(asyncio.run(part)))
        return
    from forebay.embedding.e5_build import ensure_e5

    began = time.perf_counter()
    files = ensure_e5(options.cache)
    result: dict[str, Any] = {
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "python": platform.python_version(),
        },
        "ensure_s": round(time.perf_counter() - began, 2),
        "cosine_against_package": files.cosine,
    }
    for part in ("1", "2", "counter"):
        command = [sys.executable, __file__, "--data", str(options.data)]
        command += ["--cache", str(options.cache), "--part", part]
        done = subprocess.run(command, capture_output=True, check=True)
        result[part if part == "counter" else f"workers_{part}"] = json.loads(done.stdout)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
