"""The ways to cut that are compared: by length alone, by structure, by meaning."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forebay.ingest import ChunkSettings, StructureChunker
from forebay.ingest.meaning import MeaningChunker, prose_spans
from forebay.kernel.documents import ChunkDraft, Extracted
from forebay.kernel.stages import TokenCounter
from forebay.pipeline.meaning import breaks_of

_RUN = re.compile(r"(?P<han>[\u3400-\u9fff\uf900-\ufaff]+)|[^\s\u3400-\u9fff\uf900-\ufaff]+")
Embed = Callable[[Sequence[str]], Awaitable[npt.NDArray[np.float32]]]


class Way(NamedTuple):
    """One way to cut; ``percentile`` only for meaning."""

    kind: str
    tokens: int
    overlap: int
    percentile: float = 25.0

    @property
    def name(self) -> str:
        """As the tables name it."""
        at = f" p{self.percentile:g}" if self.kind == "meaning" else ""
        return f"{self.kind}{at} {self.tokens}/{self.overlap}"


async def cut(
    way: Way, extracted: Extracted, counter: TokenCounter, embed: Embed
) -> tuple[ChunkDraft, ...]:
    """Cut one document."""
    if way.kind == "fixed":
        return fixed(extracted.text, way.tokens, way.overlap, counter)
    settings = ChunkSettings(
        max_tokens=way.tokens,
        overlap_tokens=way.overlap,
        break_percentile=way.percentile,
    )
    if way.kind == "structure":
        return StructureChunker(settings, counter).chunk(extracted)
    spans = prose_spans(extracted)
    rows = await embed([extracted.text[start:end] for start, end in spans])
    cosines = np.einsum("ij,ij->i", rows[:-1], rows[1:])
    breaks = breaks_of([start for start, _ in spans], cosines, way.percentile)
    return MeaningChunker(settings, counter, breaks).chunk(extracted)


def fixed(text: str, tokens: int, overlap: int, counter: TokenCounter) -> tuple[ChunkDraft, ...]:
    """Windows of ``tokens`` with ``overlap``, cut between words and nowhere wiser."""
    words: list[tuple[int, int]] = []
    costs: list[float] = []
    for run in _RUN.finditer(text):
        # Han has no spaces: a character costs its share of the run, not what it would alone.
        pieces = range(*run.span()) if run["han"] else (run.start(),)
        length = 1 if run["han"] else len(run[0])
        words.extend((at, at + length) for at in pieces)
        costs.extend([counter.count(run[0]) / len(pieces)] * len(pieces))
    chunks: list[ChunkDraft] = []
    at = 0
    while at < len(words):
        end, spent = at, 0.0
        while end < len(words) and (end == at or spent + costs[end] <= tokens):
            spent += costs[end]
            end += 1
        start, stop = words[at][0], words[end - 1][1]
        chunks.append(ChunkDraft(len(chunks), start, stop, text[start:stop], round(spent)))
        if end >= len(words):
            break
        back = 0.0
        while end > at + 1 and back < overlap:
            end -= 1
            back += costs[end]
        at = end
    return tuple(chunks)
