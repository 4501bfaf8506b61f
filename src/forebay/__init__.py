"""Forebay: a RAG server that keeps its promises under overload."""

__version__ = "0.1.0"
