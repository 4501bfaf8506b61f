"""A folder of 100 MB of text: parsed, chunked and searchable by words; time and memory.

Run: python benchmarks/ingest/bulk.py --data FOLDER [--megabytes 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from forebay.app.operations import context
from forebay.app.runtime import open_process
from forebay.app.settings import load_settings
from forebay.kernel.clock import SystemClock
from forebay.kernel.stages import SearchRequest
from forebay.pipeline.folders import FileEvent, FolderRequest
from forebay.retrieval import HybridRetriever

SEED = 20260101
SETS = ("scifact_train", "xquad_en", "xquad_zh", "drcd_dev", "tatqa_dev", "hotpotqa_train100")


def machine() -> str:
    """What the figures depend on."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{platform.platform()}, {os.cpu_count()} cores, load {load}"


class Memory:
    """The most resident memory of this process and its children, sampled ten times a second."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.1):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)


def write_corpus(folder: Path, source: Path, megabytes: int) -> int:
    """Real passages in seeded order, as text files of 2 to 400 kB; returns the bytes written."""
    passages: list[str] = []
    for name in SETS:
        with (source / name / "corpus.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                passages.append(f"{row.get('title', '')}\n\n{row['text']}")
    chance = random.Random(SEED)
    written, number = 0, 0
    while written < megabytes * 1_000_000:
        size = int(2_000 * 200 ** chance.random())
        text = ""
        while len(text.encode()) < size:
            text += chance.choice(passages) + "\n\n"
        data = text.encode()
        (folder / f"{number % 50:02}").mkdir(exist_ok=True)
        (folder / f"{number % 50:02}" / f"text-{number:05}.txt").write_bytes(data)
        written += len(data)
        number += 1
    return written


async def measure(folder: Path, store: Path) -> dict[str, Any]:
    """Ingest, then search once."""
    flags = {"store.path": str(store), "embedding.backend": "none"}
    settings, _ = load_settings(None, flags, {})
    outcomes: dict[str, int] = {}

    async def emit(event: FileEvent) -> None:
        outcomes[event.outcome] = outcomes.get(event.outcome, 0) + 1

    async with open_process(settings, write=True) as process:
        assert process.writing is not None
        started = time.perf_counter()
        with Memory() as memory:
            await process.writing.ingest(FolderRequest("bulk", str(folder)), emit)
        seconds = time.perf_counter() - started
        reading = process.reading
        retriever = HybridRetriever(
            reading.indexes.get, None, settings.retrieval, reading.threads.executor
        )
        found = await retriever.retrieve(
            context(SystemClock()), SearchRequest("bulk", "vitamin D deficiency")
        )
        chunks = reading.reader.kb("bulk").chunks
    return {
        "outcomes": outcomes,
        "chunks": chunks,
        "seconds": round(seconds, 1),
        "peak_memory_mb": round(memory.peak_bytes / 1e6),
        "hits": len(found.hits),
    }


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--megabytes", type=int, default=100)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "bulk")
        folder.mkdir()
        written = write_corpus(folder, options.data / "retrieval", options.megabytes)
        result = asyncio.run(measure(folder, Path(scratch, "store")))
    result |= {"bytes": written, "seed": SEED, "machine": machine()}
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
