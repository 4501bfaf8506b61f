"""What the light encoder of queries finds, and where it does without the embedder.

    python benchmarks/retrieval/light.py --data ../shared/data > benchmarks/retrieval/light.json

One encoder is fitted, as a server does in the background, to sentences of all sets' documents and
to pieces of them put as questions; no set's own questions are seen. Then every question is asked of
the production retriever by words alone, by words and the light vector, and by words and the
embedder's. The chance that the embedder would find better (nDCG@10 by .01) is fitted to the even
half of the questions (CRC-32 of the text), all pairs of equal weight: the coefficients of
``forebay.retrieval.light``. Judged are the odd halves by those, and each set of questions by
coefficients fitted to the others' alone (``left_out``). ``--every``: one question in so many.
Vectors are cached in ``--cache``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import quality

from forebay.embedding.centering import LanguageMeans, centred
from forebay.embedding.e5 import open_e5
from forebay.embedding.encoder import SessionSettings
from forebay.embedding.light import LightDescription, LightEncoder
from forebay.embedding.light_fit import LightTraining, fit_light, question_like
from forebay.embedding.local import LocalEmbedder, LocalSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import PartUse, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.retrieval.both import rank_both
from forebay.retrieval.fusion import word_features
from forebay.retrieval.legs import search_vectors
from forebay.retrieval.light import RISK, LightRetriever, signs
from forebay.retrieval.relevance import Exit, decide, probability
from forebay.retrieval.searching import Searching
from forebay.retrieval.several import wants_several
from forebay.retrieval.words import Words

SENTENCES = {"drcd_dev": 4000, "tatqa_dev": 1500, "hotpotqa_train100": 2000, "scifact_train": 2500}
QUESTIONS = 0.45
SEED = 3
BETTER = 0.01
KNOWN = 0.5
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
CLOCK = SystemClock()


def texts_of(data: Path) -> list[str]:
    """Sentences of all documents, and pieces of some put as questions."""
    chance = random.Random(SEED)
    found: list[str] = []
    for name in quality.SETS:
        cut = [
            one.strip()[:400]
            for row in quality.lines(data / name / "corpus.jsonl")
            for one in _END.split(row["text"])
            if len(one.strip()) > 7
        ]
        most = SENTENCES.get(name, len(cut))
        found += chance.sample(cut, most) if len(cut) > most else cut
    return found + [question_like(one, chance) for one in found if chance.random() < QUESTIONS]


async def fitted(data: Path, cache: Path, embedder: LocalEmbedder) -> LightEncoder:
    """The encoder; texts are embedded once, and fitted to once."""
    kept = LightEncoder.read(cache / "light.npz")
    if kept is not None:
        return kept
    texts_file, rows_file = cache / "light.texts.json", cache / "light.rows.npy"
    if not rows_file.exists():
        texts = texts_of(data)
        parts = [
            (await embedder.embed(texts[start : start + 256], kind="query")).data
            for start in range(0, len(texts), 256)
        ]
        rows = np.frombuffer(b"".join(parts), "<f4").reshape(len(texts), -1)
        np.save(rows_file, rows.astype(np.float16))
        texts_file.write_text(json.dumps(texts, ensure_ascii=False), "utf-8")
    texts = json.loads(texts_file.read_text("utf-8"))
    means = LanguageMeans.shipped()
    mean = np.stack([means.mean(text, "query") for text in texts])
    rows = centred(np.load(rows_file).astype(np.float32), mean)
    tokens = [embedder.tokens(text) for text in texts]
    # Long ones and short ones, as a server has them, held out alike.
    order = random.Random(SEED).sample(range(len(texts)), len(texts))
    made = fit_light([tokens[i] for i in order], rows[order], LightTraining())
    assert made is not None
    told = LightDescription("cached", 0, len(texts), made.cosine)
    encoder = LightEncoder.of(told, made.ids, made.rows, made.weights)
    encoder.write(cache / "light.npz")
    return encoder


def ndcg(ranked: Sequence[str], relevant: set[str]) -> float:
    """nDCG@10 with grades of 0 and 1."""
    gains = (1 / math.log2(at + 2) for at, one in enumerate(ranked[:10]) if one in relevant)
    return sum(gains) / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant))))


def context() -> RequestContext:
    """A request with time."""
    return RequestContext(
        request_id="b", principal=Principal(), deadline=Deadline.after(60, CLOCK), clock=CLOCK
    )


async def measure(
    options: argparse.Namespace, corpora: Sequence[str], questions: str, light: Any
) -> list[dict[str, Any]]:
    """Each question: nDCG@10 by words, light and full, and what is decided by."""
    data, cache = options.data / "retrieval", options.cache
    chosen = quality.read(data, corpora, questions)
    vectors = np.concatenate([quality.load_vectors(data, cache, one, "corpus") for one in corpora])
    texts = [row["text"] for row in quality.lines(data / questions / "queries.jsonl")]
    asked = quality.load_vectors(data, cache, questions, "queries")
    embedder = quality.CachedEmbedder(dict(zip(texts, asked, strict=True)))
    record = quality.MemoryIndexFeed(quality.SPEC.dimensions)
    names = quality.fill(record, chosen, vectors)
    settings = RetrievalSettings(early_exit_confidence=2.0)
    rows = []
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: "cached"
        )
        get = lambda kb: index  # noqa: E731
        ways = (
            HybridRetriever(get, None, settings, pool),
            LightRetriever(get, light, "cached", settings, pool),
            HybridRetriever(get, embedder, settings, pool),
        )
        searching = Searching(get, settings, pool)
        for query in chosen.queries[:: options.every]:
            text = query["text"]
            request = SearchRequest(kb="kb", query=text, top_k=10)
            found = []
            for way in ways:
                hits = (await way.retrieve(context(), request)).hits
                ranked = [names[hit.chunk.chunk_id] for hit in hits]
                found.append(ndcg(ranked, chosen.relevant[query["_id"]]))
            rows.append({"text": text, "ndcg": found, **decided(searching, request, light)})
        index.close()
    return rows


def decided(searching: Searching, request: SearchRequest, light: Any) -> dict[str, Any]:
    """Whether words are sure, and the signs of the light ranking (None: it has no say)."""
    with searching.entered(context(), request) as search:
        lexical = search.snapshot.lexical
        query = lexical.parse(request.query)
        hits = lexical.search(query, search.demands, search.limit)
        features = word_features(query, hits.scores, hits.coverage)
        settings = RetrievalSettings()
        several = wants_several(request.query, None)
        early = decide(
            features, settings.relevance, settings.early_exit_confidence, several=several
        )
        vector = light(request.query)
        if several or vector is None or not len(hits.ids):
            return {"exit": early.taken, "signs": None}
        words = Words(query, hits, features, Exit(False, math.inf), PartUse("bm25", 0.0))
        both = rank_both(settings, search, words, search_vectors(search, vector, hits))
        sure = probability(features, settings.relevance)
        return {"exit": early.taken, "signs": signs(both, sure, words)}


def logistic(rows: Any, wanted: Any, weights: Any) -> Any:
    """Coefficients by Newton's method with a little ridge."""
    beta = np.zeros(rows.shape[1])
    for _ in range(60):
        told = 1 / (1 + np.exp(-rows @ beta))
        slope = rows.T @ (weights * (told - wanted)) + 1e-3 * beta
        bend = (rows * (weights * told * (1 - told))[:, None]).T @ rows
        beta -= np.linalg.solve(bend + 1e-3 * np.eye(len(beta)), slope)
    return beta


def fit(pairs: Sequence[list[dict[str, Any]]]) -> Any:
    """Coefficients over some pairs, each of equal weight."""
    rows, wanted, weights = [], [], []
    for pair in pairs:
        some = [row for row in pair if row["signs"] is not None]
        rows += [row["signs"] for row in some]
        wanted += [row["ndcg"][2] - row["ndcg"][1] > BETTER for row in some]
        weights += [1 / len(some)] * len(some)
    return logistic(np.array(rows), np.array(wanted, float), np.array(weights))


def judged(rows: list[dict[str, Any]], beta: Any, risk: float = RISK) -> dict[str, Any]:
    """How one pair fares by coefficients; ``spared_words``: words in the light one's place."""
    words, light, full, now, cascade, alone = [], [], [], [], [], []
    embedded = before = 0
    for row in rows:
        by_words, lightly, fully = row["ndcg"]
        words.append(by_words), light.append(lightly), full.append(fully)
        odds = math.inf if row["signs"] is None else float(np.dot(beta, row["signs"]))
        spared = odds < math.log(risk / (1 - risk))
        now.append(by_words if row["exit"] else fully)
        cascade.append(by_words if row["exit"] else lightly if spared else fully)
        alone.append(by_words if row["exit"] or spared else fully)
        before += not row["exit"]
        embedded += not (row["exit"] or spared)
    mean = lambda values: round(float(np.mean(values)), 4)  # noqa: E731
    return {
        "questions": len(rows),
        "words": mean(words),
        "light": mean(light),
        "both": mean(full),
        "with_exits": mean(now),
        "first": mean(cascade),
        "spared_words": mean(alone),
        "embedded_with_exits": round(before / len(rows), 3),
        "embedded_first": round(embedded / len(rows), 3),
    }


def at_risk(pairs: dict[str, Any], betas: dict[str, Any], risk: float) -> dict[str, float]:
    """Means over all pairs, each set judged by coefficients of the others."""
    found = [judged(rows, betas[name], risk) for name, rows in pairs.items()]
    moved = [one["first"] - one["with_exits"] for one in found]
    return {
        "risk": risk,
        "embedded": round(float(np.mean([one["embedded_first"] for one in found])), 3),
        "mean": round(float(np.mean(moved)), 4),
        "worst": round(min(moved), 4),
    }


def odd(row: dict[str, Any]) -> bool:
    """Whether a question is of the half that is judged."""
    return zlib.crc32(row["text"].encode()) % 2 == 1


async def main() -> None:
    """Fit, ask, fit, judge; print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", action="append", default=[], help="a set to leave out")
    options = parser.parse_args()
    data, cache = options.data / "retrieval", options.cache
    if not options.skip:
        await quality.embed_sets(data, cache)
    embedder = open_e5(
        cache / "models", session=SessionSettings(), settings=LocalSettings(), clock=CLOCK
    )
    encoder = await fitted(data, cache, embedder)
    print(encoder.description, encoder.tokens, file=sys.stderr, flush=True)

    def light(text: str) -> Any:
        vector, known = encoder.encode(embedder.tokens(text))
        return vector if known >= KNOWN else None

    pairs = {}
    for questions, corpora in quality.PAIRS:
        if not set(options.skip) & {questions, *corpora}:
            name = f"{questions} on {'+'.join(corpora)}"
            pairs[name] = await measure(options, corpora, questions, light)
            means = np.array([row["ndcg"] for row in pairs[name]]).mean(axis=0)
            print(name, means.round(4).tolist(), file=sys.stderr, flush=True)
    await embedder.close()
    beta = fit([[row for row in rows if not odd(row)] for rows in pairs.values()])
    asked = {name: name.split(" ")[0].split("_")[0] for name in pairs}
    betas = {
        name: fit([pairs[one] for one in pairs if asked[one] != asked[name]]) for name in pairs
    }
    report = {
        "encoder": msgspec.to_builtins(encoder.description),
        "tokens": encoder.tokens,
        "every": options.every,
        "skipped": options.skip,
        "coefficients": [round(float(one), 3) for one in beta],
        "odd_half": {n: judged([r for r in rows if odd(r)], beta) for n, rows in pairs.items()},
        "left_out": {name: judged(rows, betas[name]) for name, rows in pairs.items()},
        "risks": [at_risk(pairs, betas, risk) for risk in (0.03, 0.05, 0.08, 0.12, 0.2, 0.3)],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
