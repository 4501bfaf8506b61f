"""Lexical and vector search over one knowledge base, fused per query."""

from forebay.retrieval.bounds import LoggedBounds
from forebay.retrieval.fusion import FusionSettings
from forebay.retrieval.index import KbIndex, Snapshot
from forebay.retrieval.keyword import KeywordRetriever
from forebay.retrieval.light import LightRetriever
from forebay.retrieval.retriever import HybridRetriever, MeaningRetriever
from forebay.retrieval.searching import search_executor
from forebay.retrieval.settings import LexicalSettings, RetrievalSettings, VectorSettings
from forebay.retrieval.words import WordsRetriever

__all__ = [
    "FusionSettings",
    "HybridRetriever",
    "KbIndex",
    "KeywordRetriever",
    "LexicalSettings",
    "LightRetriever",
    "LoggedBounds",
    "MeaningRetriever",
    "RetrievalSettings",
    "Snapshot",
    "VectorSettings",
    "WordsRetriever",
    "search_executor",
]
