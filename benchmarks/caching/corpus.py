"""100,000 generated one-chunk documents in a store that a server opens as its own, and questions.

Texts are sentences of real passages and vectors are those of real passages with noise
(benchmarks/retrieval/speed.py), stored under the default embedder's name: to embed 100,000 texts
takes half an hour, and no figure here depends on what is found. Questions go through the real
embedder.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import time
from itertools import islice
from pathlib import Path

import faiss
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "retrieval"))

import speed
from carry import all_questions, one_chunk_documents
from quality import embed_sets

from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import EmbedderSpec
from forebay.retrieval import KbIndex, RetrievalSettings
from forebay.store import StoreWriter

KB = "kb"
QUESTIONS = 20_000
FRESH = 60_000
PER_COMMIT = 1_000
SEED = 5


def store(data: Path, cache: Path, chunks: int) -> Path:
    """The folder of a store and its index; made once, which takes minutes."""
    folder = cache / f"served-{chunks}"
    if (folder / "built").exists():
        # What an older release built is brought up here, once, and not by every server.
        writer = StoreWriter(folder)
        _index(writer, folder, asyncio.run(_spec(cache)))
        writer.close()
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    spec = asyncio.run(_spec(cache))
    asyncio.run(embed_sets(data / "retrieval", cache))
    made = one_chunk_documents(speed.load(data / "retrieval", cache), 0)
    writer = StoreWriter(folder)
    for _ in range(0, chunks, PER_COMMIT):
        drafts, rows = zip(*islice(made, PER_COMMIT), strict=True)
        writer.commit(KB, list(drafts), [])
        writer.begin_reembed(KB, spec)
        ids = tuple(row.chunk_id for row in writer.pending(KB, PER_COMMIT))
        vectors = Vectors(ids, spec.dimensions, np.concatenate(rows).tobytes())
        writer.store_vectors(KB, vectors, spec.fingerprint)
    began = time.perf_counter()
    _index(writer, folder, spec)
    writer.close()
    (folder / "built").write_text(f"{time.perf_counter() - began:.1f} s for the index\n")
    return folder


def _index(writer: StoreWriter, folder: Path, spec: EmbedderSpec) -> None:
    index = KbIndex.open(
        folder / "indexes" / KB,
        KB,
        writer.reader,
        writable=True,
        settings=RetrievalSettings(),
        fingerprint=lambda: spec.fingerprint,
    )
    while index.maintain(force=True):
        pass
    index.close()


async def _spec(cache: Path) -> EmbedderSpec:
    embedder = await open_embedder(EmbeddingSettings(), cache=cache / "models", clock=SystemClock())
    assert embedder is not None
    spec = embedder.spec
    await embedder.close()
    return spec


def questions(data: Path, cache: Path) -> list[str]:
    """20,000 questions: the sets' own, then beginnings of their sentences asked as questions."""
    real, _ = all_questions(data / "retrieval", cache)
    return list(islice(dict.fromkeys([*real, *_asked(data, cache)]), QUESTIONS))


def fresh(data: Path, cache: Path) -> list[str]:
    """Questions that nobody else asks."""
    known = set(questions(data, cache))
    return [text for text in dict.fromkeys(_asked(data, cache)) if text not in known][:FRESH]


def _asked(data: Path, cache: Path) -> list[str]:
    material = speed.load(data / "retrieval", cache)
    english, chinese = material.sentences
    found = [" ".join(text.split()[:12]).rstrip(".,;:!? ") + "?" for text in english]
    found += [re.split("[，。；]", text)[0][:24] + "？" for text in chinese]
    order = np.random.default_rng(SEED).permutation(len(found))
    return [found[i] for i in order if 8 < len(found[i]) < 200 and "\n" not in found[i]]


if __name__ == "__main__":
    faiss.omp_set_num_threads(2)
    data, cache = Path(sys.argv[1]), Path(sys.argv[2])
    print(store(data, cache, int(sys.argv[3])))
    print(len(questions(data, cache)), len(fresh(data, cache)))
