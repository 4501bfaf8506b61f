"""Which chunks are in another language than the query, as far as words can tell: Chinese or not."""

from __future__ import annotations

from forebay.retrieval.fusion import Ids, Mask
from forebay.retrieval.lexical_search import LexicalView
from forebay.retrieval.terms import is_chinese


def foreign_mask(lexical: LexicalView, query: str, chunk_ids: Ids) -> Mask:
    """Return which of ``chunk_ids`` can hardly hold the words of ``query``.

    A document's language decides, as ingest detected it; English and other languages share an
    alphabet, names and numbers, and are not told apart.
    """
    foreign: Mask = lexical.chinese(chunk_ids.tolist()) != is_chinese(query)
    return foreign
