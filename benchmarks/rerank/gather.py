"""Candidates of every retrieval set's questions, as the production search finds them.

Vectors are those that ``benchmarks/retrieval/quality.py`` keeps in ``--cache``; those of single
sentences are made as ingest makes them (half an hour of one core, once) and kept there, as are the
rows gathered, under the mark of what they depend on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "retrieval"))

from quality import SPEC, CachedEmbedder, fill, lines, load_vectors, read

from forebay.app.sentence_record import sentences_of
from forebay.embedding.opening import open_embedder
from forebay.embedding.sentence_vectors import nearest, pack
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Hit, Vectors
from forebay.kernel.stages import SearchRequest
from forebay.lab.distill.light_data import LightRow, is_held_out
from forebay.rerank.features import FEATURES_VERSION, candidates_of
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

NEVER_EARLY = 2.0
Pair = tuple[str, tuple[str, ...]]
PAIRS: dict[str, Pair] = {
    "scifact": ("scifact_train", ("scifact_train",)),
    "tatqa": ("tatqa_dev", ("tatqa_dev",)),
    "hotpot": ("hotpotqa_train100", ("hotpotqa_train100",)),
    "xquad zh on en": ("xquad_zh", ("xquad_en",)),
    "xquad en on zh": ("xquad_en", ("xquad_zh",)),
    "xquad en": ("xquad_en", ("xquad_en",)),
    "xquad zh": ("xquad_zh", ("xquad_zh",)),
    "drcd": ("drcd_dev", ("drcd_dev",)),
    "xquad zh on en + drcd": ("xquad_zh", ("xquad_en", "drcd_dev")),
    "tatqa + xquad zh + drcd": ("tatqa_dev", ("tatqa_dev", "xquad_zh", "drcd_dev")),
}
"""Questions, and the documents they are put to: the first set holds the answers."""
MAIN = ("scifact", "tatqa", "hotpot", "xquad zh on en")
UNSEEN = ("tatqa + xquad zh + drcd", "xquad zh on en + drcd")
"""Trained on by no model here: what is relevant there is told by its language alone."""
MOST_OF_A_SET = 700
SEARCH = msgspec.structs.replace(
    RetrievalSettings(), vector_timeout_ms=600_000, early_exit_confidence=NEVER_EARLY
)
"""Every question goes through both legs: words that are sure end no search, so all count."""


class Gathered(msgspec.Struct, frozen=True):
    """A row and what a dear model would read."""

    row: LightRow
    hits: tuple[Hit, ...]


def gather(data: Path, cache: Path, name: str, candidates: int) -> list[Gathered]:
    """The candidates of one pair, from ``cache`` where they are already there."""
    mark = hashlib.sha256(
        f"{FEATURES_VERSION} {candidates} {SEARCH} {_sources()}".encode()
    ).hexdigest()[:12]
    path = cache / f"rerank.{name.replace(' ', '_')}.{mark}.pickle"
    if not path.exists():
        path.write_bytes(pickle.dumps(asyncio.run(_gathered(data, cache, name, candidates))))
        print(f"gathered {name}", file=sys.stderr, flush=True)
    found: list[Gathered] = pickle.loads(path.read_bytes())
    return found


def trainable(data: Path, name: str, rows: Sequence[LightRow]) -> list[LightRow]:
    """The training half; of parallel questions only those whose other language is in it too."""
    kept = [row for row in rows if not row.held_out]
    questions, _ = PAIRS[name]
    if not questions.startswith("xquad"):
        return kept[:MOST_OF_A_SET]
    sides = [lines(data / one / "queries.jsonl") for one in ("xquad_en", "xquad_zh")]
    texts = [{q["_id"]: q["text"] for q in side} for side in sides]
    clean = {
        text[i]
        for i in texts[0].keys() & texts[1].keys()
        for text in texts
        if not any(is_held_out(one[i]) for one in texts)
    }
    return [row for row in kept if row.question in clean]


async def _gathered(data: Path, cache: Path, name: str, candidates: int) -> list[Gathered]:
    questions, corpora = PAIRS[name]
    chosen = read(data, corpora, questions)
    record = MemoryIndexFeed(SPEC.dimensions)
    parts = [load_vectors(data, cache, one, "corpus") for one in corpora]
    names = fill(record, chosen, _joined(parts))
    asked = load_vectors(data, cache, questions, "queries")
    texts = [q["text"] for q in lines(data / questions / "queries.jsonl")]
    embedder = CachedEmbedder(dict(zip(texts, asked, strict=True)))
    sentences = await _sentences(cache, corpora, list(record.live.values()))
    found: list[Gathered] = []
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        retriever = HybridRetriever(lambda kb: index, embedder, SEARCH, pool, with_vectors=True)
        for query in chosen.queries:
            clock = SystemClock()
            context = RequestContext(
                request_id="b",
                principal=Principal(),
                deadline=Deadline.after(600, clock),
                clock=clock,
            )
            request = SearchRequest(kb="kb", query=query["text"], top_k=candidates)
            result = await retriever.retrieve(context, request)
            if result.vectors is None:
                raise SystemExit(f"{name}: a question was found without vectors")
            blobs = [sentences[hit.chunk.chunk_id] for hit in result.hits]
            told = nearest(blobs, result.vectors.query, SPEC.dimensions)
            vectors = msgspec.structs.replace(result.vectors, nearest=told)
            made = candidates_of(query["text"], result.hits, vectors)
            row = LightRow(
                name,
                query["text"],
                made.features,
                made.query,
                made.vectors,
                tuple(names[hit.chunk.chunk_id] for hit in result.hits),
                dict.fromkeys(chosen.relevant[query["_id"]], 1),
                is_held_out(query["text"]),
            )
            found.append(Gathered(row, result.hits))
        index.close()
    return found


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts)


async def _sentences(
    cache: Path, corpora: Sequence[str], rows: Sequence[ChunkRow]
) -> dict[int, bytes]:
    """What ingest keeps of the sentences of each chunk."""
    found: dict[int, bytes] = {}
    for corpus in corpora:
        own = [row for row in rows if row.document_id.startswith(f"{corpus}/")]
        cut = [sentences_of(row) for row in own]
        vectors = await _embedded(cache, corpus, [text for some in cut for text in some])
        at = 0
        for row, texts in zip(own, cut, strict=True):
            some = vectors[at : at + len(texts)].astype("<f4")
            ids = tuple(range(len(texts)))
            made = Vectors(ids, SPEC.dimensions, some.tobytes())
            found[row.chunk_id] = pack(texts, made) if texts else b""
            at += len(texts)
    return found


async def _embedded(cache: Path, corpus: str, texts: Sequence[str]) -> Any:
    """Vectors of sentences, from ``cache`` where they are already there."""
    mark = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
    path = cache / f"{corpus}.sentences.{mark}.npy"
    if not path.exists():
        embedder = await open_embedder(
            EmbeddingSettings(), cache=cache / "models", clock=SystemClock()
        )
        assert embedder is not None
        rows = [
            (await embedder.embed(texts[at : at + 256], kind="passage")).data
            for at in range(0, len(texts), 256)
        ]
        await embedder.close()
        matrix = np.frombuffer(b"".join(rows), "<f4").reshape(len(texts), SPEC.dimensions)
        np.save(path, matrix.astype(np.float16))
        print(f"embedded {len(texts)} sentences of {corpus}", file=sys.stderr, flush=True)
    return np.load(path)


def _sources() -> str:
    """The code that candidates and features come from."""
    import forebay.embedding.sentence_vectors as sentence_vectors
    import forebay.generation.passages as passages
    import forebay.rerank.features as features
    import forebay.rerank.places as places
    import forebay.retrieval.fusion as fusion
    import forebay.retrieval.retriever as retriever
    import forebay.retrieval.terms as terms

    digest = hashlib.sha256()
    for module in (features, places, fusion, retriever, terms, passages, sentence_vectors):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """Where figures were taken."""
    from forebay.lab.measure.machine import describe_commit, describe_machine

    return {
        "machine": json.loads(msgspec.json.encode(describe_machine())),
        "commit": json.loads(msgspec.json.encode(describe_commit())),
    }
