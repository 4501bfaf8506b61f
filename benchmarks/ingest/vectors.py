"""Background embedding against the raw embedder: passages a second on all cores.

The same passages, first handed to the embedder alone in batches with as many under way as the
feeder has lanes, then ingested: from the first file read to the last vector committed and
published. Three pairs in turn; the medians are compared.

Run: python benchmarks/ingest/vectors.py --data FOLDER [--passages 400]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.app.runtime import Process, open_process
from forebay.app.settings import load_settings
from forebay.kernel.stages import Embedder
from forebay.pipeline.embedding import passage_text
from forebay.pipeline.folders import FileEvent, FolderRequest

SEED = 20260103


def write_passages(folder: Path, data: Path, count: int) -> None:
    """Real passages of both languages, one a file."""
    passages: list[str] = []
    for name in ("scifact_train", "xquad_zh"):
        with (data / "retrieval" / name / "corpus.jsonl").open(encoding="utf-8") as lines:
            passages += [json.loads(line)["text"] for line in lines]
    chance = random.Random(SEED)
    for number, text in enumerate(chance.sample(passages, count)):
        (folder / f"p{number:04}.txt").write_text(text, encoding="utf-8")


async def raw(embedder: Embedder, texts: Sequence[str], batch: int, lanes: int) -> float:
    """Seconds the embedder alone takes."""
    batches = [texts[at : at + batch] for at in range(0, len(texts), batch)]
    gate = asyncio.Semaphore(lanes)

    async def one(part: Sequence[str]) -> None:
        async with gate:
            await embedder.embed(part, kind="passage")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for part in batches:
            group.create_task(one(part))
    return time.perf_counter() - began


async def ingest(process: Process, folder: Path, kb: str) -> float:
    """Seconds from the first file to the last vector."""
    assert process.writing is not None

    async def emit(_event: FileEvent) -> None:
        return None

    began = time.perf_counter()
    await process.writing.ingest(FolderRequest(kb, str(folder)), emit)
    await process.writing.wait_embedded(kb)
    return time.perf_counter() - began


async def measure(data: Path, scratch: Path, count: int) -> dict[str, Any]:
    """Three pairs."""
    folder = scratch / "passages"
    folder.mkdir()
    write_passages(folder, data, count)
    settings, _ = load_settings(None, {"store.path": str(scratch / "store")}, {})
    vectors = settings.ingest.vectors
    pairs: list[tuple[float, float]] = []
    async with open_process(settings, write=True) as process:
        embedder = process.reading.embedder
        assert embedder is not None
        for number in range(3):
            kb = f"kb{number}"
            whole = await ingest(process, folder, kb)
            ids = process.reading.reader.changes(kb, 0).added
            texts = [passage_text(row) for row in process.reading.reader.rows(kb, ids)]
            alone = await raw(embedder, texts, vectors.batch_size, vectors.lanes)
            pairs.append((len(texts) / alone, len(texts) / whole))
    return {
        "chunks": len(texts),
        "raw_per_s": [round(a, 1) for a, _ in pairs],
        "ingest_per_s": [round(b, 1) for _, b in pairs],
        "share": round(statistics.median(b / a for a, b in pairs), 3),
    }


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--passages", type=int, default=400)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = asyncio.run(measure(options.data, Path(scratch), options.passages))
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    result |= {
        "seed": SEED,
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, load {load}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
