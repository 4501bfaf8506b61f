"""Makes src/forebay/embedding/data/e5_language_means.f4 from examples/handbook and its questions.

Mean vectors of multilingual-e5-small, float32 little-endian, (passage, query) x (zh, en) x 384.
Run ``python -m tools.language_means`` when the default model changes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np

from forebay.app.settings import load_settings, model_cache
from forebay.embedding.centering import han_share
from forebay.embedding.opening import open_plain_e5
from forebay.ingest import EstimatedTokenCounter, StructureChunker, parse
from forebay.ingest.settings import ChunkSettings
from forebay.kernel.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "forebay" / "embedding" / "data" / "e5_language_means.f4"


def passages() -> list[str]:
    """Every chunk of the handbook."""
    chunker = StructureChunker(ChunkSettings(), EstimatedTokenCounter())
    texts: list[str] = []
    for path in sorted((ROOT / "examples" / "handbook").rglob("*.*")):
        extracted = parse(path.read_bytes(), name=path.name)
        texts += [
            f"{extracted.title}\n{chunk.context}\n{chunk.text}"
            for chunk in chunker.chunk(extracted)
        ]
    return texts


def questions() -> list[str]:
    """Every question about the handbook."""
    lines = (ROOT / "examples" / "questions" / "handbook.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["question"] for line in lines.splitlines()]


async def means() -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    """(passage, query) x (zh, en) x dimensions."""
    settings, _ = load_settings(None, {}, {})
    embedder = await open_plain_e5(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    found = []
    try:
        for kind, texts in (("passage", passages()), ("query", questions())):
            vectors = await embedder.embed(texts, kind=kind)  # type: ignore[arg-type]
            rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
            chinese = np.array([han_share(text) > 0.5 for text in texts])
            found.append([rows[chinese].mean(axis=0), rows[~chinese].mean(axis=0)])
    finally:
        await embedder.close()
    return np.array(found, dtype="<f4")


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(asyncio.run(means()).tobytes())
