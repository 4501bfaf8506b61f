"""Token states, first-stage candidates and splits of the shared sets, kept in a cache folder.

States are the default embedder's last layer (float16), candidates the first fifty of the
production hybrid. A question belongs to the held-out half when the CRC-32 of its first relevant
document's id is odd: both languages of a paragraph are on one side, and no held-out paragraph was
an answer in training.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.retrieval.quality import CachedEmbedder, fill, lines, read
from forebay.embedding.e5 import e5_spec
from forebay.embedding.e5_build import ensure_e5
from forebay.embedding.encoder import OnnxEncoder, SessionSettings
from forebay.embedding.prefixes import E5
from forebay.embedding.tokenizers import SentencePieceTokenizer
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import EmbedderSpec, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

DEPTH = 50
PATIENT = RetrievalSettings(vector_timeout_ms=30_000, words_timeout_ms=30_000)
"""Other work on the machine must not decide what is found."""
MAX_TOKENS = 512
VECTORS = EmbedderSpec("cached", "cached", 384, MAX_TOKENS)
Halves = npt.NDArray[np.float16]


class Places(msgspec.Struct, frozen=True):
    """Where things are: the shared sets, made states and candidates, ``<set>.npz`` of vectors."""

    data: Path
    cache: Path
    vectors: Path


class Texts:
    """The token states of one file of one set, by id; made once."""

    def __init__(self, places: Places, name: str, file: str) -> None:
        self.name = name
        rows = lines(places.data / name / f"{file}.jsonl")
        self.place = {row["_id"]: at for at, row in enumerate(rows)}
        self.texts = [text_of(row) for row in rows]
        path = places.cache / f"{name}.{file}.npy"
        if not path.exists():
            make_states(self.texts, "query" if file == "queries" else "passage", path, places)
        self.states: Halves = np.load(path)
        ends = np.load(path.with_suffix(".ends.npy"))
        self.starts = np.concatenate([[0], ends])

    def __getitem__(self, key: str) -> Halves:
        at = self.place[key]
        return self.states[self.starts[at] : self.starts[at + 1]]


def text_of(row: dict[str, Any]) -> str:
    return str(row.get("title", "") + "\n" + row["text"]).strip()


def spec(places: Places) -> EmbedderSpec:
    """The embedder whose states these are: the default one, no language taken off."""
    return e5_spec(ensure_e5(places.cache / "models"))


def make_states(texts: list[str], kind: str, path: Path, places: Places) -> None:
    files = ensure_e5(places.cache / "models")
    tokenizer = SentencePieceTokenizer(files.tokenizer)
    encoder = OnnxEncoder(files.model, SessionSettings(), final_graph=True)
    prefix = E5.query if kind == "query" else E5.passage
    parts = [
        encoder.states(tokenizer.encode(prefix + text, MAX_TOKENS)).astype(np.float16)
        for text in texts
    ]
    np.save(path.with_suffix(".ends.npy"), np.cumsum([len(part) for part in parts]))
    np.save(path, np.concatenate(parts))


class Pair:
    """Questions of one set put to the documents of another (or the same)."""

    def __init__(self, places: Places, questions: str, documents: str) -> None:
        self.name = questions if questions == documents else f"{questions} on {documents}"
        self.relevant: dict[str, list[str]] = {}
        for line in (places.data / questions / "qrels.tsv").read_text().splitlines()[1:]:
            query, document, grade = line.split("\t")
            if int(grade) > 0:
                self.relevant.setdefault(query, []).append(document)
        path = places.cache / f"hybrid.{questions}.{documents}.json"
        if not path.exists():
            found = asyncio.run(search(places, questions, documents))
            path.write_text(json.dumps(found), encoding="utf-8")
        self.found: dict[str, list[tuple[str, float]]] = json.loads(path.read_text("utf-8"))
        self.questions = Texts(places, questions, "queries")
        self.documents = Texts(places, documents, "corpus")
        self.training = [query for query in self.found if not held_out(self.relevant[query])]
        self.held_out = [query for query in self.found if held_out(self.relevant[query])]


def held_out(documents: list[str]) -> bool:
    return zlib.crc32(min(documents).encode()) % 2 == 1


async def search(
    places: Places, questions: str, documents: str
) -> dict[str, list[tuple[str, float]]]:
    """The first fifty documents of each question with their fused scores."""
    chosen = read(places.data, [documents], questions)
    rows = np.load(places.vectors / f"{documents}.npz")["docs"]
    asked = np.load(places.vectors / f"{questions}.npz")
    texts = {row["_id"]: row["text"] for row in chosen.queries}
    vectors = zip(asked["query_ids"].tolist(), asked["queries"], strict=True)
    embedder = CachedEmbedder({texts[key]: row for key, row in vectors if key in texts})
    record = MemoryIndexFeed(VECTORS.dimensions)
    names = fill(record, chosen, rows)
    clock = SystemClock()
    result = {}
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: VECTORS.fingerprint
        )
        retriever = HybridRetriever(lambda kb: index, embedder, PATIENT, pool)
        for query in chosen.queries:
            context = RequestContext(
                request_id="b",
                principal=Principal(),
                deadline=Deadline.after(60, clock),
                clock=clock,
            )
            request = SearchRequest(kb="kb", query=query["text"], top_k=DEPTH)
            hits = (await retriever.retrieve(context, request)).hits
            result[query["_id"]] = [
                (names[hit.chunk.chunk_id].split("/", 1)[1], hit.score) for hit in hits
            ]
        index.close()
    return result
