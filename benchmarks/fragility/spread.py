"""The spread of hits on real questions against bounds calibrated on the corpus alone.

    python benchmarks/fragility/spread.py --vectors CACHE \
        > benchmarks/fragility/spread.json

``--vectors`` is a folder of ``<set>.npz`` (doc_ids, docs, query_ids, queries) made by the default
embedder. The first five hits are those of vectors alone. Seeded; no other settings.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.retrieval.spread import FIRST, spread_of

PAIRS = (
    ("tatqa_dev", "tatqa_dev"),
    ("xquad_en", "xquad_en"),
    ("xquad_zh", "xquad_zh"),
    ("xquad_zh", "xquad_en"),
    ("hotpotqa_train100", "hotpotqa_train100"),
    ("drcd_dev", "drcd_dev"),
)
MIXED = (("tatqa_dev", "xquad_en"), ("hotpotqa_train100", "xquad_en"))
CHOSEN = 256
Floats = npt.NDArray[np.float32]


def spread(vectors: Floats) -> float:
    found = spread_of(vectors)
    assert found is not None
    return found


def nearest(documents: Floats, vector: Floats, count: int, without: int = -1) -> Floats:
    cosines = documents @ vector
    if without >= 0:
        cosines[without] = -1
    return documents[np.argsort(-cosines)[:count]]


def corpus_spreads(documents: Floats) -> npt.NDArray[np.float64]:
    chosen = np.random.default_rng(0).permutation(len(documents))[:CHOSEN]
    return np.array(
        [spread(nearest(documents, documents[row], FIRST, without=row)) for row in chosen]
    )


def measure(vectors: Path, questions: str, documents: str) -> dict[str, Any]:
    """Where the spreads of a set's questions lie in its corpus's own."""
    rows = np.load(vectors / f"{documents}.npz")["docs"]
    corpus = corpus_spreads(rows)
    asked = np.array(
        [
            spread(nearest(rows, query, FIRST))
            for query in np.load(vectors / f"{questions}.npz")["queries"]
        ]
    )
    bounds = np.percentile(corpus, (95, 99.5))
    return {
        "questions": questions,
        "documents": documents,
        "corpus": {"median": np.median(corpus), "p95": bounds[0], "p99.5": bounds[1]},
        "asked": {"median": np.median(asked), "largest": asked.max()},
        "over_p95": (asked > bounds[0]).mean(),
        "over_p99.5": (asked > bounds[1]).mean(),
        "over_0.15": (asked > 0.15).mean(),
    }


def mixed(vectors: Path, mostly: str, other: str) -> dict[str, Any]:
    """Three neighbours of one corpus with two of another, as hits of an ambiguous question."""
    first = np.load(vectors / f"{mostly}.npz")["docs"]
    second = np.load(vectors / f"{other}.npz")["docs"]
    bound = np.percentile(corpus_spreads(first), 99.5)
    chance = np.random.default_rng(1)
    spreads = []
    for row in chance.permutation(len(first))[:200]:
        away = second[chance.integers(len(second))]
        hits = np.concatenate([nearest(first, first[row], 3), nearest(second, away, 2)])
        spreads.append(spread(hits))
    return {
        "three_hits_of": mostly,
        "two_hits_of": other,
        "median": np.median(spreads),
        "over_p99.5": (np.array(spreads) > bound).mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, required=True)
    vectors = parser.parse_args().vectors
    result = {
        "questions": [measure(vectors, *pair) for pair in PAIRS],
        "mixed": [mixed(vectors, *pair) for pair in MIXED],
    }
    json.dump(result, sys.stdout, indent=1, default=lambda value: round(float(value), 4))


if __name__ == "__main__":
    main()
