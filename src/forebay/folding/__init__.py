"""Spellings of one and the same text brought together, for every stage that compares texts."""

from forebay.folding.variants import simplified

__all__ = ["simplified"]
