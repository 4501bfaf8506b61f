"""Some documents have no vector yet: does a search by both still find them as words do?

    python benchmarks/retrieval/partly_embedded.py --data ../shared/data \
        > benchmarks/retrieval/partly_embedded.json

A tenth, half and nine tenths of the documents, chosen by a hash, have vectors. nDCG@10 of words
alone and of both legs (always both), for the first 400 questions of a set, apart for those whose
right documents all have a vector and the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from early_exit import ndcg, one
from quality import SPEC, fill, lines, load_vectors, read

from forebay.retrieval import KbIndex
from forebay.testing.index_feed import MemoryIndexFeed

SHARES = (0.1, 0.5, 0.9)
QUESTIONS = 400


class Partly(MemoryIndexFeed):
    """Stores the vectors of a share of what it is given."""

    share = 1.0

    def embed(self, rows: Any) -> None:
        """See ``MemoryIndexFeed``."""
        kept = {i: row for i, row in rows.items() if zlib.crc32(b"%d" % i) % 100 < self.share * 100}
        super().embed(kept)
        self.held = frozenset(kept)


def measure(data: Path, cache: Path, name: str, share: float) -> dict[str, Any]:
    """One set with one share of its vectors."""
    chosen = read(data, (name,), name)
    record = Partly(SPEC.dimensions)
    record.share = share
    names = fill(record, chosen, load_vectors(data, cache, name, "corpus"))
    asked = load_vectors(data, cache, name, "queries")
    rows = lines(data / name / "queries.jsonl")
    place = {row["_id"]: at for at, row in enumerate(rows)}
    found: dict[str, list[tuple[float, float]]] = {"with_a_vector": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        for query in chosen.queries[:QUESTIONS]:
            right = {i for i, each in names.items() if each in chosen.relevant[query["_id"]]}
            vector = asked[place[query["_id"]]][None].astype(np.float32)
            told = one(index.snapshot(), query["text"], vector, right)
            kind = "with_a_vector" if right <= record.held else "without"
            found[kind].append((ndcg(told.words, told.relevant), ndcg(told.both, told.relevant)))
        index.close()
    return {
        kind: {
            "questions": len(each),
            "words": round(float(np.mean([words for words, _ in each])), 4),
            "both": round(float(np.mean([both for _, both in each])), 4),
        }
        for kind, each in found.items()
        if each
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    arguments = parser.parse_args()
    data = arguments.data / "retrieval"
    result = {
        f"{name}, {share}": measure(data, arguments.cache, name, share)
        for name in ("xquad_en", "xquad_zh", "scifact_train")
        for share in SHARES
    }
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
