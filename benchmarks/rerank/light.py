"""Trains the shipped light reranker on one half of each set's questions; measures on the other.

    python benchmarks/rerank/light.py --data ../shared/data --write > benchmarks/rerank/light.json

Training is by labels. ``left_out`` trains once more without each set's documents and questions and
measures on that set, on its odd half and on all its questions: what a corpus nobody trained on may
hope for. All is measured with vectors of the candidates' sentences, as a served knowledge base
keeps them, and ``without_sentences``. ``--write`` replaces the model in the package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import MAIN, PAIRS, UNSEEN, gather, machine, trainable

from forebay.lab.distill.light import LightTraining, Parameters, train
from forebay.lab.distill.light_data import (
    LightRow,
    curves_of,
    examples_of,
    measured,
    ndcg_of,
    scores_of,
)
from forebay.lab.distill.light_export import LightDescription, light_graph
from forebay.rerank.features import FEATURES_VERSION, Candidates
from forebay.rerank.light import LightModel

MODEL = Path(__file__).parents[2] / "src" / "forebay" / "rerank" / "data" / "light.onnx"
RESAMPLES_SEED = 1
FAMILIES = ("scifact", "tatqa", "hotpot", "xquad", "drcd")
"""Sets that share documents are left out together."""


def fit(rows: Sequence[LightRow], training: LightTraining) -> Parameters:
    """Train on ``rows``."""
    began = time.perf_counter()
    losses: list[float] = []
    found = train(examples_of(rows), training, lambda _, loss: losses.append(loss))
    took = time.perf_counter() - began
    print(
        f"{len(rows)} rows: loss {losses[0]:.4f} to {losses[-1]:.4f}, {took:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return found


def held_of(rows: dict[str, list[LightRow]]) -> dict[str, list[LightRow]]:
    """The halves that nothing was trained on."""
    return {name: [row for row in own if row.held_out] for name, own in rows.items()}


Orders = Callable[[str, list[LightRow]], list[Any]]
"""From a set's name and rows to the scores of each row's candidates."""


def without(rows: dict[str, list[LightRow]]) -> dict[str, list[LightRow]]:
    """The same where no sentence has a vector."""
    return {name: [row.without_sentences() for row in own] for name, own in rows.items()}


def shipped(_: str, rows: list[LightRow]) -> list[Any]:
    """Scores of the model in the package."""
    model = LightModel.shipped()
    made = [Candidates(row.features, row.query, row.vectors) for row in rows]
    return [np.array(model.run(one)[0], np.float32) for one in made]


def by(parameters: dict[str, Parameters]) -> Orders:
    """Scores of each set by its own model."""
    return lambda name, rows: scores_of(parameters[name], rows)


def overall(
    tables: dict[str, dict[str, Any]], rows: dict[str, list[LightRow]], order: Orders
) -> dict[str, float]:
    """The mean gain of the main sets, each set weighing the same, with its interval."""
    chance = np.random.default_rng(RESAMPLES_SEED)
    draws = []
    for name in MAIN:
        own = rows[name]
        gains = ndcg_of(own, order(name, own), 10) - ndcg_of(own, None, 10)
        picks = chance.integers(0, len(gains), (2000, len(gains)))
        draws.append(gains[picks].mean(axis=1))
    means = np.mean(draws, axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    gain = float(np.mean([tables[name]["gain"] for name in MAIN]))
    return {"gain": round(gain, 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def table(scores: list[Any], rows: list[LightRow], depth: int = 10) -> dict[str, Any]:
    """One set's measures."""
    [found] = measured(rows, scores, depth).values()
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in msgspec.structs.asdict(found).items()
    }


def reliability(
    rows: Sequence[LightRow], parameters: Parameters, curve: tuple[float, float]
) -> dict[str, Any]:
    """How often candidates told a relevance are relevant, by tenths, on held-out questions."""
    middle, width = curve
    held = [row for row in rows if row.held_out]
    scores = np.concatenate(scores_of(parameters, held)).astype(np.float64)
    told = 1 / (1 + np.exp(-(scores - middle) / width))
    right = np.concatenate([row.relevant for row in held])
    bins = []
    for low in np.arange(0, 1, 0.1):
        inside = (told >= low) & (told < low + 0.1)
        if inside.any():
            bins.append(
                {
                    "candidates": int(inside.sum()),
                    "told": round(float(told[inside].mean()), 3),
                    "relevant": round(float(right[inside].mean()), 3),
                }
            )
    error = sum(b["candidates"] * abs(b["told"] - b["relevant"]) for b in bins) / len(told)
    return {"middle": middle, "width": width, "error": round(error, 4), "bins": bins}


async def fingerprint() -> str:
    """Whose vectors the sets' are."""
    from forebay.app.settings import load_settings, model_cache
    from forebay.embedding.opening import open_embedder
    from forebay.kernel.clock import SystemClock

    settings, _ = load_settings(None, {}, {})
    embedder = await open_embedder(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    assert embedder is not None
    mark = embedder.spec.fingerprint
    await embedder.close()
    return mark


def main() -> None:
    """Gather, train, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--short", action="store_true", help="the model itself, nothing left out")
    arguments = parser.parse_args()
    data = arguments.data / "retrieval"
    rows = {
        name: [one.row for one in gather(data, arguments.cache, name, arguments.candidates)]
        for name in PAIRS
    }
    learning = {name: trainable(data, name, rows[name]) for name in PAIRS if name not in UNSEEN}
    held = held_of(rows)
    plain = without(held)
    training, embedder = LightTraining(), asyncio.run(fingerprint())
    model = fit([row for some in learning.values() for row in some], training)
    order = by(dict.fromkeys(PAIRS, model))
    tables = {name: table(order(name, held[name]), held[name]) for name in PAIRS}
    at_5 = {name: table(order(name, held[name]), held[name], 5) for name in MAIN}
    known = [row for name in MAIN for row in (*learning[name], *held[name])]
    curves = curves_of(model, [row for row in known if not row.held_out])
    if arguments.write:
        description = LightDescription(
            embedder=embedder,
            features_version=FEATURES_VERSION,
            curves=curves,
            trained_on="labels of SciFact, TAT-QA, HotpotQA, XQuAD en/zh and DRCD: questions whose "
            "text has an even CRC-32 (of XQuAD those even in both languages)",
        )
        MODEL.parent.mkdir(exist_ok=True)
        MODEL.write_bytes(light_graph(model, description))
    packed = {name: table(shipped(name, held[name]), held[name]) for name in PAIRS}
    bare = {name: table(shipped(name, plain[name]), plain[name]) for name in PAIRS}
    report: dict[str, Any] = {
        **machine(),
        "training": msgspec.to_builtins(training),
        "trained_on": {name: len(some) for name, some in learning.items()},
        "held_out_ndcg@10": tables,
        "main": overall(tables, held, order),
        "held_out_ndcg@5": at_5,
        "model_in_the_package": {
            "held_out_ndcg@10": packed,
            "main": overall(packed, held, shipped),
            "without_sentences": {**bare, "main": overall(bare, plain, shipped)},
        },
        "relevance": reliability(known, model, curves[1]),
        "relevance_without_sentences": reliability(
            [row.without_sentences() for row in known], model, curves[0]
        ),
        "model_bytes": MODEL.stat().st_size,
    }
    if not arguments.short:
        report |= variants(learning, rows, training)
    json.dump(report, sys.stdout, indent=1)


def variants(
    learning: dict[str, list[LightRow]],
    rows: dict[str, list[LightRow]],
    training: LightTraining,
) -> dict[str, Any]:
    """Trained without a set, on all its languages; without learned projections."""
    others: dict[str, Parameters] = {}
    for family in FAMILIES:
        some = [row for name, own in learning.items() if family not in name for row in own]
        parameters = fit(some, training)
        others |= {name: parameters for name in PAIRS if name.split()[0] == family}
    order, held = by(others), held_of(rows)
    unseen = [name for name in PAIRS if name not in UNSEEN]

    def measured_on(rows: dict[str, list[LightRow]]) -> dict[str, Any]:
        tables = {name: table(order(name, rows[name]), rows[name]) for name in unseen}
        return {**tables, "main": overall(tables, rows, order)}

    fixed = msgspec.structs.replace(training, projection_rate=0.0)
    still = fit([row for some in learning.values() for row in some], fixed)
    free = msgspec.structs.replace(training, projection_rate=1e-4, hold=0.0)
    loose = fit([row for some in learning.values() for row in some], free)
    return {
        "left_out": measured_on(held),
        "left_out, all questions": measured_on(rows),
        "left_out, without_sentences": measured_on(without(held)),
        "left_out, all questions, without_sentences": measured_on(without(rows)),
        "projections_as_they_begin": {
            name: table(scores_of(still, held[name]), held[name]) for name in MAIN
        },
        "projections_not_held": {
            name: table(scores_of(loose, held[name]), held[name]) for name in MAIN
        },
    }


if __name__ == "__main__":
    main()
