"""From passages to a prompt within its budget, and from a model's text to citations."""

from forebay.context.citations import CitationStream, Cited
from forebay.context.language import language_of
from forebay.context.prompt import PromptBuilder
from forebay.context.settings import ContextSettings
from forebay.context.surroundings import Surroundings

__all__ = [
    "CitationStream",
    "Cited",
    "ContextSettings",
    "PromptBuilder",
    "Surroundings",
    "language_of",
]
