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
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

from quality import PAIRS, SPEC, embed_sets, fill, lines, load_vectors, read, score

from forebay.retrieval import FusionSettings, KbIndex
from forebay.retrieval.fusion import (
    Mask,
    QueryFeatures,
    compare_legs,
    credit_foreign,
    fuse,
    meaning_score,
    word_features,
    words_score,
    words_weight,
)
from forebay.retrieval.languages import foreign_mask
from forebay.testing.index_feed import MemoryIndexFeed

SEED = 1
CANDIDATES = 30
Floats = npt.NDArray[np.float64]


class Candidates(msgspec.Struct, frozen=True):
    """Both legs' scores of one question's candidates, in order of chunk id."""

    features: QueryFeatures
    words: Floats
    meaning: Floats
    foreign: Mask
    names: list[str]
    relevant: set[str]


def candidates(data: Path, cache: Path, corpora: Sequence[str], questions: str) -> list[Candidates]:
    """Run both legs once for the tuning half of the questions."""
    chosen = read(data, corpora, questions)
    asked = load_vectors(data, cache, questions, "queries")
    place = {q["_id"]: i for i, q in enumerate(lines(data / questions / "queries.jsonl"))}
    record = MemoryIndexFeed(SPEC.dimensions)
    vectors = np.concatenate([load_vectors(data, cache, name, "corpus") for name in corpora])
    names = fill(record, chosen, vectors)
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
            cosine = snapshot.vectors.score(vector, ids)[0].astype(np.float64)
            background = snapshot.vectors.background(vector)
            features = word_features(parsed, words.scores, words.coverage)
            made.append(
                Candidates(
                    compare_legs(features, words.ids, nearest),
                    words_score(bm25, parsed.ideal),
                    meaning_score(cosine, background),
                    foreign_mask(snapshot.lexical.facts(ids.tolist()), query["text"]),
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
        words = each.words
        if isinstance(settings, float):
            weight = settings
        else:
            weight = words_weight(each.features, settings)
            words = credit_foreign(words, each.meaning, each.foreign, settings.foreign_words)
        order = np.argsort(-fuse(words, each.meaning, weight), kind="stable")[:10]
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
    for questions, corpora in PAIRS:
        made = candidates(data, arguments.cache, corpora, questions)
        sets.append((made, np.maximum(quality(made, 1.0), quality(made, 0.0))))
    chance = np.random.default_rng(SEED)
    best = FusionSettings()
    reached = objective(sets, best)
    print(f"{reached:.5f} {best}")
    for _ in range(arguments.steps):
        values = {
            name: float(value * (1 + 0.2 * chance.standard_normal() * (chance.random() < 0.5)))
            for name, value in msgspec.structs.asdict(best).items()
            if name != "kinds"
        }
        values["ceiling"] = min(1.0, values["ceiling"])
        tried = FusionSettings(**values)
        value = objective(sets, tried)
        if value > reached:
            best, reached = tried, value
            print(f"{reached:.5f} {best}", flush=True)


if __name__ == "__main__":
    main()
