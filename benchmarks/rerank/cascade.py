"""What the cascade saves: held-out questions, 10 candidates each, a named dear reranker.

    python benchmarks/rerank/cascade.py --data ../shared/data > benchmarks/rerank/cascade.json

The dear reranker is ``SentenceReranker``: the built-in embedder reads every sentence. All questions
are of the half that the light reranker was not trained on; its own halves (by the next bit of
CRC-32) are for choosing, `tuning`, and for telling, `test`. Chosen is, of the settings of the
frontier that save 60 % of the texts, the one whose loss is surest to be small: the least upper end
of its interval over tuning questions. Means weigh the four sets alike. ``fitted`` is the curve that
the tuning questions give, beside the default. "About all": about all ten candidates of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import MAIN, Gathered, gather, machine
from student import Remembering

from forebay.app.settings import load_settings, model_cache
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.lab.distill.late_export import calibrate_scores
from forebay.lab.distill.light_data import ndcg_of
from forebay.pipeline.reranking import text_of
from forebay.policy.cascade import CascadeSettings, blended, decide
from forebay.rerank.features import Candidates
from forebay.rerank.light import LightModel
from forebay.rerank.sentences import SentenceReranker, SentenceSettings

QUESTIONS, CANDIDATES = {"scifact": 55, "tatqa": 125, "hotpot": 55, "xquad zh on en": 300}, 10
SEED, DRAWS = 5, 2000
SAVED = 0.6
FLOORS, SURE = (0.3, 0.1, 0.05, 0.02, 0.01, 0.0), (0.8, 0.9, 0.95, 1.0)
CURVE, SHIPPED = SentenceSettings(), CascadeSettings()


class Scored(msgspec.Struct, frozen=True):
    """A question's ten candidates by light order: both models' relevances."""

    name: str
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


def pick(name: str, rows: list[Gathered], half: int) -> list[Gathered]:
    """Some questions of one half of the held-out ones."""
    own = [
        one
        for one in rows
        if one.row.held_out and zlib.crc32(one.row.question.encode()) >> 1 & 1 == half
    ]
    order = np.random.default_rng(SEED).permutation(len(own))[: QUESTIONS[name]]
    return [own[at] for at in sorted(order)]


async def scored(
    name: str, picked: list[Gathered], light: LightModel, dear: SentenceReranker
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
        found.append(Scored(name, one, places, [relevance[at] for at in places], list(told)))
    return found, took


def outcome(rows: list[Scored], settings: CascadeSettings) -> dict[str, Any]:
    """Quality and what was asked under ``settings``; sets weigh alike."""
    values, asked = [], []
    for row in rows:
        count = decide(row.light, settings).asked
        first = blended(row.light[:count], row.dear[:count], settings.trust)
        relevances = [1.0 + one for one in first] + row.light[count:]
        values.append(row.ndcg(relevances))
        asked.append(count)
    shares = np.array(asked) / np.array([len(row.places) for row in rows])
    return {
        "ndcg@10": round(over_sets(rows, np.array(values)), 4),
        "texts_saved": round(1 - over_sets(rows, shares), 3),
        "texts": sum(asked),
        "questions_asked": sum(map(bool, asked)),
        "values": values,
    }


def over_sets(rows: list[Scored], values: Any) -> float:
    """The mean over sets of each set's mean."""
    names = np.array([row.name for row in rows])
    return float(np.mean([values[names == name].mean() for name in MAIN]))


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
    arguments = parser.parse_args()
    settings, _ = load_settings(None, {}, {})
    embedder = await open_embedder(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    assert embedder is not None
    light, dear = LightModel.shipped(), SentenceReranker(Remembering(embedder), CURVE)
    halves: list[list[Scored]] = [[], []]
    seconds: list[float] = []
    for name in MAIN:
        rows = await asyncio.to_thread(
            gather, arguments.data / "retrieval", arguments.cache, name, 30
        )
        for half in (0, 1):
            found, took = await scored(name, pick(name, rows, half), light, dear)
            halves[half] += found
            seconds += took
            print(f"{name}, half {half}: {len(found)}", file=sys.stderr, flush=True)
    await embedder.close()
    tuning, test = halves
    chosen = min(
        (one for one in frontier(tuning) if one["texts_saved"] >= SAVED),
        key=lambda one: (one["high"], -one["texts_saved"]),
    )
    told = {
        **machine(),
        "dear": "SentenceReranker over the built-in embedder",
        "questions": {
            way: {name: sum(row.name == name for row in rows) for name in MAIN}
            for way, rows in (("tuning", tuning), ("test", test))
        },
        "curve": {"shipped": msgspec.to_builtins(CURVE), "fitted": fitted_curve(tuning)},
        "chosen": chosen,
        **report(test),
        "frontier, tuning": frontier(tuning),
        "frontier, test": frontier(test),
        "dear_seconds_a_question": round(float(np.median(seconds)), 3),
    }
    json.dump(told, sys.stdout, indent=1)


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
    gain = values["cascade"] - values["light"]
    return {
        "shipped": msgspec.to_builtins(SHIPPED),
        "search_ndcg@10": round(over_sets(rows, search), 4),
        "ways": found,
        "cascade_loses_points": {
            f"against {way}": loss(rows, values[way] - values["cascade"])
            for way in ("dear alone about all", "both about all")
        },
        "cascade_gains_points against light": loss(rows, gain),
    }


def loss(rows: list[Scored], values: Any) -> dict[str, float]:
    """Points of nDCG@10 on the mean of the sets, with the 95 % interval over questions."""
    chance = np.random.default_rng(1)
    names = np.array([row.name for row in rows])
    draws = []
    for name in MAIN:
        own = values[names == name]
        draws.append(own[chance.integers(0, len(own), (DRAWS, len(own)))].mean(axis=1))
    low, high = np.quantile(np.mean(draws, axis=0), (0.025, 0.975))
    points = {"points": over_sets(rows, values), "low": low, "high": high}
    return {name: round(100 * float(value), 2) for name, value in points.items()}


def frontier(rows: list[Scored]) -> list[dict[str, float]]:
    """What is saved and lost against asking both about all, by floor and sureness."""
    always = outcome(rows, CascadeSettings(floor=0.0, sure_from=1.0))["values"]
    made = []
    for floor in FLOORS:
        for sure in SURE:
            found = outcome(rows, CascadeSettings(floor=floor, sure_from=sure))
            lost = loss(rows, np.array(always) - np.array(found["values"]))
            saved = found["texts_saved"]
            made.append({"floor": floor, "sure_from": sure, "texts_saved": saved, **lost})
    return made


if __name__ == "__main__":
    asyncio.run(main())
