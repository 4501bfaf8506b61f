"""Lexical and vector search over one knowledge base, fused per query."""

from forebay.retrieval.bounds import LoggedBounds
from forebay.retrieval.fusion import FusionSettings
from forebay.retrieval.index import KbIndex, Snapshot
from forebay.retrieval.retriever import HybridRetriever, search_executor
from forebay.retrieval.settings import LexicalSettings, RetrievalSettings, VectorSettings

__all__ = [
    "FusionSettings",
    "HybridRetriever",
    "KbIndex",
    "LexicalSettings",
    "LoggedBounds",
    "RetrievalSettings",
    "Snapshot",
    "VectorSettings",
    "search_executor",
]
