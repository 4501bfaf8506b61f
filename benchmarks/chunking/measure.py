"""Chunks by length, structure and meaning, with and without overlap, on long documents.

    python benchmarks/chunking/measure.py --data ../shared/data --cache ~/.cache/forebay-bench \
        xquad_en xquad_zh > benchmarks/chunking/result.json

Retrieval is the product's (words and vectors); vectors are kept in ``--cache`` by text.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from cutting import Way, cut
from documents import Long, LongSet, answers_in, read

from forebay.embedding.counting import open_e5_counter
from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkDraft, Vectors
from forebay.kernel.stages import Embedder, EmbedderSpec, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

OVERLAPS = (0, 128, 256)
BUDGET_TOKENS = 1_024
"""What of a prompt passages may fill in the third measure: chunks differ in size."""
WAYS = (
    *(Way("fixed", 512, overlap) for overlap in OVERLAPS),
    *(Way("meaning", 512, overlap) for overlap in OVERLAPS),
    Way("structure", 512, 0),
    Way("structure", 256, 32),
    Way("meaning", 256, 32),
)
FEW = (
    Way("fixed", 512, 0),
    Way("meaning", 512, 0),
    Way("structure", 512, 0),
    Way("structure", 256, 32),
)
SPEC = EmbedderSpec("cached", "cached", 384, 512)
Rows = npt.NDArray[np.float32]


class Remembering:
    """An embedder whose vectors outlive the run."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._known: dict[str, bytes] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.npz"):
            kept = np.load(file)
            self._known |= dict(
                zip(kept["keys"].tolist(), (row.tobytes() for row in kept["rows"]), strict=True)
            )

    @property
    def spec(self) -> EmbedderSpec:
        """Identity does not matter here."""
        return SPEC

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """Embed what is not known yet, and keep it."""
        keys = [hashlib.sha256(f"{kind}\0{text}".encode()).hexdigest()[:32] for text in texts]
        missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in self._known}
        for at in range(0, len(missing), 64):
            some = list(missing)[at : at + 64]
            found = await self._inner.embed([missing[key] for key in some], kind=kind)
            rows = np.frombuffer(found.data, "<f4").reshape(len(some), -1)
            self._known |= dict(zip(some, (row.tobytes() for row in rows), strict=True))
        if missing:
            new = list(missing)
            rows = np.frombuffer(b"".join(self._known[k] for k in new), "<f4")
            np.savez(self._folder / f"{new[0]}.npz", keys=new, rows=rows.reshape(len(new), -1))
        data = b"".join(self._known[key] for key in keys)
        return Vectors(tuple(range(len(texts))), SPEC.dimensions, data)

    async def rows(self, texts: Sequence[str]) -> Rows:
        """Vectors of passages as a matrix."""
        found = await self.embed(texts, kind="passage")
        return np.frombuffer(found.data, "<f4").reshape(len(texts), -1)


async def measure(way: Way, chosen: LongSet, embedder: Remembering, counter: Any) -> dict[str, Any]:
    """Cut, index and ask one set."""
    record = MemoryIndexFeed(SPEC.dimensions)
    places: dict[int, tuple[Long, ChunkDraft]] = {}
    language = "zh" if chosen.name in ("xquad_zh", "drcd_dev") else "en"
    for document in chosen.documents:
        for chunk in await cut(way, document.extracted, counter, embedder.rows):
            [number] = record.add(chunk.text, document=document.name, language=language)
            places[number] = (document, chunk)
    texts = [chunk.text for _, chunk in places.values()]
    record.embed(dict(zip(places, await embedder.rows(texts), strict=True)))
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        retriever = HybridRetriever(lambda kb: index, embedder, RetrievalSettings(), pool)
        await embedder.embed([q.text for q in chosen.questions], kind="query")
        hits: dict[str, list[tuple[bool, bool, bool]]] = {"words": [], "vectors": [], "both": []}
        began = time.process_time()
        for question in chosen.questions:
            for leg, ids in (await ask(index, retriever, embedder, question.text)).items():
                right = [answers_in(question, *places[i]) for i in ids]
                used = np.cumsum([places[i][1].tokens for i in ids])
                fits = int(np.searchsorted(used, BUDGET_TOKENS, side="right"))
                hits[leg].append((any(right[:5]), any(right[:1]), any(right[: max(1, fits)])))
        spent = time.process_time() - began
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        index.close()
    whole = "".join(texts).encode()
    return {
        "way": way.name,
        "chunks": len(places),
        "mean_tokens": round(sum(c.tokens for _, c in places.values()) / len(places), 1),
        "characters": len("".join(texts)),
        "index_bytes": size,
        "zlib_ratio": round(len(whole) / len(zlib.compress(whole, 6)), 3),
        "cpu_ms_per_question": round(spent / len(chosen.questions) * 1000, 2),
        **{
            leg: {
                name: round(float(np.mean([each[at] for each in found])), 4)
                for at, name in enumerate(("recall@5", "recall@1", "recall@1024 tokens"))
            }
            for leg, found in hits.items()
        },
    }


async def ask(
    index: KbIndex, retriever: HybridRetriever, embedder: Remembering, text: str
) -> dict[str, list[int]]:
    """The first twenty by words, by vectors, and by both."""
    snapshot = index.snapshot()
    words = snapshot.lexical.search(snapshot.lexical.parse(text), (), 20).ids.tolist()
    query = np.frombuffer((await embedder.embed([text], kind="query")).data, "<f4")
    nearest = snapshot.search_vectors(query[None], 20, ())[0].tolist()
    clock = SystemClock()
    context = RequestContext(
        request_id="b", principal=Principal(), deadline=Deadline.after(60, clock), clock=clock
    )
    result = await retriever.retrieve(context, SearchRequest(kb="kb", query=text, top_k=20))
    both = [hit.chunk.chunk_id for hit in result.hits]
    return {"words": words, "vectors": nearest, "both": both}


async def main() -> None:
    """Measure every way on every set named and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--few", action="store_true", help="only one way of each kind")
    parser.add_argument("--unbroken", action="store_true", help="no paragraphs: a space between")
    given = parser.parse_args()
    ways = FEW if given.few else WAYS
    clock = SystemClock()
    inner = await open_embedder(EmbeddingSettings(), cache=given.cache / "models", clock=clock)
    embedder = Remembering(inner, given.cache / "chunking")
    counter = open_e5_counter(given.cache / "models")
    results: dict[str, Any] = {}
    for name in given.sets:
        chosen = read(given.data / "retrieval", name, " " if given.unbroken else "\n\n")
        results[name] = {
            "documents": len(chosen.documents),
            "questions": len(chosen.questions),
            "ways": [],
        }
        for way in ways:
            results[name]["ways"].append(await measure(way, chosen, embedder, counter))
            print(name, results[name]["ways"][-1], file=sys.stderr, flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    json.dump({"machine": machine, "commit": commit, "sets": results}, sys.stdout, indent=1)


if __name__ == "__main__":
    asyncio.run(main())
