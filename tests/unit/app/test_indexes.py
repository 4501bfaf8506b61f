"""The indexes of a process: how much of them has vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forebay.app.indexes import IndexSet
from forebay.retrieval import KbIndex
from forebay.testing.index_feed import MemoryIndexFeed


def test_the_share_with_vectors_is_of_all_chunks_together(tmp_path: Path) -> None:
    feeds = {"full": MemoryIndexFeed(4), "half": MemoryIndexFeed(4)}
    for name, feed in feeds.items():
        ids = feed.add("one", "两", "three")
        count = 3 if name == "full" else 1
        feed.embed({chunk: np.eye(4, dtype=np.float32)[0] for chunk in ids[:count]})

    def opened(kb: str) -> KbIndex:
        return KbIndex.open(tmp_path / kb, kb, feeds[kb], writable=True, fingerprint=lambda: "mark")

    indexes = IndexSet(opened)
    assert indexes.embedded_share() == 1.0
    for name in feeds:
        indexes.refresh(name)
    assert indexes.embedded_share() == 4 / 6
    indexes.close()
