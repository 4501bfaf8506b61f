"""What the pool and its worker processes say to each other: length-prefixed msgpack."""

from __future__ import annotations

import struct

import msgspec

from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.kernel.documents import ChunkDraft, Extracted

LENGTH = struct.Struct("<I")
CHUNKS_PER_FRAME = 500
CHARACTERS_PER_FRAME = 500_000
SENTENCES_PER_FRAME = 5_000


class CounterChoice(msgspec.Struct, frozen=True):
    """A token counter made in each worker: ``module:attribute``, called with the arguments."""

    factory: str
    argument: str | None = None


class Setup(msgspec.Struct, frozen=True):
    """The first frame a worker gets."""

    limits: IngestLimits
    chunks: ChunkSettings
    counter: CounterChoice
    memory_bytes: int
    cpu_s: int
    nice: int


class Task(msgspec.Struct, frozen=True, array_like=True):
    """One file: its bytes, or the path to read them from.

    ``breaks``: where its meaning changes, as a first reading of the same bytes let somebody find
    out; None for that first reading.
    """

    name: str
    media_type: str | None
    data: bytes | None
    path: str | None
    breaks: tuple[int, ...] | None = None


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Files a worker does one after the other."""

    tasks: list[Task]


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk without its text, which the receiver cuts out of the document's."""

    start: int
    end: int
    tokens: int
    page: int | None
    path: tuple[str, ...]
    context: str


class Document(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """The file in hand; a long text follows in ``parts`` frames of its own."""

    extracted: Extracted
    parts: int


class Part(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A piece of a long text, short enough to decode without holding up the event loop."""

    text: str


class Sentences(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Some of the spans whose likeness to their neighbours is asked for, before the chunks."""

    spans: list[tuple[int, int]]


class Spans(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Some of its chunks; ``last`` ends the file."""

    spans: list[Span]
    last: bool


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The file ended with a reason; ``exits`` says that the worker ends as well."""

    message: str
    code: str
    exits: bool = False


Reply = Document | Part | Sentences | Spans | Refused


def document_of(extracted: Extracted) -> list[Document | Part]:
    """The frames of a text, without its blocks: they have done their work in the chunker."""
    text = extracted.text
    if len(text) <= CHARACTERS_PER_FRAME:
        return [Document(msgspec.structs.replace(extracted, blocks=()), 0)]
    starts = range(0, len(text), CHARACTERS_PER_FRAME)
    parts = [Part(text[start : start + CHARACTERS_PER_FRAME]) for start in starts]
    return [Document(msgspec.structs.replace(extracted, text="", blocks=()), len(parts)), *parts]


def sentences_of(spans: list[tuple[int, int]]) -> list[Sentences]:
    """Cut sentence spans into frames."""
    starts = range(0, len(spans), SENTENCES_PER_FRAME)
    return [Sentences(spans[at : at + SENTENCES_PER_FRAME]) for at in starts]


def spans_of(chunks: tuple[ChunkDraft, ...]) -> list[Spans]:
    """Cut chunks into frames; always at least one, the last marked."""
    rows = [Span(c.start, c.end, c.tokens, c.page, c.heading_path, c.context) for c in chunks]
    groups = [rows[i : i + CHUNKS_PER_FRAME] for i in range(0, len(rows), CHUNKS_PER_FRAME)]
    groups = groups or [[]]
    return [Spans(group, index == len(groups) - 1) for index, group in enumerate(groups)]


def chunks_of(spans: list[Span], text: str, first: int) -> list[ChunkDraft]:
    """Rebuild chunks, counting their ordinals from ``first``."""
    return [
        ChunkDraft(
            ordinal, s.start, s.end, text[s.start : s.end], s.tokens, s.page, s.path, s.context
        )
        for ordinal, s in enumerate(spans, start=first)
    ]
