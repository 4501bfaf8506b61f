"""Late interaction on held-out questions: order, int8 against float, time, bytes.

    python -m benchmarks.rerank_late.measure --data ../shared/data --cache CACHE --vectors VECTORS \
        --head src/forebay/rerank/data/late_e5.onnx > benchmarks/rerank_late/result.json

Orders the first fifty documents of the production hybrid anew. ``fused + S late`` is its score
plus S times the mean MaxSim, for each of a few shares; none is chosen on held-out questions, and
``share`` says which one questions of the training halves would choose that the head did not learn
from (it has seen their documents, though). Intervals are 95 % bootstraps of the mean difference to
the hybrid, paired by question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.rerank_late.data import DEPTH, Pair, Places, Texts
from benchmarks.rerank_late.train import FULL, TRAINING, chosen_rows, unit
from forebay.embedding.opening import open_plain_e5
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.tokens import TokenStates
from forebay.lab.distill.late import LateHead, LateTraining, initial_head, softmax
from forebay.lab.evaluate.intervals import mean_interval
from forebay.lab.evaluate.measures import ndcg, recall
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead as LoadedHead
from forebay.rerank.late_head import TokenCodes, max_sims
from forebay.retrieval import search_executor

MAIN = (
    ("tatqa_dev", "tatqa_dev"),
    ("hotpotqa_train100", "hotpotqa_train100"),
    ("xquad_zh", "xquad_en"),
)
OTHERS = (("xquad_en", "xquad_zh"), ("xquad_en", "xquad_en"), ("xquad_zh", "xquad_zh"))
SHARES = (0.2, 0.4, 0.7, 1.0)
CHOOSING = 200
TIMED = 40
Scores = npt.NDArray[np.float64]
Scorer = Callable[[Pair, str, list[str]], Scores]


def told(states: npt.NDArray[np.float16]) -> TokenStates:
    return TokenStates(len(states), states.shape[1], states.astype("<f4").tobytes())


class Production:
    """The ONNX head, int8, as the server runs it; passages are encoded once."""

    def __init__(self, head: LoadedHead) -> None:
        self._head = head
        self._kept: dict[tuple[str, str], TokenCodes] = {}

    def __call__(self, pair: Pair, query: str, names: list[str]) -> Scores:
        asked = self._head.query(told(pair.questions[query]), LateSettings().max_query_tokens)
        return max_sims(asked, [self._codes(pair.documents, name) for name in names]).astype(float)

    def _codes(self, documents: Texts, name: str) -> TokenCodes:
        key = (documents.name, name)
        if key not in self._kept:
            self._kept[key] = self._head.passage(told(documents[name]))
        return self._kept[key]


class InFloat:
    """A head before it is quantised; passages are turned once."""

    def __init__(self, head: LateHead) -> None:
        self._head = head
        self._turned: dict[tuple[str, str], npt.NDArray[np.float32]] = {}

    def __call__(self, pair: Pair, query: str, names: list[str]) -> Scores:
        states = np.asarray(pair.questions[query], np.float32)
        asked = unit(states @ self._head.query + self._head.query_offset)
        shares = softmax(states @ self._head.weight)
        return np.array(
            [
                float((self._passage(pair.documents, name) @ asked.T).max(axis=0) @ shares)
                for name in names
            ]
        )

    def _passage(self, documents: Texts, name: str) -> npt.NDArray[np.float32]:
        key = (documents.name, name)
        if key not in self._turned:
            states = np.asarray(documents[name], np.float32)
            self._turned[key] = unit(states @ self._head.passage + self._head.passage_offset)
        return self._turned[key]


def loaded(path: Path) -> LateHead:
    return LateHead(**dict(np.load(path)))


Scored = dict[str, tuple[list[str], Scores, Scores]]
"""Of each question its candidates, their fused scores and their mean MaxSims."""


def scored(pair: Pair, queries: list[str], scorer: Scorer) -> Scored:
    result = {}
    for query in queries:
        names = [name for name, _ in pair.found[query][:DEPTH]]
        fused = np.array([score for _, score in pair.found[query][:DEPTH]])
        result[query] = (names, fused, scorer(pair, query, names) if names else np.empty(0))
    return result


def ranked(rows: Scored, fused: float, share: float) -> dict[str, list[str]]:
    return {
        query: [names[i] for i in np.argsort(-(fused * first + share * late), kind="stable")]
        for query, (names, first, late) in rows.items()
    }


def table(pair: Pair, rows: Scored, orders: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    relevance = {query: dict.fromkeys(pair.relevant[query], 1) for query in rows}
    result: dict[str, Any] = {"questions": len(rows)}
    for measure, depth, name in ((ndcg, 10, "ndcg@10"), (recall, 5, "recall@5")):
        values = {key: measure(relevance, order, depth) for key, order in orders.items()}
        plain = values["hybrid"]
        for key, found in values.items():
            row = result.setdefault(key, {})
            row[name] = round(float(np.mean(list(found.values()))), 4)
            if key == "hybrid":
                continue
            gains = np.array([found[query] - plain[query] for query in plain])
            low, high = mean_interval(gains, np.random.default_rng(5))
            row[f"{name}_gain"] = [round(float(x), 4) for x in (gains.mean(), low, high)]
    return result


def chosen_share(pairs: list[Pair], scorer: Scorer, drawn: set[str]) -> float:
    """The share that is best on the mean over questions of training halves that none learned from.

    HotpotQA has no such question left.
    """
    totals = dict.fromkeys(SHARES, 0.0)
    for pair in pairs:
        queries = [query for query in pair.training if f"{pair.name} {query}" not in drawn]
        if not queries:
            continue
        queries = queries[:CHOOSING]
        rows = scored(pair, queries, scorer)
        relevance = {query: dict.fromkeys(pair.relevant[query], 1) for query in rows}
        for share in SHARES:
            found = ndcg(relevance, ranked(rows, 1.0, share), 10)
            totals[share] += float(np.mean(list(found.values())))
    print({share: round(total, 4) for share, total in totals.items()}, file=sys.stderr)
    return max(totals, key=totals.__getitem__)


def quality(places: Places, head: Path) -> dict[str, Any]:
    """Every pair's table; floats only for the three main ones."""
    production = Production(LoadedHead(head))
    main = [Pair(places, *names) for names in MAIN]
    rows = chosen_rows(places, np.random.default_rng(TRAINING.seed))
    share = chosen_share(main, production, {f"{row.pair.name} {row.query}" for row in rows})
    plain = [row.example() for row in rows]
    full = InFloat(initial_head(plain, LateTraining(dimensions=FULL)))
    in_float = InFloat(loaded(places.cache / "head128.npz"))
    result: dict[str, Any] = {"share": share}
    for pair in [*main, *(Pair(places, *names) for names in OTHERS)]:
        found = scored(pair, pair.held_out, production)
        orders = {
            "hybrid": ranked(found, 1.0, 0.0),
            "late, 128 int8": ranked(found, 0.0, 1.0),
            **{f"fused + {each} late": ranked(found, 1.0, each) for each in SHARES},
        }
        if pair in main:
            orders["late, 128 float"] = ranked(scored(pair, pair.held_out, in_float), 0.0, 1.0)
            orders["late, 384 float, untrained"] = ranked(
                scored(pair, pair.held_out, full), 0.0, 1.0
            )
        result[pair.name] = table(pair, found, orders)
        print(pair.name, result[pair.name], file=sys.stderr)
    return result


def context() -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="b", principal=Principal(), deadline=Deadline.after(600, clock), clock=clock
    )


async def speed(places: Places, head: Path) -> dict[str, Any]:
    """Fifty candidates: passages not seen before, then kept; wall and processor milliseconds."""
    embedder = await open_plain_e5(
        EmbeddingSettings(workers=1), cache=places.cache / "models", clock=SystemClock()
    )
    pair = Pair(places, "xquad_zh", "xquad_en")
    result: dict[str, Any] = {}
    with search_executor(1) as executor:
        late = LateReranker(embedder, LoadedHead(head), LateSettings(), executor)
        seen: dict[str, list[tuple[float, float]]] = {"first": [], "kept": []}
        for number, query in enumerate(pair.held_out[:TIMED]):
            texts = [
                pair.documents.texts[pair.documents.place[name]] for name, _ in pair.found[query]
            ]
            asked = pair.questions.texts[pair.questions.place[query]]
            for turn in ("first", "kept") if number == 0 else ("kept",):
                if turn == "kept":
                    await late.warm(texts)
                wall, own = time.perf_counter(), time.process_time()
                await late.rerank(context(), asked, texts)
                took = (time.perf_counter() - wall, time.process_time() - own)
                seen[turn].append((1000 * took[0], 1000 * took[1]))
        told_of = late.statistics()
        for turn, rows in seen.items():
            values = np.median(np.array(rows), axis=0)
            result[turn] = {"wall_ms": round(values[0], 2), "cpu_ms": round(values[1], 2)}
        tokens = [len(pair.documents[name]) for name in pair.documents.place]
        result["kept_bytes_per_passage"] = round(told_of.size_bytes / told_of.entries)
        result["tokens_per_passage"] = round(float(np.mean(tokens)), 1)
        result["bytes_per_token"] = {"128 int8": 130, "384 float": 1536}
        result["products_ms"] = products(pair, LoadedHead(head))
    await embedder.close()
    return result


def products(pair: Pair, head: LoadedHead) -> float:
    """Processor milliseconds of MaxSim alone, fifty passages."""
    query = pair.held_out[0]
    asked = head.query(told(pair.questions[query]), 64)
    codes = [head.passage(told(pair.documents[name])) for name, _ in pair.found[query]]
    times = []
    for _ in range(50):
        began = time.process_time()
        max_sims(asked, codes)
        times.append(time.process_time() - began)
    return round(1000 * float(np.median(times)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--head", type=Path, required=True)
    arguments = parser.parse_args()
    places = Places(arguments.data / "retrieval", arguments.cache, arguments.vectors)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    report = {
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "commit": commit,
        "held_out": quality(places, arguments.head),
        "speed": asyncio.run(speed(places, arguments.head)),
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
