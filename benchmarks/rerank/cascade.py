"""What the cascade saves: 100 held-out questions, 10 candidates each, a named dear reranker.

    python benchmarks/rerank/cascade.py --data ../shared/data > benchmarks/rerank/cascade.json

The dear reranker is ``SentenceReranker``: the built-in embedder reads every sentence. Its curve and
the cascade are the settings' defaults; nothing is chosen here. ``fitted`` is the curve that 40
questions of the training half give, beside the default. Figures are of 100 questions of the other
half, 25 of each main set, drawn with a seed; "about all": about all ten candidates of each.
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
CURVE, SHIPPED = SentenceSettings(), CascadeSettings()


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


def fitted_curve(rows: list[Scored]) -> dict[str, float]:
    """The curve that fits labels best: what the defaults of ``SentenceSettings`` are taken from."""
    told = np.concatenate([np.clip(row.dear, 1e-9, 1 - 1e-9) for row in rows])
    cosines = CURVE.middle + CURVE.width * np.log(told / (1 - told))
    relevant = np.concatenate([row.gathered.row.relevant[row.places] for row in rows])
    middle, width = calibrate_scores(cosines, relevant)
    return {"middle": round(middle, 4), "width": round(width, 4)}


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
    tuning, (rows, took) = halves[False][0], halves[True]
    found = {
        **machine(),
        "dear": "SentenceReranker over the built-in embedder",
        "questions": len(rows),
        "curve": {"shipped": msgspec.to_builtins(CURVE), "fitted": fitted_curve(tuning)},
        **report(rows),
        "frontier, training half": frontier(tuning),
        "frontier": frontier(rows),
        "dear_seconds_a_question": round(float(np.median(took)), 3),
    }
    json.dump(found, sys.stdout, indent=1)


def report(rows: list[Scored]) -> dict[str, Any]:
    """Figures of the held-out questions; the cascade and its curve are those of the defaults."""
    ways = {
        "light": CascadeSettings(sure_from=0.0),
        "dear alone about all": CascadeSettings(floor=0.0, sure_from=1.0, trust=1.0),
        "both about all": CascadeSettings(floor=0.0, sure_from=1.0),
        "floor alone": CascadeSettings(sure_from=1.0),
        "cascade": SHIPPED,
    }
    found = {name: outcome(rows, settings) for name, settings in ways.items()}
    values = {name: np.array(one.pop("values")) for name, one in found.items()}
    search = ndcg_of([row.gathered.row for row in rows], None, 10)
    return {
        "shipped": msgspec.to_builtins(SHIPPED),
        "search_ndcg@10": round(float(search.mean()), 4),
        "ways": found,
        "ndcg@5": {
            name: round(float(np.mean([ndcg_5(row, settings) for row in rows])), 4)
            for name, settings in ways.items()
        },
        "cascade_loses_points": {
            f"against {way}": loss(values[way] - values["cascade"])
            for way in ("dear alone about all", "both about all")
        },
    }


def loss(values: Any) -> dict[str, float]:
    """Points of nDCG@10 on the mean, with the 95 % interval over questions; negative: a gain."""
    low, high = mean_interval(values, np.random.default_rng(1))
    points = {"points": float(values.mean()), "low": low, "high": high}
    return {name: round(100 * value, 2) for name, value in points.items()}


def frontier(rows: list[Scored]) -> list[dict[str, float]]:
    """What is saved and lost against asking both about all, by floor and sureness."""
    always = outcome(rows, CascadeSettings(floor=0.0, sure_from=1.0))["ndcg@10"]
    made = []
    for floor in (0.3, 0.2, 0.1, 0.05, 0.02, 0.01):
        for sure in (0.8, 0.9, 1.0):
            found = outcome(rows, CascadeSettings(floor=floor, sure_from=sure))
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
