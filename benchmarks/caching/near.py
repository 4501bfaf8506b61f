"""What passes for the same question, on labelled pairs: false hits, and where cosines should stop.

Run from the repository's root: python benchmarks/caching/near.py --data ../shared/data
All pairs of questions of banking77 (77 intents) and clinc150 (150) go through the gate of words;
those it lets through are embedded. Pairs of different intents that pass are false hits, but for
those whose labels are a matter of chance, which are counted as false all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from forebay.cache.canonical import canonical
from forebay.cache.gate import content, difference
from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import SystemClock

Question = tuple[str, str]
THRESHOLDS = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
SAMPLE = 400


def questions(folder: Path) -> Iterator[tuple[str, list[Question]]]:
    with (folder / "banking77_train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    yield "banking77", [(row[0], row[1]) for row in rows]
    parts = json.loads((folder / "clinc150.json").read_text(encoding="utf-8"))
    kept = [part for name, part in parts.items() if not name.startswith("oos")]
    yield "clinc150", [(text, label) for part in kept for text, label in part]


def passed(rows: Sequence[Question]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs that the gate lets through, of one intent and of two; exact repeats left out."""
    alike: dict[tuple[str, ...], list[Question]] = defaultdict(list)
    for text, label in rows:
        alike[tuple(sorted(content(text).tokens))].append((text, label))
    same, other = [], []
    for group in alike.values():
        for (one, a), (two, b) in itertools.combinations(group, 2):
            if canonical(one) != canonical(two) and difference(one, two) is None:
                (same if a == b else other).append((one, two))
    return same, other


async def measure(data: Path, cache: Path) -> dict[str, object]:
    embedder = await open_embedder(EmbeddingSettings(), cache=cache, clock=SystemClock())
    assert embedder is not None
    chance = random.Random(1)

    async def cosines(pairs: Sequence[tuple[str, str]]) -> list[float]:
        found = []
        for pair in pairs:
            one, two = [
                np.frombuffer((await embedder.embed([text], kind="query")).data, np.float32)
                for text in pair
            ]
            found.append(float(one @ two))
        return found

    result: dict[str, object] = {"embedder": embedder.spec.name, "sample": SAMPLE}
    for name, rows in questions(data / "queries"):
        same, other = passed(rows)
        ours = await cosines(chance.sample(same, min(SAMPLE, len(same))))
        theirs = await cosines(chance.sample(other, min(SAMPLE, len(other))))
        drawn = [(chance.choice(rows)[0], chance.choice(rows)[0]) for _ in range(SAMPLE)]
        unrelated = await cosines(drawn)
        result[name] = {
            "questions": len(rows),
            "pairs": len(rows) * (len(rows) - 1) // 2,
            "passed_same_intent": len(same),
            "passed_other_intent": len(other),
            "by_cosine": [
                {
                    "min_cosine": at,
                    "same_kept": round(float(np.mean(np.array(ours) >= at)), 3),
                    "other_kept": round(float(np.mean(np.array(theirs) >= at)), 3),
                    "unrelated_proposed": round(float(np.mean(np.array(unrelated) >= at)), 4),
                }
                for at in THRESHOLDS
            ],
        }
    await embedder.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "forebay")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(measure(arguments.data, arguments.cache)), indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
