"""Questions around the search: read before it, looked up in parts, judged after it.

What is decided here is synchronous and small; what waits are the searches themselves and, where a
setting asks for it, an engine with a deadline of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Protocol

import msgspec

from forebay.kernel.context import Degradation, RequestContext
from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import ForebayError, first_error
from forebay.kernel.stages import (
    GenerationRequest,
    Likeness,
    Message,
    QueryReader,
    Sampling,
    SearchRequest,
    SearchResult,
    Understood,
)
from forebay.pipeline.messages import AnswerRequest

MODEL = "rules"
"""What is named as the model of a sentence that nobody generated."""
NO_RUNG = "none"
"""The rung of what was answered without a search."""
PARTS_SHARE = 0.5
"""Share of the time left that the parts of a question may take: the answer needs the rest."""
PARTS_MISSING = "parts_missing"
MOST_LIKENED = 6
"""Hits whose likeness is looked at: what comes later shows no other sense."""

Look = Callable[[RequestContext, SearchRequest], Awaitable[SearchResult]]


class Likening(Protocol):
    """Knows how alike chunks of a knowledge base are."""

    async def of(
        self, ctx: RequestContext, kb: str, chunk_ids: Sequence[int], question: Vectors | None
    ) -> Likeness | None:
        """Return how alike chunks are, in the order given; None: not all have a vector.

        What they all share with the ``question`` is left out, where its vector is known.
        """
        ...


class QuestionEngine(Protocol):
    """Writes about a question before it is searched; None: it was late, or failed."""

    async def standalone(
        self, ctx: RequestContext, messages: Sequence[Message], understood: Understood
    ) -> str | None:
        """Return the last question of a conversation so that it stands alone."""
        ...

    async def passage(self, ctx: RequestContext, understood: Understood) -> str | None:
        """Return a passage as one that answers might read (HyDE)."""
        ...


class QuestionParts(msgspec.Struct, frozen=True):
    """What questions are read with.

    ``vector_of`` gives the vector of a query that somebody made and remembers, and makes none.
    ``likening`` None: nobody looks for senses; ``engine`` None: none is asked.
    """

    reader: QueryReader
    vector_of: Callable[[str], Vectors | None]
    likening: Likening | None = None
    engine: QuestionEngine | None = None


class Questions:
    """Reads, looks up and judges questions; one for a process."""

    def __init__(self, parts: QuestionParts) -> None:
        self._parts = parts

    def read(self, ctx: RequestContext, messages: Sequence[Message]) -> Understood:
        """What the last user message asks; a stage of its own (F2.3)."""
        with ctx.stage("query.parse") as record:
            understood = self._parts.reader.read(messages)
            record.attributes["language"] = understood.language
            record.attributes["kind"] = understood.kind
            record.attributes["rewritten"] = understood.rewritten
            record.attributes["sub_questions"] = len(understood.parts)
        return understood

    async def written(
        self, ctx: RequestContext, messages: Sequence[Message], understood: Understood
    ) -> tuple[Understood, str]:
        """The same after an engine has had its say, and a passage that might answer."""
        engine = self._parts.engine
        if engine is None or understood.reply:
            return understood, ""
        alone = await engine.standalone(ctx, messages, understood)
        if alone is not None and alone != understood.question:
            again = self._parts.reader.read((Message("user", alone),))
            asked = messages[-1].content
            understood = msgspec.structs.replace(
                again, language=understood.language, rewritten=alone != asked, reply=""
            )
        return understood, await engine.passage(ctx, understood) or ""

    async def found(
        self, ctx: RequestContext, wanted: SearchRequest, understood: Understood, look: Look
    ) -> tuple[SearchResult, Understood]:
        """What the search for a question finds, and the question judged by it."""
        if understood.parts:
            found, missing = await _in_parts(ctx, wanted, understood.parts, look)
            understood = msgspec.structs.replace(understood, missing=missing)
        else:
            found = await look(ctx, wanted)
        vector = self._parts.vector_of(understood.question)
        judged = self._parts.reader.judge(understood, vector, found.hits)
        likening = self._parts.likening
        if likening is None or not judged.unclear or judged.reply or len(found.hits) < 2:
            return found, judged
        hits = found.hits[:MOST_LIKENED]
        ids = [hit.chunk.chunk_id for hit in hits]
        likeness = await likening.of(ctx, wanted.kb, ids, vector)
        if likeness is None:
            return found, judged
        return found, self._parts.reader.senses(judged, hits, likeness)


async def _in_parts(
    ctx: RequestContext, wanted: SearchRequest, parts: Sequence[str], look: Look
) -> tuple[SearchResult, tuple[str, ...]]:
    """The hits of the whole question and of its parts, in turns, and the parts that are missing.

    The whole decides rung and version, and its failure is everybody's; a part that cannot be
    looked up, or not in good time, is left out, and the answer says so. Nothing tells what a
    change would bring to several searches at once, so nobody keeps an answer that rests on them,
    unless the whole had found these very hits and nothing is missing.
    """
    alone = msgspec.structs.replace(wanted, kind=None, hypothesis="")
    results: dict[int, SearchResult] = {}
    told: list[Degradation] = []
    allowed_s = ctx.deadline.remaining() * PARTS_SHARE

    async def part(at: int, text: str) -> None:
        own = ctx.part()
        try:
            async with asyncio.timeout(allowed_s):
                results[at] = await look(own, msgspec.structs.replace(alone, query=text))
            told.extend(own.degradations)
        except (ForebayError, TimeoutError):
            return  # the whole question is being looked up as well
        finally:
            ctx.stages += own.stages

    try:
        async with asyncio.TaskGroup() as group:
            for at, text in enumerate(parts):
                group.create_task(part(at, text))
            whole = await look(ctx, wanted)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    sides = [results[at].hits for at in sorted(results) if results[at].hits]
    hits = _in_turns([whole.hits, *sides], wanted.top_k)
    same = {hit.chunk.chunk_id for hit in hits} == {hit.chunk.chunk_id for hit in whole.hits}
    missing = tuple(text for at, text in enumerate(parts) if at not in results)
    if missing:
        ctx.degrade("retrieval", whole.rung, PARTS_MISSING)
    ctx.degradations += [one for one in dict.fromkeys(told) if one not in ctx.degradations]
    found = SearchResult(
        hits,
        whole.rung,
        whole.kb_version,
        evidence=whole.evidence if same and not missing else None,
        coverage=whole.coverage,
    )
    return found, missing


def _in_turns(lists: Sequence[Sequence[Hit]], most: int) -> tuple[Hit, ...]:
    """The best of each list, then the second of each, without repeats; each at its best score."""
    merged: dict[int, Hit] = {}
    for row in zip_longest(*lists):
        for hit in row:
            if hit is not None:
                known = merged.setdefault(hit.chunk.chunk_id, hit)
                if hit.score > known.score:
                    merged[hit.chunk.chunk_id] = hit
    return tuple(merged.values())[:most]


def cited_request(understood: Understood, found: SearchResult | None) -> GenerationRequest:
    """What a fixed reply may cite: the best hit of each sense, in order."""
    hits = () if found is None else found.hits
    passages = tuple(hits[sense.hits[0]] for sense in understood.senses)
    language = "zh" if understood.language.startswith("zh") else "en"
    return GenerationRequest(understood.question, language, (), passages, Sampling(), 0, 0)


def as_read(prompt: GenerationRequest, read: Understood | None) -> GenerationRequest:
    """A prompt as whoever quotes answers it: the question that was searched, its own script."""
    if read is None:
        return prompt
    question = read.question if read.rewritten else prompt.question
    traditional = read.language == "zh-Hant" and prompt.language == "zh"
    language = "zh-Hant" if traditional else prompt.language
    return msgspec.structs.replace(prompt, question=question, language=language)


def in_form(request: AnswerRequest, read: Understood) -> Understood:
    """A question whose answer is to have a form of its own gets no sentence in its place."""
    if not request.sampling.formed or not (read.reply or read.each):
        return read
    return msgspec.structs.replace(read, reply="", each=False)


def decided(read: Understood | None) -> bool:
    """Whether the way a question was read decides about its hits already."""
    return read is not None and bool(read.parts or read.reply or read.each)
