"""Small sets of questions on disk, as their owners write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

BOATS: list[dict[str, Any]] = [
    {"_id": "ferry", "title": "Ferry", "text": "The ferry leaves at nine and carries 40 cars."},
    {"_id": "水闸", "title": "水闸", "text": "水闸每天早上八点打开，由两名值班员操作。"},
    {"_id": "lock", "title": "", "text": "The lock is closed in January for repairs."},
]
ASKED: list[dict[str, Any]] = [
    {"_id": "1", "text": "When does the ferry leave?", "metadata": {"answers": ["at nine"]}},
    {"_id": "2", "text": "水闸几点打开？", "metadata": {"answers": ["早上八点"]}},
    {"_id": "3", "text": "Who painted the lock?", "metadata": {"answers": []}},
    {"_id": "4", "text": "What is known of the ferry?"},
]
QRELS = "query-id\tcorpus-id\tscore\n1\tferry\t1\n1\tlock\t0\n2\t水闸\t2\n"


def lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def folder(path: Path) -> Path:
    """A BEIR-style folder of three documents and four questions."""
    path.mkdir()
    (path / "corpus.jsonl").write_bytes(lines(BOATS))
    (path / "queries.jsonl").write_bytes(lines(ASKED) + b"\n")
    (path / "qrels.tsv").write_text(QRELS, encoding="utf-8")
    return path
