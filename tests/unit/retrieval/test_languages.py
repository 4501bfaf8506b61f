"""Which chunks are in another language than the query."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.retrieval import KbIndex
from forebay.retrieval.languages import foreign_mask
from forebay.testing.index_feed import MemoryIndexFeed

ENGLISH, CHINESE = "How are parcels returned?", "退货需要什么材料？"


@pytest.mark.parametrize(
    ("languages", "english", "chinese"),
    [
        (("en", "zh", ""), [False, True, False], [True, False, True]),
        (("en", "en"), [False, False], [True, True]),
        (("zh", "zh"), [True, True], [False, False]),
    ],
)
def test_a_document_s_language_decides(
    tmp_path: Path, languages: tuple[str, ...], english: list[bool], chinese: list[bool]
) -> None:
    record = MemoryIndexFeed(8)
    ids = [record.add("text", language=language)[0] for language in languages]
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    lexical = index.snapshot().lexical
    facts = lexical.facts(ids)
    assert foreign_mask(facts, ENGLISH).tolist() == english
    assert foreign_mask(facts, CHINESE).tolist() == chinese
    assert foreign_mask(facts, "VPN 怎么连").tolist() == chinese
    assert foreign_mask([None], CHINESE).tolist() == [True]
    assert not len(foreign_mask([], ENGLISH))
    index.close()
