"""Candidates of every retrieval set's questions, as the production search finds them.

Vectors are those that ``benchmarks/retrieval/quality.py`` keeps in ``--cache``; rows gathered are
kept there too, under the mark of what they depend on.
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

sys.path.insert(0, str(Path(__file__).parent.parent / "retrieval"))

from quality import SPEC, CachedEmbedder, fill, lines, load_vectors, read

from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Hit
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
            made = candidates_of(query["text"], result.hits, result.vectors)
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
    import numpy as np

    return np.concatenate(parts)


def _sources() -> str:
    """The code that candidates and features come from."""
    import forebay.rerank.features as features
    import forebay.rerank.places as places
    import forebay.retrieval.fusion as fusion
    import forebay.retrieval.retriever as retriever
    import forebay.retrieval.terms as terms

    digest = hashlib.sha256()
    for module in (features, places, fusion, retriever, terms):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """Where figures were taken."""
    from forebay.lab.measure.machine import describe_commit, describe_machine

    return {
        "machine": json.loads(msgspec.json.encode(describe_machine())),
        "commit": json.loads(msgspec.json.encode(describe_commit())),
    }
