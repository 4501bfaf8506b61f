"""Questions about cells of financial tables, by words alone: is the row found with its header?

    python benchmarks/chunking/tables.py --data ../shared/data

TAT-QA's documents as text files, cut by structure. A chunk answers a question when it is of the
right document and holds an answer string; it answers with its header when the years that the
question names are in it or in what it repeats of the table's header. Smaller chunks part more
tables: 64 and 128 tokens beside the default.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from documents import lines

from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse
from forebay.retrieval import KbIndex
from forebay.testing.index_feed import MemoryIndexFeed

YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def measure(folder: Path, settings: ChunkSettings) -> dict[str, Any]:
    """Cut, index and ask."""
    chunker = StructureChunker(settings, EstimatedTokenCounter())
    record = MemoryIndexFeed(4)
    places: dict[int, tuple[str, str, str]] = {}
    for row in lines(folder / "corpus.jsonl"):
        extracted = parse(row["text"].encode(), name=f"{row['_id']}.txt")
        for chunk in chunker.chunk(extracted):
            [number] = record.add(chunk.text, context=chunk.context, document=row["_id"])
            places[number] = (row["_id"], chunk.text, chunk.context)
    relevant = dict(
        line.split("\t")[:2] for line in (folder / "qrels.tsv").read_text().splitlines()[1:]
    )
    with tempfile.TemporaryDirectory() as path:
        index = KbIndex.open(Path(path), "kb", record, writable=True)
        words = index.snapshot().lexical
        answered, headed = [], []
        for query in lines(folder / "queries.jsonl"):
            # A bare digit or a unit is in every chunk.
            answers = [a for a in query["metadata"]["answers"] if len(a) > 3 and a[-1].isdigit()]
            years = set(YEAR.findall(query["text"]))
            rows = [
                number
                for number, (document, text, _) in places.items()
                if document == relevant[query["_id"]]
                and any(a in line and " | " in line for a in answers for line in text.split("\n"))
            ]
            if not rows or not years or years & set(answers):
                continue
            ids = words.search(words.parse(query["text"]), (), 5).ids.tolist()
            right = [number for number in ids if number in rows]
            whole = [n for n in right if years <= set(YEAR.findall("\n".join(places[n][1:])))]
            answered.append((bool(right), bool(right and right[0] == ids[0])))
            headed.append((bool(whole), bool(whole and whole[0] == ids[0])))
        index.close()
    return {
        "chunks": len(places),
        "with header repeated": sum(bool(context) for _, _, context in places.values()),
        "questions": len(answered),
        **{
            f"{name}@{k}": round(float(np.mean([each[at] for each in found])), 4)
            for name, found in (("row", answered), ("row and header", headed))
            for at, k in ((0, 5), (1, 1))
        },
    }


def main() -> None:
    """Measure at three sizes and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data / "retrieval" / "tatqa_dev"
    results = {
        str(tokens): measure(
            folder, ChunkSettings(max_tokens=tokens, min_tokens=tokens // 5, overlap_tokens=0)
        )
        for tokens in (64, 128, 256)
    }
    json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
