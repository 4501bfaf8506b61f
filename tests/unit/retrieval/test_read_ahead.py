"""Term counts are read ahead of searches: of indexes in use, as far as memory goes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forebay.retrieval import KbIndex, RetrievalSettings
from forebay.retrieval.lexical_base import LexicalBase
from forebay.testing.index_feed import MemoryIndexFeed


def opened(folder: Path, chunks: int, room_bytes: int = 1_000_000) -> KbIndex:
    record = MemoryIndexFeed()
    record.add(*(f"parcel {number} is returned 退货" for number in range(chunks)))
    settings = RetrievalSettings()
    lexical = msgspec.structs.replace(settings.lexical, counts_cache_bytes=room_bytes)
    settings = msgspec.structs.replace(settings, lexical=lexical)
    index = KbIndex.open(folder, "kb", record, writable=True, settings=settings)
    index.maintain(force=True)
    return index


def read_all(base: LexicalBase, at_once: int) -> int:
    rounds = 0
    while base.read_ahead(at_once):
        rounds += 1
    return rounds


def remembered(index: KbIndex, ids: range) -> int:
    return sum(data is not None for data in index.snapshot().lexical.base._facts.get(ids))


def search(index: KbIndex, text: str) -> list[int]:
    view = index.snapshot().lexical
    ids: list[int] = view.search(view.parse(text), (), 3).ids.tolist()
    return ids


def test_an_index_in_use_is_read_to_its_end(tmp_path: Path) -> None:
    index = opened(tmp_path, 50)
    base = index.snapshot().lexical.base
    assert base.chunks == 50, "all are in the files"
    assert read_all(base, 8) == 0, "nobody has searched yet"
    before = search(index, "parcel 7")
    assert remembered(index, range(1, 51)) < 50
    assert read_all(base, 8) == 7
    assert remembered(index, range(1, 51)) == 50
    assert search(index, "parcel 7") == before
    assert read_all(base, 8) == 0
    index.close()


def test_it_ends_where_memory_ends(tmp_path: Path) -> None:
    index = opened(tmp_path, 200, room_bytes=6000)
    search(index, "parcel 7")
    assert 0 < read_all(index.snapshot().lexical.base, 8) < 8
    assert index.snapshot().lexical.base._facts._bytes <= 6000
    index.close()
