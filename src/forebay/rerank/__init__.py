"""Rerankers: what orders candidates against a query."""

from forebay.rerank.similarity import SimilarityReranker, SimilaritySettings

__all__ = ["SimilarityReranker", "SimilaritySettings"]
