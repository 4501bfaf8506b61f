"""Chunks whose borders follow meaning, inside the sections of a document (F3.10).

Neighbouring sentences that are unlike each other part; a chunk has some sentences before it may
end. F3.10 parts under a cosine of .65, which says nothing for embedders whose cosines are crowded
(e5 gives .71 and more across topics): here the threshold is a percentile of the cosines of the
document's own neighbouring sentences, so it means the same for any embedder.
"""

from __future__ import annotations

from collections.abc import Collection

from forebay.ingest.chunker import Packer, Unit, sections
from forebay.ingest.sentences import sentence_spans
from forebay.ingest.settings import ChunkSettings
from forebay.kernel.documents import Block, BlockKind, ChunkDraft, Extracted
from forebay.kernel.stages import TokenCounter

_PROSE: frozenset[BlockKind] = frozenset({"paragraph", "list_item"})


class MeaningChunker:
    """Cuts along sections and, inside them, where the next sentence begins something else.

    ``breaks`` are the starts of such sentences among ``prose_spans``. Everything else is as in
    ``StructureChunker``: exact spans, at most ``max_tokens``, headings lead, rows stay whole.
    """

    def __init__(
        self, settings: ChunkSettings, counter: TokenCounter, breaks: Collection[int] = ()
    ) -> None:
        self._settings = settings
        self._counter = counter
        self._breaks = frozenset(breaks)

    def chunk(self, extracted: Extracted) -> tuple[ChunkDraft, ...]:
        """Return the chunks of ``extracted`` in order."""
        packer = _MeaningPacker(extracted, self._settings, self._counter, self._breaks)
        for section in sections(extracted):
            packer.add_section(section)
        return packer.finish()


class _MeaningPacker(Packer):
    """Packs sentences instead of blocks."""

    def __init__(
        self,
        extracted: Extracted,
        settings: ChunkSettings,
        counter: TokenCounter,
        breaks: frozenset[int],
    ) -> None:
        super().__init__(extracted, settings, counter)
        self._breaks = breaks

    def units_of(self, block: Block) -> list[Unit]:
        return [
            self._unit(start, end, block.kind, block.page, block.table)
            for start, end in _pieces(self._text, block)
        ]

    def parts(self, unit: Unit) -> bool:
        if unit.start not in self._breaks:
            return False
        held = sum(each.kind in _PROSE for each in self._units)
        return held >= self._settings.min_sentences


def prose_spans(extracted: Extracted) -> list[tuple[int, int]]:
    """Return the sentences and list items whose likeness decides, in order."""
    return [
        span
        for block in extracted.blocks
        if block.kind in _PROSE
        for span in _pieces(extracted.text, block)
    ]


def _pieces(text: str, block: Block) -> list[tuple[int, int]]:
    """The sentences of a paragraph; other blocks are one piece."""
    if block.kind == "paragraph":
        return sentence_spans(text, block.start, block.end)
    return [(block.start, block.end)]
