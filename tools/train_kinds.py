"""Trains the query classifier from src/forebay/query/data/kinds.tsv; prints held-out accuracy.

``python -m tools.train_kinds`` writes the weights for the built-in embedder; with ``--config``
those for the embedder that a configuration names, to ``--out`` (``query.classifier_path``).
Accuracy is of five folds, each judged by weights that did not see it; deterministic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.app.settings import load_settings, model_cache
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import SystemClock
from forebay.query.classifier import KINDS, SHIPPED, KindClassifier, fit
from forebay.query.kinds import kind_of

DATA = Path(__file__).resolve().parent.parent / "src" / "forebay" / "query" / "data"
FOLDS = 5


class Example(NamedTuple):
    """A question, its kind and its language."""

    kind: str
    language: str
    text: str


def examples() -> list[Example]:
    """All that ship, in order."""
    lines = (DATA / "kinds.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [Example(*line.split("\t")) for line in lines]


async def embedded(config: Path | None, texts: list[str]) -> tuple[str, NDArray[np.float32]]:
    """The embedder's fingerprint, and a row for each text as a query."""
    settings, _ = load_settings(config, {}, {})
    embedder = await open_embedder(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    if embedder is None:
        raise SystemExit("the configuration names no embedder.")
    try:
        rows = [
            np.frombuffer((await embedder.embed([text], kind="query")).data, "<f4")
            for text in texts
        ]
        return embedder.spec.fingerprint, np.stack(rows)
    finally:
        await embedder.close()


def held_out(rows: NDArray[np.float32], shown: list[Example]) -> dict[str, object]:
    """Accuracy by language of vectors alone and of the rules alone, and recall by kind."""
    kinds = np.array([KINDS.index(one.kind) for one in shown])
    folds = np.arange(len(shown)) % FOLDS
    found = np.empty(len(shown), np.int64)
    for fold in range(FOLDS):
        weights = fit(rows[folds != fold], kinds[folds != fold])
        tested = rows[folds == fold]
        found[folds == fold] = (tested @ weights[:-1] + weights[-1]).argmax(axis=1)
    right = found == kinds
    ruled = np.array([kind_of(one.text).kind == one.kind for one in shown])
    languages = np.array([one.language for one in shown])
    return {
        "examples": len(shown),
        "held_out_accuracy": {
            name: round(float(right[languages == name].mean()), 3) for name in ("en", "zh")
        },
        "held_out_recall": {
            name: round(float(right[kinds == at].mean()), 3) for at, name in enumerate(KINDS)
        },
        "rules_alone": {
            name: round(float(ruled[languages == name].mean()), 3) for name in ("en", "zh")
        },
    }


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, default=DATA / SHIPPED)
    arguments = parser.parse_args()
    shown = examples()
    mark, rows = asyncio.run(embedded(arguments.config, [one.text for one in shown]))
    print(json.dumps(held_out(rows, shown), indent=1))
    weights = fit(rows, np.array([KINDS.index(one.kind) for one in shown]))
    KindClassifier(mark, weights)
    with arguments.out.open("wb") as file:
        np.savez(file, fingerprint=np.array(mark), weights=weights.astype(np.float16))


if __name__ == "__main__":
    main()
