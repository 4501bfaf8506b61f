"""Which chunks are in another language than the query, as far as words can tell: Chinese or not."""

from __future__ import annotations

import numpy as np

from forebay.retrieval.fusion import Ids, Mask
from forebay.retrieval.keys import language_key
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.terms import is_chinese

_CHINESE = ((language_key("zh"),),)


def foreign_mask(lexical: LexicalView, query: str, chunk_ids: Ids) -> Mask:
    """Return which of ``chunk_ids`` can hardly hold the words of ``query``.

    A document's language decides, as ingest detected it; English and other languages share an
    alphabet, names and numbers, and are not told apart.
    """
    chinese = lexical.count_allowed(_CHINESE)
    if chinese in (0, lexical.chunks):
        held = np.full(len(chunk_ids), chinese > 0)
    else:
        held = np.isin(chunk_ids, lexical.allowed_among(_CHINESE, chunk_ids))
    foreign: Mask = held != is_chinese(query)
    return foreign
