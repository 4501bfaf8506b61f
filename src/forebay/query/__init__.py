"""Query understanding: what a question asks, before and after it was searched."""

from forebay.query.classifier import KindClassifier
from forebay.query.kinded import KindedRetriever, with_kind
from forebay.query.settings import QuerySettings
from forebay.query.understanding import RuleReader

__all__ = ["KindClassifier", "KindedRetriever", "QuerySettings", "RuleReader", "with_kind"]
