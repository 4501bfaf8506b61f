"""Fits and judges the probability that the best word hit is right, and what exiting on it costs.

    python benchmarks/retrieval/early_exit.py --data ../shared/data \
        > benchmarks/retrieval/early_exit.json

Both legs are run once for every question of ``quality.py``'s thirteen pairs. The logistic model is
fitted on the tuning halves (even CRC-32 of the question, as in ``tune.py``), each pair with equal
weight; calibration, the share of early exits and nDCG@10 / recall@5 with and without them are those
of the settings that are shipped, on the other halves. ``without_answer``: the right documents are
taken away, so that nothing is right. ``by_kind``: what leaving early costs questions of each kind
of their own set, and those whose words want more than one document (``several.py``), which the
product holds back; ``paired``: a permutation test of the nDCG@10 lost, by changing signs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

from quality import PAIRS, SPEC, embed_sets, fill, lines, load_vectors, read

from forebay.kernel.stages import QueryKind
from forebay.query.understanding import kind_by_words
from forebay.retrieval import KbIndex, RetrievalSettings
from forebay.retrieval.fusion import (
    QueryFeatures,
    compare_legs,
    credit_foreign,
    fuse,
    meaning_score,
    word_features,
    words_score,
    words_weight,
)
from forebay.retrieval.index import Snapshot
from forebay.retrieval.languages import foreign_mask
from forebay.retrieval.relevance import RelevanceSettings, probability
from forebay.retrieval.several import wants_several
from forebay.retrieval.terms import is_chinese
from forebay.testing.index_feed import MemoryIndexFeed

CANDIDATES = 30
RIDGE = 1.0
PER_PAIR = 300.0
"""What the questions of a pair weigh together, so that no set decides by its size."""
BINS = 10
SEED, ROUNDS = 5, 20_000
NAMES = ("share", "margin", "coverage", "known")
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Asked(msgspec.Struct, frozen=True):
    """One question: what words showed, and which of the ranked are right, by words and by both."""

    held_out: bool
    chinese: bool
    features: QueryFeatures
    bare: QueryFeatures
    words: Mask
    both: Mask
    relevant: int
    kind: QueryKind
    several: bool


def ask(data: Path, cache: Path, corpora: Sequence[str], questions: str) -> list[Asked]:
    """Run both legs once for every question of a pair."""
    chosen = read(data, corpora, questions)
    vectors = np.concatenate([load_vectors(data, cache, name, "corpus") for name in corpora])
    record = MemoryIndexFeed(SPEC.dimensions)
    names = fill(record, chosen, vectors)
    asked = load_vectors(data, cache, questions, "queries")
    place = {q["_id"]: i for i, q in enumerate(lines(data / questions / "queries.jsonl"))}
    with tempfile.TemporaryDirectory() as folder:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        snapshot = index.snapshot()
        found = [
            one(
                snapshot,
                query["text"],
                asked[place[query["_id"]]][None].astype(np.float32),
                {i for i, name in names.items() if name in chosen.relevant[query["_id"]]},
            )
            for query in chosen.queries
        ]
        index.close()
    return found


def one(snapshot: Snapshot, text: str, vector: npt.NDArray[np.float32], right: set[int]) -> Asked:
    """Ask one question both ways, as the retriever does."""
    lexical, settings = snapshot.lexical, RetrievalSettings().fusion
    query = lexical.parse(text)
    words = lexical.search(query, (), CANDIDATES)
    nearest, _ = snapshot.search_vectors(vector, CANDIDATES, ())
    ids = np.union1d(words.ids, nearest)
    bm25 = np.zeros(len(ids))
    scored = lexical.score(query, ids.tolist())
    bm25[np.searchsorted(ids, scored.ids)] = scored.scores
    cosine = snapshot.vectors.score(vector, ids)[0].astype(np.float64)
    meaning = meaning_score(cosine, snapshot.vectors.background(vector))
    features = word_features(query, words.scores, words.coverage)
    weight = words_weight(compare_legs(features, words.ids, nearest), settings)
    held = credit_foreign(
        words_score(bm25, query.ideal),
        meaning,
        foreign_mask(lexical.facts(ids.tolist()), text),
        settings.foreign_words,
    )
    ranked = ids[np.lexsort((ids, -fuse(held, meaning, weight)))]
    wrong = ~np.isin(words.ids, list(right))
    return Asked(
        zlib.crc32(text.encode()) % 2 == 1,
        is_chinese(text),
        features,
        word_features(query, words.scores[wrong], words.coverage[wrong]),
        ~wrong,
        np.isin(ranked, list(right)),
        len(right),
        kind_by_words(text),
        wants_several(text, kind_by_words(text)),
    )


def fit(pairs: Sequence[list[Asked]]) -> dict[str, float]:
    """Fit the coefficients by Newton's method, slightly ridged."""
    rows, right, weights = [], [], []
    for pair in pairs:
        tuning = [each for each in pair if not each.held_out and each.features.share > 0.0]
        rows += [inputs(each.features) for each in tuning]
        right += [float(each.words[0]) for each in tuning]
        weights += [PER_PAIR / len(tuning)] * len(tuning)
    x, y, w = np.asarray(rows), np.asarray(right), np.asarray(weights)
    ridge = np.diag([0.0] + [RIDGE] * (x.shape[1] - 1))
    beta = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-x @ beta))
        slope = x.T @ (w * (y - p)) - ridge @ beta
        curve = (x * (w * p * (1.0 - p))[:, None]).T @ x + ridge
        beta += np.linalg.solve(curve, slope)
    return dict(zip(("bias", *NAMES, "terms"), [round(float(b), 2) for b in beta], strict=True))


def inputs(features: QueryFeatures) -> list[float]:
    """What the model sees."""
    values = [float(getattr(features, name)) for name in NAMES]
    return [1.0, *values, float(np.log(max(1, features.terms)))]


def calibration(p: Floats, right: Floats) -> dict[str, Any]:
    """Brier score, expected calibration error, and the table both are read from."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    table = []
    for number in range(BINS):
        inside = bins == number
        if inside.any():
            table.append(
                {
                    "from": number / BINS,
                    "questions": int(inside.sum()),
                    "told": round(float(p[inside].mean()), 3),
                    "right": round(float(right[inside].mean()), 3),
                }
            )
    error = sum(row["questions"] * abs(row["told"] - row["right"]) for row in table) / len(p)
    return {
        "questions": len(p),
        "told": round(float(p.mean()), 4),
        "right": round(float(right.mean()), 4),
        "brier": round(float(((p - right) ** 2).mean()), 4),
        "ece": round(error, 4),
        "table": table,
    }


def ndcg(right: Mask, relevant: int) -> float:
    """nDCG@10 with grades of 0 and 1."""
    gains = 1.0 / np.log2(np.arange(2, 12))
    first = right[:10]
    return float(gains[: len(first)][first].sum() / gains[: min(10, relevant)].sum())


def recall(right: Mask, relevant: int) -> float:
    """recall@5."""
    return float(right[:5].sum() / relevant)


def judge(asked: Sequence[Asked], model: RelevanceSettings, confidence: float) -> dict[str, Any]:
    """Calibration, and quality with and without early exits."""
    p = np.asarray([probability(each.features, model) for each in asked])
    right = np.asarray([bool(len(each.words) and each.words[0]) for each in asked], np.float64)
    one = np.asarray([not each.several for each in asked])
    exits = (p >= confidence) & one
    bare = np.asarray([probability(each.bare, model) for each in asked])
    result: dict[str, Any] = calibration(p, right)
    result["exits"] = round(float(exits.mean()), 4)
    result["right_of_exits"] = round(float(right[exits].mean()), 4) if exits.any() else None
    result["exits_without_answer"] = round(float(((bare >= confidence) & one).mean()), 4)
    result["exits_if_none_were_held_back"] = round(float((p >= confidence).mean()), 4)
    for name, measure in (("ndcg@10", ndcg), ("recall@5", recall)):
        both = np.asarray([measure(each.both, each.relevant) for each in asked])
        words = np.asarray([measure(each.words, each.relevant) for each in asked])
        lead = np.where(exits, words - both, 0.0)
        result[name] = {
            "always_both": round(float(both.mean()), 4),
            "with_exits": round(float((both + lead).mean()), 4),
            "if_none_were_held_back": round(
                float((both + np.where(p >= confidence, words - both, 0.0)).mean()), 4
            ),
            "better": int((lead > 0.0).sum()),
            "worse": int((lead < 0.0).sum()),
            "paired_p": paired(lead),
        }
    return result


def paired(lead: Floats) -> float:
    """How often changing signs at random gives a mean as far from nothing (two-sided)."""
    moved = lead[lead != 0.0]
    if not len(moved):
        return 1.0
    chance = np.random.default_rng(SEED)
    sums = (chance.choice([-1.0, 1.0], size=(ROUNDS, len(moved))) * moved).sum(axis=1)
    return round(float((np.abs(sums) >= abs(moved.sum()) - 1e-12).mean()), 4)


def by_kind(
    asked: Sequence[Asked], model: RelevanceSettings, confidence: float
) -> dict[str, dict[str, Any]]:
    """What leaving early costs each kind, had none been held back."""
    free = [msgspec.structs.replace(each, several=False) for each in asked]
    groups: dict[str, list[Asked]] = {"wants several": []}
    for each, plain in zip(asked, free, strict=True):
        groups.setdefault(each.kind, []).append(plain)
        if each.several and each.kind != "comparison":
            groups["wants several"].append(plain)
    found = {}
    for name, group in groups.items():
        if group:
            judged = judge(group, model, confidence)
            found[name] = {key: judged[key] for key in ("questions", "exits", "ndcg@10")}
    return found


def report(pairs: dict[str, list[Asked]]) -> dict[str, Any]:
    """Everything that is printed."""
    model, confidence = RetrievalSettings().relevance, RetrievalSettings().early_exit_confidence
    held_out = {name: [each for each in asked if each.held_out] for name, asked in pairs.items()}
    own = [
        each
        for (questions, corpora), asked in zip(PAIRS, held_out.values(), strict=True)
        for each in asked
        if corpora == (questions,)
    ]
    everything = [
        each
        for (questions, corpora), asked in zip(PAIRS, pairs.values(), strict=True)
        for each in asked
        if corpora == (questions,)
    ]
    return {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "confidence": confidence,
        "fitted": fit(list(pairs.values())),
        "shipped": msgspec.structs.asdict(model),
        "held_out": {name: judge(asked, model, confidence) for name, asked in held_out.items()},
        "held_out_own_sets": judge(own, model, confidence),
        "held_out_own_sets_by_language": {
            language: judge([e for e in own if e.chinese == chinese], model, confidence)
            for language, chinese in (("en", False), ("zh", True))
        },
        "held_out_all": judge(
            [each for asked in held_out.values() for each in asked], model, confidence
        ),
        "by_kind_own_sets_all_questions": by_kind(everything, model, confidence),
        "all_questions": {
            name: judge(asked, model, confidence)["ndcg@10"] for name, asked in pairs.items()
        },
    }


def main() -> None:
    """Ask, fit, judge, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    arguments = parser.parse_args()
    data = arguments.data / "retrieval"
    asyncio.run(embed_sets(data, arguments.cache))
    pairs: dict[str, list[Asked]] = {}
    for questions, corpora in PAIRS:
        name = f"{questions} on {'+'.join(corpora)}"
        pairs[name] = ask(data, arguments.cache, corpora, questions)
        print(name, len(pairs[name]), file=sys.stderr, flush=True)
    json.dump(report(pairs), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
