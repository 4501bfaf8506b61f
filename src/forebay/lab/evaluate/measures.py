"""Recall, reciprocal rank and nDCG of rankings, per query, as ``trec_eval`` computes them.

``pytrec-eval-terrier`` computes them; it has no wheel for Linux on ARM, where the same formulas
stand in (a test holds both together wherever the library is). A ranking is document ids, best
first, each once; ``relevance`` grades them per query (0 is judged and not relevant). Queries
without a relevant document have no measure; those without a ranking count as 0, which
``trec_eval`` alone would leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

Relevance = Mapping[str, Mapping[str, int]]
"""Query id to document id to grade."""
Rankings = Mapping[str, Sequence[str]]
"""Query id to document ids, best first."""
Values = dict[str, float]
"""Query id to a measure."""

_PACKAGE = "pytrec-eval-terrier"


def ndcg(relevance: Relevance, rankings: Rankings, depth: int) -> Values:
    """At ``depth``, nDCG of each query: gain is the grade, discount log2 of the rank plus one."""
    return _measured(relevance, rankings, depth, "ndcg_cut", _ndcg)


def recall(relevance: Relevance, rankings: Rankings, depth: int) -> Values:
    """The share of each query's relevant documents among the first ``depth``."""
    return _measured(relevance, rankings, depth, "recall", _recall)


def mrr(relevance: Relevance, rankings: Rankings, depth: int) -> Values:
    """One over the rank of each query's first relevant document; 0 beyond ``depth``."""
    return _measured(relevance, rankings, depth, "recip_rank", _reciprocal_rank)


def mean(values: Mapping[str, float]) -> float:
    """The mean over queries; nan without any."""
    return math.fsum(values.values()) / len(values) if values else math.nan


def documents_of(hits: Iterable[str]) -> list[str]:
    """Document ids of a ranking of chunks: each document where its best chunk stands."""
    return list(dict.fromkeys(hits))


def computed_by() -> str:
    """The library and version that compute the measures here."""
    if _library() is None:
        return "forebay"
    try:
        return f"{_PACKAGE} {version(_PACKAGE)}"
    except PackageNotFoundError:
        return _PACKAGE


def _measured(
    relevance: Relevance,
    rankings: Rankings,
    depth: int,
    name: str,
    formula: Callable[[Mapping[str, int], Sequence[str], int], float],
) -> Values:
    if depth < 1:
        raise ValueError("a measure looks at one document at least")
    judged = {
        query: grades
        for query, grades in relevance.items()
        if any(grade > 0 for grade in grades.values())
    }
    kept = {query: documents_of(rankings.get(query, ()))[:depth] for query in judged}
    library = _library()
    if library is None:
        return {query: formula(judged[query], kept[query], depth) for query in judged}
    # The library orders by score and breaks ties by id: ranks as scores say the order exactly.
    scores = {
        query: {document: float(-rank) for rank, document in enumerate(ranking)}
        for query, ranking in kept.items()
        if ranking
    }
    measure = name if name == "recip_rank" else f"{name}.{depth}"
    found = library.RelevanceEvaluator(judged, {measure}).evaluate(scores)
    label = measure.replace(".", "_")
    return {query: float(found[query][label]) if query in found else 0.0 for query in judged}


def _library() -> ModuleType | None:
    """The library where it is installed; imported with its first use."""
    try:
        return import_module("pytrec_eval")
    except ImportError:
        return None


def _ndcg(grades: Mapping[str, int], ranking: Sequence[str], depth: int) -> float:
    best = sorted(grades.values(), reverse=True)[:depth]
    return _discounted([grades.get(document, 0) for document in ranking]) / _discounted(best)


def _discounted(gains: Sequence[int]) -> float:
    return math.fsum(max(gain, 0) / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _recall(grades: Mapping[str, int], ranking: Sequence[str], _: int) -> float:
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking)) / len(relevant)


def _reciprocal_rank(grades: Mapping[str, int], ranking: Sequence[str], _: int) -> float:
    ranks = (rank for rank, document in enumerate(ranking, 1) if grades.get(document, 0) > 0)
    return next((1 / rank for rank in ranks), 0.0)
