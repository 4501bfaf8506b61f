"""BM25 as its formula says, term by term: what every state of the index must agree with."""

from __future__ import annotations

import math
from collections import Counter

from forebay.retrieval import LexicalSettings
from forebay.retrieval.terms import Analyzer
from forebay.testing.index_feed import MemoryIndexFeed


def brute_force(
    record: MemoryIndexFeed, query: str, settings: LexicalSettings
) -> list[tuple[int, float]]:
    """BM25 as its formula says, over the living chunks."""
    analyzer = Analyzer(stemming=settings.stemming)
    documents = {}
    for row in record.live.values():
        terms = analyzer.document(f"{row.context}\n{row.text}")
        terms += analyzer.document("\n".join((row.title, *row.heading_path))) * (
            settings.heading_repeats
        )
        documents[row.chunk_id] = Counter(terms)
    average = max(1.0, sum(sum(d.values()) for d in documents.values()) / max(1, len(documents)))
    scores: dict[int, float] = {}
    for term in analyzer.query(query):
        df = sum(term in d for d in documents.values())
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        for chunk_id, counts in documents.items():
            tf = counts[term]
            if tf:
                norm = 1 - settings.b + settings.b * sum(counts.values()) / average
                gain = idf * tf * (settings.k1 + 1) / (tf + settings.k1 * norm)
                scores[chunk_id] = scores.get(chunk_id, 0.0) + gain
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
