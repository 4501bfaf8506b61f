"""Answers to a question that means several things: one for each sense, by its own hits (F0.1)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

import msgspec

from forebay.kernel.clock import Deadline
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import DeadlineExceeded, EngineError, ForebayError
from forebay.kernel.stages import Finished, SearchRequest, SearchResult, Sense
from forebay.kernel.streams import closing
from forebay.pipeline.answer import AnswerParts, AnswerPipeline, beside_if_long
from forebay.pipeline.asking import ask_for
from forebay.pipeline.cut_notice import cut_notice
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    Answering,
    AnswerRequest,
    Citation,
    Usage,
)

_MARKER = re.compile(r"\[(\d{1,3})\](?!\()")


class _Said(msgspec.Struct, frozen=True):
    """The answer for one sense; its citations are numbered on from the senses before it."""

    text: str
    citations: tuple[Citation, ...]
    usage: Usage
    finished: Finished
    invalid: int
    passages: int


class AnswersBySense:
    """``Answering`` around ``inner``; where that found several senses to answer, it does."""

    def __init__(self, inner: Answering, pipeline: AnswerPipeline, parts: AnswerParts) -> None:
        self._inner = inner
        self._pipeline = pipeline
        self._parts = parts

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Answering``."""
        return await self._inner.search(ctx, request)

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """See ``Answering``."""
        several: AnswerEnd | None = None
        async with closing(self._inner.answer(ctx, request)) as events:
            async for event in events:
                if isinstance(event, AnswerEnd) and event.understood and event.understood.each:
                    several = event
                elif isinstance(event, AnswerEnd) or event.text:
                    yield event
        if several is None:
            return
        async with closing(self._each(ctx, request, several)) as events:
            async for event in events:
                yield event

    async def _each(
        self, ctx: RequestContext, request: AnswerRequest, end: AnswerEnd
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        read = end.understood
        assert read is not None and end.rests is not None
        said: list[_Said] = []
        missing: list[str] = []
        failure: Exception | None = None
        for at, sense in enumerate(read.senses):
            shown = sum(one.passages for one in said)
            # Who is late takes no other sense's time.
            within_s = ctx.deadline.remaining() / (len(read.senses) - at)
            own = ctx.part(Deadline.after(within_s, ctx.clock))
            try:
                async with asyncio.timeout(within_s):
                    one = await self._sense(own, request, (sense, end.rests.found), shown)
            except (ForebayError, TimeoutError) as error:
                failure = failure or error
                missing.append(sense.name)
                continue
            finally:
                ctx.take_in(own)
            said.append(one)
            joint = "" if len(said) == 1 else "\n\n"
            yield AnswerDelta(f"{joint}**{sense.name}**\n\n{one.text.strip()}")
        if not said:
            raise _as_told(failure)
        if missing:
            ctx.degrade("generation", "senses", "senses_missing")
            yield AnswerDelta(_left_out(read.language, missing))
        yield msgspec.structs.replace(
            end,
            finish_reason="length" if any(o.finished.reason == "length" for o in said) else "stop",
            citations=tuple(citation for one in said for citation in one.citations),
            usage=Usage(
                end.usage.prompt_tokens + sum(one.usage.prompt_tokens for one in said),
                sum(one.usage.completion_tokens for one in said),
            ),
            model=said[-1].finished.model,
            refused=all(one.finished.refused for one in said),
            unsure=_unsure([one.finished for one in said]),
            invalid_citations=sum(one.invalid for one in said),
            degradations=tuple(ctx.degradations),
            rests=None,
        )

    async def _sense(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        which: tuple[Sense, SearchResult],
        shown: int,
    ) -> _Said:
        sense, found = which
        hits = [found.hits[at] for at in sense.hits]
        texts = [message.content for message in request.messages]
        build, who = self._parts.prompting.build, ctx.principal
        most = self._parts.admission.desk.longest(who.tenant, who.priority)
        prompt = await beside_if_long(texts, build, request.messages, hits, request.sampling, most)
        ask = ask_for(ctx, prompt.prompt_tokens, request.sampling.max_tokens)
        writer = self._parts.cite(prompt)
        pieces: list[str] = []
        finished: Finished | None = None
        async with closing(self._pipeline.written(ctx, ask, prompt, quotable=True)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    finished = event
                else:
                    pieces.append(writer.feed(event.text))
        if finished is None:
            raise EngineError("the answer for one sense ended before it was complete.")
        rest, citations, invalid = writer.finish()
        text = _MARKER.sub(lambda mark: f"[{int(mark[1]) + shown}]", "".join((*pieces, rest)))
        if finished.bounded:
            text += cut_notice(text, prompt)
        return _Said(
            text,
            tuple(msgspec.structs.replace(one, index=one.index + shown) for one in citations),
            Usage(finished.prompt_tokens, finished.completion_tokens),
            finished,
            invalid,
            len(prompt.passages),
        )


def _unsure(ends: Sequence[Finished]) -> bool:
    """Whether none is a plain answer, and one quotes what comes nearest."""
    return any(one.unsure for one in ends) and all(one.refused or one.unsure for one in ends)


def _as_told(failure: Exception | None) -> Exception:
    if failure is None or isinstance(failure, TimeoutError):
        return DeadlineExceeded("No sense of the question could be answered in time.")
    return failure


def _left_out(language: str, names: Sequence[str]) -> str:
    """What an answer by senses says of those that are not in it."""
    if language.startswith("zh"):
        return f"\n\n（暂时无法回答：{'；'.join(names)}。）"
    return f"\n\n(Could not be answered just now: {'; '.join(names)}.)"
