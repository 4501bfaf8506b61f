"""Search by words alone where question and documents are spelled differently.

    python benchmarks/retrieval/folding.py --data ../shared/data > benchmarks/retrieval/folding.json

The six sets as they are, and DRCD (Traditional) and XQuAD (Simplified) with one side converted by
OpenCC's phrases, which is more than the index folds. recall@10 and MRR@10, no vectors.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opencc
from quality import SETS, fill, read, score

from forebay.retrieval import KbIndex
from forebay.testing.index_feed import MemoryIndexFeed

DIMENSIONS = 4
Convert = Callable[[str], str]


def measure(
    data: Path, name: str, questions: Convert = str, documents: Convert = str
) -> dict[str, float]:
    """Ask one set's questions of its documents, either side spelled anew first."""
    chosen = read(data, (name,), name)
    for row in chosen.documents:
        row["text"], row["title"] = documents(row["text"]), documents(row.get("title", ""))
    record = MemoryIndexFeed(DIMENSIONS)
    names = fill(record, chosen, np.zeros((len(chosen.documents), DIMENSIONS), np.float32))
    with tempfile.TemporaryDirectory() as folder:
        index = KbIndex.open(Path(folder), "kb", record, writable=True)
        words = index.snapshot().lexical
        rows = []
        for query in chosen.queries:
            ids = words.search(words.parse(questions(query["text"])), (), 10).ids.tolist()
            rows.append(score([names[i] for i in ids], chosen.relevant[query["_id"]]))
        index.close()
    recall, rank = np.mean(rows, axis=0)
    return {"recall@10": round(float(recall), 4), "mrr@10": round(float(rank), 4)}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data / "retrieval"
    simplified, traditional, taiwan = (
        opencc.OpenCC(name).convert for name in ("t2s", "s2t", "s2twp")
    )
    results: dict[str, Any] = {name: measure(data, name) for name in SETS}
    mean = {key: round(sum(r[key] for r in results.values()) / 6, 4) for key in results[SETS[0]]}
    results |= {
        "mean of the six": mean,
        "drcd_dev, questions Simplified": measure(data, "drcd_dev", simplified),
        "drcd_dev, documents Simplified": measure(data, "drcd_dev", documents=simplified),
        "xquad_zh, questions Traditional": measure(data, "xquad_zh", traditional),
        "xquad_zh, questions in Taiwan's words": measure(data, "xquad_zh", taiwan),
    }
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    json.dump({"machine": machine, "commit": commit, "results": results}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
