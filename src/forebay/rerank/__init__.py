"""Rerankers: the second look at what retrieval found."""
