"""What the light reranker costs: candidates of 1,000 characters in both languages, one thread.

    python benchmarks/rerank/speed.py > benchmarks/rerank/speed.json

Processor time of 300 runs: the model alone; all of it, as the search pool runs it; what reading and
comparing the candidates' sentences adds. Every chunk has a title of its own.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # As the server sets it, before numpy is imported.

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import machine

from forebay.app.nearest import NearestSentences
from forebay.embedding.sentence_vectors import pack
from forebay.kernel.documents import ChunkRow, Hit, Vectors
from forebay.kernel.stages import HitVectors
from forebay.rerank.features import candidates_of
from forebay.rerank.light import LightModel
from forebay.store import StoreWriter
from forebay.testing.feed_suite import draft_of, unit_vectors

RUNS, CHARACTERS, SEED = 300, 1000, 3
CHUNKS, MAKER = 3000, 7
VOCABULARY, ASKED = 3000, (15, 40, 90, 150, 240, 400, 700, 1000)
SYLLABLES = "ba co di fu ge lo mi nu pa re so ti vu wa xe ly tor san mer gul".split()


def vocabulary(language: str) -> list[str]:
    """Made-up words, the most frequent first: of syllables, or of two Han characters."""
    chance = np.random.default_rng(SEED)
    if language == "zh":
        pairs = 0x4E00 + chance.integers(0, 2500, (2 * VOCABULARY, 2))
        words = ["".join(map(chr, pair)) for pair in pairs.tolist()]
    else:
        words = ["".join(chance.choice(SYLLABLES, chance.integers(1, 5))) for _ in range(9000)]
    return list(dict.fromkeys(words))[:VOCABULARY]


def candidates(count: int, language: str) -> tuple[str, list[Hit], HitVectors]:
    """A question of eight words and hits whose words follow Zipf's law."""
    chance = np.random.default_rng(SEED)
    words, apart = vocabulary(language), " " if language == "en" else ""
    share = 1.0 / np.arange(1, len(words) + 1)
    share /= share.sum()
    hits = []
    for number in range(count):
        text = apart.join(chance.choice(words, 600, p=share))[:CHARACTERS]
        title = apart.join(chance.choice(words, 3))
        row = ChunkRow(
            number, f"d{number}", 0, 0, len(text), text, "", 200, None, (), title, "s", language,
            (), (), {}, 1,
        )  # fmt: skip
        hits.append(Hit(row, 0.9 - number / 100, 5.0, 0.4))
    rows = chance.standard_normal((count + 1, 384)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = apart.join(words[rank] for rank in ASKED)
    return query, hits, HitVectors(rows[0].tobytes(), rows[1:].tobytes(), 384)


def with_sentences(folder: Path) -> NearestSentences:
    """A record of chunks with three to fifteen sentences each, read as a search reads it."""
    chance = np.random.default_rng(SEED)
    store = StoreWriter(folder)
    ids = list(range(1, CHUNKS + 1))
    store.commit("kb", [draft_of("d", *map(str, ids))], [])
    store.store_vectors("kb", unit_vectors(ids), "f")
    made = {}
    for chunk_id in ids:
        count = int(chance.integers(3, 16))
        rows = chance.standard_normal((count, 384)).astype("<f4")
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = Vectors(tuple(range(count)), 384, rows.tobytes())
        made[chunk_id] = pack([f"{chunk_id} {number}" for number in range(count)], vectors)
    store.store_sentences("kb", MAKER, made)
    return NearestSentences(partial(store.reader.sentences, None, MAKER))


def anywhere(hits: Sequence[Hit], chance: np.random.Generator) -> list[Hit]:
    """The hits as if they were others of the record's chunks."""
    ids = chance.permutation(CHUNKS)[: len(hits)] + 1
    return [
        msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, chunk_id=number))
        for hit, number in zip(hits, ids.tolist(), strict=True)
    ]


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
    chance = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        sentences = with_sentences(Path(folder))
        for count in (30, 50):
            _, hits, vectors = candidates(count, "en")
            asked = [anywhere(hits, chance) for _ in range(RUNS)]
            report[f"sentences of {count} candidates, ms"] = median_ms(
                lambda asked=asked, v=vectors: sentences.of(asked.pop(), v)
            )
    for language in ("en", "zh"):
        for count in (30, 50):
            query, hits, vectors = candidates(count, language)
            made = candidates_of(query, hits, vectors)
            report[f"{count} candidates, {language}, ms"] = {
                "model": median_ms(lambda made=made: model.run(made)),
                "all": median_ms(lambda q=query, h=hits, v=vectors: model.relevances(q, h, v)),
            }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
