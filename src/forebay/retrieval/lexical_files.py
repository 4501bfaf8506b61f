"""What the lexical index keeps on disk: its schema, what was published, the engine's segments."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import tantivy

from forebay.retrieval.lexical_base import LexicalBase
from forebay.retrieval.recent import Recent
from forebay.retrieval.settings import LexicalSettings
from forebay.retrieval.terms import ANALYSIS_VERSION

_FORMAT = 2
_SEGMENT = re.compile("[0-9a-f]{32}")


class Applied(msgspec.Struct, frozen=True):
    """What the files hold: published by renaming this file into place.

    ``last`` is the highest chunk number among it; what the engine has beyond was not published.
    Numbers are never used twice. -1: written before this was known.
    """

    format: str
    version: int
    generation: int
    last: int = -1

    def beyond(self, base: LexicalBase) -> Recent:
        """Return what is to be left out of ``base`` because it was not published.

        It may have been removed since, and the record tells nobody of the removal of what they
        cannot have.
        """
        return Recent() if self.last < 0 else Recent(None, base.facts_after(self.last))


class Shown(msgspec.Struct, frozen=True):
    """Up to which version the writer has shown changes; readers make the same from the record."""

    version: int
    generation: int


class Fold(msgspec.Struct, frozen=True):
    """Changes on their way from memory to the files, and what they belong to."""

    recent: Recent
    version: int
    base: LexicalBase
    index: tantivy.Index


def build_schema() -> tantivy.Schema:
    """Fields: words, keys for filters, the chunk's number, its length, and facts for scoring."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("keys", tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("chunk", indexed=True, fast=True)
    builder.add_integer_field("length", fast=True)
    builder.add_bytes_field("facts", stored=True)
    return builder.build()


def format_tag(settings: LexicalSettings) -> str:
    """What must be equal for an index on disk to be readable; else it is rebuilt."""
    return (
        f"{_FORMAT}.{ANALYSIS_VERSION}.{version('tantivy')}"
        f".{int(settings.stemming)}.{settings.heading_repeats}"
    )


def superfluous(folder: Path, segments: frozenset[str]) -> frozenset[str]:
    """Segments that have files in the engine's ``folder``, but those of its last commit.

    A merge leaves its files when the process is killed, or when all its chunks were removed
    meanwhile. The engine clears up with the next commit, which a full disk keeps from coming.
    """
    try:
        names = {path.name.partition(".")[0] for path in folder.iterdir()}
    except OSError:
        return frozenset()
    written = {name for name in names if _SEGMENT.fullmatch(name)}
    return frozenset(written - segments)
