"""Quotations from a text that is too long for one prompt and that no engine reads just now.

The last rung of an answer in parts: the text is cut into pieces as short as chunks, the question's
words choose some of them, and those are quoted from as passages of a knowledge base are, beside
what that holds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import EngineError
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Generator,
    Sampling,
    SearchResult,
    TextDelta,
)
from forebay.kernel.streams import closing
from forebay.pipeline.answer import AnswerParts, beside_if_long
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, Usage
from forebay.policy.engine_ladder import QUOTED, STAGE, reasons

PIECE_TOKENS = 300
MOST_PIECES = 12


class Splitter(Protocol):
    """Cuts a text where its meaning allows."""

    def split(self, text: str, max_tokens: int, overlap_tokens: int) -> Sequence[tuple[int, int]]:
        """Return the spans of its parts in order, none over ``max_tokens``."""
        ...


class Nearest(Protocol):
    """Chooses among texts by a question's words."""

    def __call__(
        self, question: str, texts: Sequence[str], most: int
    ) -> Sequence[tuple[int, float]]:
        """Return the numbers of the best, best first, and how near each is, 0..1."""
        ...


class LongText(msgspec.Struct, frozen=True):
    """A text in a message, cut into ``parts``, and what is asked of it."""

    asked: str
    chinese: bool
    message: str
    parts: Sequence[Hit]


class TextQuotes:
    """Answers what is asked of a text by quoting it."""

    def __init__(
        self, parts: AnswerParts, quoting: Generator, splitter: Splitter, nearest: Nearest
    ) -> None:
        self._parts = parts
        self._quoting = quoting
        self._splitter = splitter
        self._nearest = nearest

    async def answer(
        self,
        ctx: RequestContext,
        text: LongText,
        found: SearchResult,
        sampling: Sampling,
        failed: Sequence[Exception],
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Yield the answer; ``failed`` is why no engine gives it."""
        ctx.degrade(STAGE, QUOTED, reasons(failed))
        ctx.placement = None
        pieces = await beside_if_long([text.message], self._pieces, text)
        passages = (*pieces, *found.hits)
        prompt = GenerationRequest(
            question=text.asked,
            language="zh" if text.chinese else "en",
            messages=(),
            passages=passages,
            sampling=sampling,
            max_output_tokens=sampling.max_tokens or 1 << 30,
            prompt_tokens=self._parts.count([text.asked, *(hit.chunk.text for hit in passages)]),
        )
        writer = self._parts.cite(prompt)
        finished: Finished | None = None
        with ctx.stage("generation") as record:
            async with closing(self._quoting.generate(ctx, prompt)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        yield AnswerDelta(writer.feed(event.text))
                    else:
                        finished = event
            if finished is None:
                raise EngineError("the quotations ended before they were complete.")
            record.attributes["model"] = finished.model
        rest, citations, invalid = writer.finish()
        yield AnswerDelta(rest)
        yield AnswerEnd(
            finish_reason=finished.reason,
            citations=tuple(citations),
            usage=Usage(finished.prompt_tokens, finished.completion_tokens),
            model=finished.model,
            rung=found.rung,
            kb_version=found.kb_version,
            refused=finished.refused,
            unsure=finished.unsure,
            invalid_citations=invalid,
            degradations=tuple(ctx.degradations),
        )

    def _pieces(self, text: LongText) -> tuple[Hit, ...]:
        """What of the text is worth reading, best first; each is named as the part it begins in."""
        begin, end = text.parts[0].chunk.start, text.parts[-1].chunk.end
        spans = [
            (begin + start, begin + stop)
            for start, stop in self._splitter.split(text.message[begin:end], PIECE_TOKENS, 0)
        ]
        texts = [text.message[start:stop] for start, stop in spans]
        chosen = self._nearest(text.asked, texts, MOST_PIECES)
        return tuple(_piece(text, spans[at], at + 1, share) for at, share in chosen)


def _piece(text: LongText, span: tuple[int, int], number: int, share: float) -> Hit:
    start, end = span
    part = next(one for one in reversed(text.parts) if one.chunk.start <= start)
    chunk = msgspec.structs.replace(
        part.chunk, chunk_id=number, start=start, end=end, text=text.message[start:end]
    )
    return Hit(chunk, share)
