"""Which chunks are in another language than the query, as far as words can tell: Chinese or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forebay.retrieval.counts import packed_chinese
from forebay.retrieval.fusion import Mask
from forebay.retrieval.terms import is_chinese


def foreign_mask(packed: Sequence[bytes | None], query: str) -> Mask:
    """Return which chunks, by their packed facts, can hardly hold the words of ``query``.

    A document's language decides, as ingest detected it; English and other languages share an
    alphabet, names and numbers, and are not told apart. A chunk without facts is not Chinese.
    """
    chinese = np.array([data is not None and packed_chinese(data) for data in packed], np.bool_)
    foreign: Mask = chinese != is_chinese(query)
    return foreign
