"""What the cascade saves: 100 held-out questions, 10 candidates each, a named dear reranker.

    python benchmarks/rerank/cascade.py --data ../shared/data > benchmarks/rerank/cascade.json

The dear reranker is ``SentenceReranker``: the built-in embedder reads every sentence. Its curve,
its trust and the sureness from which it is spared are chosen on 40 questions of the training
half; figures are of 100 questions of the other half, 25 of each main set, drawn with a seed.
"Always" asks the dear model about all ten of every question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import MAIN, Gathered, gather, machine

from forebay.app.settings import load_settings, model_cache
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.lab.distill.late_export import calibrate_scores
from forebay.lab.distill.light_data import ndcg_of
from forebay.lab.evaluate.intervals import mean_interval
from forebay.pipeline.reranking import text_of
from forebay.policy.cascade import CascadeSettings, blended, decide
from forebay.rerank.features import Candidates
from forebay.rerank.light import LightModel
from forebay.rerank.sentences import SentenceReranker, SentenceSettings

QUESTIONS, TUNING, CANDIDATES = 25, 10, 10
SEED = 5
CURVE = SentenceSettings()


class Scored(msgspec.Struct, frozen=True):
    """A question's ten candidates by light order: both models' relevances."""

    gathered: Gathered
    places: list[int]
    light: list[float]
    dear: list[float]

    def ndcg(self, relevances: list[float]) -> float:
        """nDCG@10 with the ten in the order of ``relevances``, the others behind."""
        count = len(self.gathered.row.documents)
        scores = np.full(count, -1.0, np.float32)
        scores[[*self.places]] = relevances
        rest = [place for place in range(count) if place not in set(self.places)]
        scores[rest] = -2.0 - np.arange(len(rest))
        return float(ndcg_of([self.gathered.row], [scores], 10)[0])


def pick(rows: list[Gathered], *, held_out: bool) -> list[Gathered]:
    """Some questions of one half."""
    own = [one for one in rows if one.row.held_out == held_out]
    order = np.random.default_rng(SEED).permutation(len(own))[: QUESTIONS if held_out else TUNING]
    return [own[at] for at in sorted(order)]


async def scored(
    picked: list[Gathered], light: LightModel, dear: SentenceReranker
) -> tuple[list[Scored], list[float]]:
    """Ask both models; the seconds each question took the dear one."""
    found, took = [], []
    for one in picked:
        row = one.row
        scores, relevance = light.run(Candidates(row.features, row.query, row.vectors))
        places = sorted(range(len(scores)), key=lambda at: -scores[at])[:CANDIDATES]
        clock = SystemClock()
        context = RequestContext(
            request_id="b", principal=Principal(), deadline=Deadline.after(600, clock), clock=clock
        )
        began = time.perf_counter()
        told = await dear.rerank(context, row.question, [text_of(one.hits[at]) for at in places])
        took.append(time.perf_counter() - began)
        found.append(Scored(one, places, [relevance[at] for at in places], list(told)))
    return found, took


def outcome(rows: list[Scored], settings: CascadeSettings) -> dict[str, Any]:
    """Quality and what was asked under ``settings``."""
    values, texts, questions = [], 0, 0
    for row in rows:
        asked = decide(row.light, settings).asked
        relevances = list(row.light)
        if asked:
            first = blended(row.light[:asked], row.dear[:asked], settings.trust)
            relevances = [1.0 + one for one in first] + row.light[asked:]
        questions += bool(asked)
        texts += asked
        values.append(row.ndcg(relevances))
    most = sum(len(row.places) for row in rows)
    return {
        "ndcg@10": round(float(np.mean(values)), 4),
        "texts": texts,
        "texts_saved": round(1 - texts / most, 3),
        "questions_asked": questions,
        "values": values,
    }


def recurved(rows: list[Scored], middle: float, width: float) -> list[Scored]:
    """The dear relevances on another curve."""
    made = []
    for row in rows:
        told = np.clip(row.dear, 1e-9, 1 - 1e-9)
        cosines = CURVE.middle + CURVE.width * np.log(told / (1 - told))
        curve = 1 / (1 + np.exp(-(cosines - middle) / width))
        made.append(msgspec.structs.replace(row, dear=curve.tolist()))
    return made


def choose(rows: list[Scored]) -> CascadeSettings:
    """The trust best for always asking; then what asks least and costs under 0.3 points."""
    always = [
        CascadeSettings(floor=0.0, sure_from=1.0, trust=t) for t in (0.3, 0.4, 0.5, 0.6, 0.7, 1.0)
    ]
    best = max(always, key=lambda one: outcome(rows, one)["ndcg@10"])
    target = outcome(rows, best)["ndcg@10"] - 0.003
    tried = [
        CascadeSettings(floor=floor, sure_from=round(float(sure), 2), trust=best.trust)
        for floor in (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)
        for sure in np.arange(0.6, 1.0, 0.03)
    ]
    good = [one for one in tried if outcome(rows, one)["ndcg@10"] >= target]
    return min(good, key=lambda one: outcome(rows, one)["texts"], default=best)


async def main() -> None:
    """Score, choose, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--scores", type=Path, help="Write both models' scores beside this.")
    arguments = parser.parse_args()
    settings, _ = load_settings(None, {}, {})
    embedder = await open_embedder(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    assert embedder is not None
    light, dear = LightModel.shipped(), SentenceReranker(embedder, CURVE)
    sets = {name: gather(arguments.data / "retrieval", arguments.cache, name, 30) for name in MAIN}
    halves = {}
    for held_out in (False, True):
        picked = [one for rows in sets.values() for one in pick(rows, held_out=held_out)]
        halves[held_out] = await scored(picked, light, dear)
        print(f"held out {held_out}: {len(picked)} questions", file=sys.stderr, flush=True)
        if arguments.scores:
            kept = [
                (row.light, row.dear, row.gathered.row.relevant[row.places].tolist())
                for row in halves[held_out][0]
            ]
            arguments.scores.with_suffix(f".{held_out}.json").write_text(json.dumps(kept))
    await embedder.close()
    tuning = halves[False][0]
    told = np.concatenate([np.clip(row.dear, 1e-9, 1 - 1e-9) for row in tuning])
    cosines = CURVE.middle + CURVE.width * np.log(told / (1 - told))
    relevant = np.concatenate([row.gathered.row.relevant[row.places] for row in tuning])
    middle, width = calibrate_scores(cosines, relevant)
    chosen = choose(recurved(tuning, middle, width))
    rows = recurved(halves[True][0], middle, width)
    json.dump(report(rows, chosen, (middle, width), halves[True][1]), sys.stdout, indent=1)


def report(
    rows: list[Scored], chosen: CascadeSettings, curve: tuple[float, float], took: list[float]
) -> dict[str, Any]:
    """Figures of the held-out questions."""
    ways = {
        "light": CascadeSettings(floor=0.0, sure_from=0.0, trust=0.0),
        "always, dear alone": CascadeSettings(floor=0.0, sure_from=1.0, trust=1.0),
        "always": CascadeSettings(floor=0.0, sure_from=1.0, trust=chosen.trust),
        "floor alone": msgspec.structs.replace(chosen, sure_from=1.0),
        "cascade": chosen,
        "floor 0.3 by defaults": CascadeSettings(),
    }
    found = {name: outcome(rows, settings) for name, settings in ways.items()}
    lost = np.array(found["always"]["values"]) - np.array(found["cascade"]["values"])
    low, high = mean_interval(lost, np.random.default_rng(1))
    search = ndcg_of([row.gathered.row for row in rows], None, 10)
    at_5 = {
        name: round(float(np.mean([ndcg_5(row, settings) for row in rows])), 4)
        for name, settings in ways.items()
    }
    for one in found.values():
        del one["values"]
    return {
        **machine(),
        "dear": "SentenceReranker over the built-in embedder",
        "questions": len(rows),
        "chosen": msgspec.to_builtins(chosen),
        "curve": {"middle": curve[0], "width": curve[1]},
        "search_ndcg@10": round(float(search.mean()), 4),
        "ways": found,
        "frontier": frontier(rows, chosen.trust),
        "ndcg@5": at_5,
        "cascade_loses": {
            "points": round(100 * float(lost.mean()), 2),
            "low": round(100 * low, 2),
            "high": round(100 * high, 2),
        },
        "dear_seconds_a_question": round(float(np.median(took)), 3),
    }


def frontier(rows: list[Scored], trust: float) -> list[dict[str, float]]:
    """What is saved and lost against always asking, by floor and sureness."""
    always = outcome(rows, CascadeSettings(floor=0.0, sure_from=1.0, trust=trust))["ndcg@10"]
    made = []
    for floor in (0.3, 0.2, 0.1, 0.05, 0.02, 0.01):
        for sure in (0.8, 0.9, 1.0):
            found = outcome(rows, CascadeSettings(floor=floor, sure_from=sure, trust=trust))
            lost = round(100 * (always - found["ndcg@10"]), 2)
            made.append(
                {
                    "floor": floor,
                    "sure_from": sure,
                    "texts_saved": found["texts_saved"],
                    "points_lost": lost,
                }
            )
    return made


def ndcg_5(row: Scored, settings: CascadeSettings) -> float:
    """nDCG@5 of one question under ``settings``."""
    asked = decide(row.light, settings).asked
    first = blended(row.light[:asked], row.dear[:asked], settings.trust)
    relevances = [1.0 + one for one in first] + row.light[asked:]
    scores = np.full(len(row.gathered.row.documents), -1.0, np.float32)
    scores[row.places] = relevances
    return float(ndcg_of([row.gathered.row], [scores], 5)[0])


if __name__ == "__main__":
    asyncio.run(main())
