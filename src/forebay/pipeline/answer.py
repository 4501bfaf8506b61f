"""The answering life: parse, retrieve, build the prompt, generate, cite.

Reads top to bottom. Every stage is a protocol, so whatever wraps it (cache, breaker, ladder)
is invisible here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import EngineError, InvalidRequest
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Generator,
    Message,
    Retriever,
    Sampling,
    SearchRequest,
    SearchResult,
)
from forebay.kernel.streams import closing
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest, Citation, Usage

INLINE_CHARACTERS = 20_000


class Prompting(Protocol):
    """Builds the prompt of a question from its passages, within a token budget."""

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
    ) -> GenerationRequest:
        """Return the finished prompt with the passages that fitted, in citation order."""
        ...


class CitationWriter(Protocol):
    """Cleans citation markers in one answer's stream and collects what they point to."""

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived."""
        ...

    def finish(self) -> tuple[str, Sequence[Citation], int]:
        """Return the held-back rest, the citations by index, and the count of bad markers."""
        ...


class AnswerParts(msgspec.Struct, frozen=True):
    """The stages of an answer, already wrapped in their policies."""

    retriever: Retriever
    prompting: Prompting
    generator: Generator
    cite: Callable[[GenerationRequest], CitationWriter]


class AnswerPipeline:
    """Questions in, cited answers out."""

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Retrieve without generating."""
        if not request.query.strip():
            raise InvalidRequest("the query is empty.", param="query")
        return await self._retrieve(ctx, request)

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Yield answer text as it is certain, then one ``AnswerEnd``."""
        question = question_of(request.messages)
        found = await self._retrieve(
            ctx,
            SearchRequest(
                kb=request.kb, query=question, top_k=request.top_k, filter=request.filter
            ),
        )
        with ctx.stage("prompt") as record:
            prompt = await self._prompt(request, found)
            record.attributes["language"] = prompt.language
        writer = self._parts.cite(prompt)
        finished: Finished | None = None
        with ctx.stage("generation") as record:
            async with closing(self._parts.generator.generate(ctx, prompt)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        finished = event
                        break
                    if "ttft_s" not in record.attributes:
                        record.attributes["ttft_s"] = ctx.clock.now() - record.started_at
                    text = writer.feed(event.text)
                    if text:
                        yield AnswerDelta(text)
            if finished is None:
                raise EngineError("the engine's answer ended before it was complete.")
            record.attributes["model"] = finished.model
            record.attributes["input_tokens"] = finished.prompt_tokens
            record.attributes["output_tokens"] = finished.completion_tokens
        rest, citations, invalid = writer.finish()
        if rest:
            yield AnswerDelta(rest)
        yield AnswerEnd(
            finish_reason=finished.reason,
            citations=tuple(citations),
            usage=Usage(finished.prompt_tokens, finished.completion_tokens),
            model=finished.model,
            rung=found.rung,
            kb_version=found.kb_version,
            refused=finished.refused,
            invalid_citations=invalid,
            degradations=tuple(ctx.degradations),
        )

    async def _prompt(self, request: AnswerRequest, found: SearchResult) -> GenerationRequest:
        """Long conversations are counted beside the loop, so that they hold up nobody."""
        build = self._parts.prompting.build
        size = sum(len(message.content) for message in request.messages)
        if size <= INLINE_CHARACTERS:
            return build(request.messages, found.hits, request.sampling)
        return await asyncio.to_thread(build, request.messages, found.hits, request.sampling)

    async def _retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        with ctx.stage("retrieval") as record:
            found = await self._parts.retriever.retrieve(ctx, request)
            record.attributes["query_length"] = len(request.query)
            record.attributes["top_k"] = request.top_k
            record.attributes["hits"] = len(found.hits)
        ctx.kb_version = found.kb_version
        ctx.rung = found.rung
        return found


def question_of(messages: Sequence[Message]) -> str:
    """The text of the last user message; ``InvalidRequest`` when there is none."""
    for message in reversed(messages):
        if message.role == "user":
            if message.content.strip():
                return message.content
            break
    raise InvalidRequest("messages must end with a user message that has text.", param="messages")
