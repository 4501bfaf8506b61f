"""What the light reranker costs: 50 candidates of 1,000 characters, one thread.

    python benchmarks/rerank/speed.py > benchmarks/rerank/speed.json

Processor time, medians of 300 runs: the model alone, and with its features made from the texts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import machine

from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.stages import HitVectors
from forebay.rerank.features import candidates_of
from forebay.rerank.light import LightModel

RUNS, CHARACTERS, SEED = 300, 1000, 3
WORDS = (
    "returns parcel delivery turbine governor valve pressure invoice budget leave policy shift "
    "boiler service year technician pump gate reservoir flow level alarm meter panel report"
).split()


def candidates(count: int) -> tuple[str, list[Hit], HitVectors]:
    """A question and hits of words by chance."""
    chance = np.random.default_rng(SEED)
    hits = []
    for number in range(count):
        text = " ".join(chance.choice(WORDS, 150))[:CHARACTERS]
        row = ChunkRow(
            number, f"d{number}", 0, 0, len(text), text, "", 200, None, (), "Service", "s", "en",
            (), (), {}, 1,
        )  # fmt: skip
        hits.append(Hit(row, 0.9 - number / 100, 5.0, 0.4))
    rows = chance.standard_normal((count + 1, 384)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = "how often does a technician service the boiler pump pressure valve"
    return query, hits, HitVectors(rows[0].tobytes(), rows[1:].tobytes(), 384)


def median_ms(work: Callable[[], object]) -> dict[str, float]:
    """Processor milliseconds of one run: the median, and the 99th percentile."""
    took = []
    for _ in range(RUNS):
        began = time.thread_time()
        work()
        took.append(1000 * (time.thread_time() - began))
    return {
        "p50": round(float(np.median(took)), 3),
        "p99": round(float(np.quantile(took, 0.99)), 3),
    }


def main() -> None:
    """Measure and print."""
    model = LightModel.shipped()
    report: dict[str, object] = machine()
    for count in (30, 50):
        query, hits, vectors = candidates(count)
        made = candidates_of(query, hits, vectors)
        report[f"{count} candidates, ms"] = {
            "model": median_ms(lambda made=made: model.run(made)),
            "features and model": median_ms(
                lambda q=query, h=hits, v=vectors: model.relevances(q, h, v)
            ),
        }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
