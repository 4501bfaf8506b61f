"""What each model family wants in front of queries and passages.

The instructions are those of the models' own cards; a wrong one costs several points of recall,
so an explicit setting always wins, then what the model folder says, then this table.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["query", "passage", "raw"]


class Prefixes(msgspec.Struct, frozen=True):
    """Strings put in front of a text before it is tokenised."""

    query: str = ""
    passage: str = ""

    def apply(self, text: str, kind: Kind) -> str:
        """``text`` as the model wants it; ``raw`` is left alone."""
        if kind == "raw":
            return text
        return (self.query if kind == "query" else self.passage) + text


NONE = Prefixes()
E5 = Prefixes("query: ", "passage: ")
BGE_ZH = Prefixes("为这个句子生成表示以用于检索相关文章：")
BGE_EN = Prefixes("Represent this sentence for searching relevant passages: ")
_INSTRUCT = Prefixes(
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
)
_NOMIC = Prefixes("search_query: ", "search_document: ")
_GEMMA = Prefixes("task: search result | query: ", "title: none | text: ")

FAMILIES: tuple[tuple[re.Pattern[str], Prefixes], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), prefixes)
    for pattern, prefixes in (
        (r"\be5-.*instruct", _INSTRUCT),
        (r"\be5-", E5),
        (r"\bbge-m3", NONE),
        (r"\bbge-.*-zh", BGE_ZH),
        (r"\bbge-.*-en", BGE_EN),
        (r"qwen3-embedding", _INSTRUCT),
        (r"nomic-embed", _NOMIC),
        (r"embeddinggemma|embedding-gemma", _GEMMA),
        (r"arctic-embed.*v2", Prefixes("query: ")),
        (r"arctic-embed|mxbai-embed", BGE_EN),
    )
)
"""Model name pattern and its prefixes, first match wins."""


def prefixes_for(
    name: str,
    *,
    query: str | None = None,
    passage: str | None = None,
    declared: Prefixes | None = None,
) -> Prefixes:
    """Prefixes of the model ``name``; ``query`` and ``passage`` are explicit settings."""
    found = declared
    if found is None:
        found = next((p for pattern, p in FAMILIES if pattern.search(name)), NONE)
    return Prefixes(
        found.query if query is None else query,
        found.passage if passage is None else passage,
    )
