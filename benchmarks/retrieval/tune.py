"""Tunes the fusion weights on one half of each set's questions; ``quality.py`` reports the other.

    python benchmarks/retrieval/tune.py --data ../shared/data

Prints the best settings found by a seeded random search from the current defaults. The objective
is the mean lead over the better leg in recall@10 and MRR@10 over all sets, with what is lost on
any set counting five times: one configuration must not pay for one corpus with another.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import zlib
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

from quality import PAIRS, SPEC, embed_sets, lines, read, score

from forebay.retrieval import FusionSettings, KbIndex
from forebay.retrieval.fusion import (
    QueryFeatures,
    compare_legs,
    fuse,
    meaning_score,
    word_features,
    words_score,
    words_weight,
)
from forebay.testing.index_feed import MemoryIndexFeed

SEED = 1
CANDIDATES = 50
Floats = npt.NDArray[np.float64]


class Candidates(msgspec.Struct, frozen=True):
    """Both legs' scores of one question's candidates, in order of chunk id."""

    features: QueryFeatures
    words: Floats
    meaning: Floats
    names: list[str]
    relevant: set[str]


def candidates(data: Path, cache: Path, corpus: str, questions: str) -> list[Candidates]:
    """Run both legs once for the tuning half of the questions."""
    chosen = read(data, corpus, questions)
    asked = np.load(cache / f"{questions}.queries.npy")
    place = {q["_id"]: i for i, q in enumerate(lines(data / questions / "queries.jsonl"))}
    record = MemoryIndexFeed(SPEC.dimensions)
    names: dict[int, str] = {}
    for document in chosen.documents:
        [chunk_id] = record.add(
            document["text"], document=document["_id"], title=document.get("title", "")
        )
        names[chunk_id] = document["_id"]
    record.embed(dict(zip(names, np.load(cache / f"{corpus}.corpus.npy"), strict=True)))
    made = []
    with tempfile.TemporaryDirectory() as folder:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        snapshot = index.snapshot()
        for query in chosen.queries:
            if zlib.crc32(query["text"].encode()) % 2 == 1:
                continue
            vector = asked[place[query["_id"]]][None].astype(np.float32)
            parsed = snapshot.lexical.parse(query["text"])
            words = snapshot.lexical.search(parsed, (), CANDIDATES)
            nearest, _ = snapshot.search_vectors(vector, CANDIDATES, ())
            ids = np.union1d(words.ids, nearest)
            bm25 = np.zeros(len(ids))
            scored = snapshot.lexical.score(parsed, ids.tolist())
            bm25[np.searchsorted(ids, scored.ids)] = scored.scores
            cosine = snapshot.vectors.score(vector, ids).astype(np.float64)
            background = snapshot.vectors.background(vector).mean
            features = word_features(parsed.known, words.scores, words.coverage)
            made.append(
                Candidates(
                    compare_legs(features, words.ids, nearest),
                    words_score(bm25, parsed.ideal),
                    meaning_score(cosine, background),
                    [names[i] for i in ids.tolist()],
                    chosen.relevant[query["_id"]],
                )
            )
        index.close()
    return made


def quality(questions: list[Candidates], settings: FusionSettings | float) -> Floats:
    """Return mean recall@10 and MRR@10, under settings or one fixed weight."""
    found = []
    for each in questions:
        weight = settings if isinstance(settings, float) else words_weight(each.features, settings)
        order = np.argsort(-fuse(each.words, each.meaning, weight), kind="stable")[:10]
        found.append(score([each.names[i] for i in order], each.relevant))
    means: Floats = np.asarray(found).mean(axis=0)
    return means


def objective(sets: list[tuple[list[Candidates], Floats]], settings: FusionSettings) -> float:
    """Return the mean lead over the better leg, losses five-fold."""
    lead = np.asarray([quality(questions, settings) - best for questions, best in sets])
    return float((lead + 4 * np.minimum(0.0, lead + 0.002)).mean())


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    data = arguments.data / "retrieval"
    asyncio.run(embed_sets(data, arguments.cache))
    sets = []
    for questions, corpus in PAIRS:
        made = candidates(data, arguments.cache, corpus, questions)
        sets.append((made, np.maximum(quality(made, 1.0), quality(made, 0.0))))
    chance = np.random.default_rng(SEED)
    best = FusionSettings()
    reached = objective(sets, best)
    print(f"{reached:.5f} {best}")
    for _ in range(arguments.steps):
        values = {
            name: float(value * (1 + 0.2 * chance.standard_normal() * (chance.random() < 0.5)))
            for name, value in msgspec.structs.asdict(best).items()
        }
        values["ceiling"] = min(1.0, values["ceiling"])
        tried = FusionSettings(**values)
        value = objective(sets, tried)
        if value > reached:
            best, reached = tried, value
            print(f"{reached:.5f} {best}", flush=True)


if __name__ == "__main__":
    main()
