"""Texts beyond every window: cut at meaning boundaries, answer the parts, merge (F1.6).

Wraps the answering life and has its protocol. The quotas are charged once, for all parts together,
so that no text is answered by half for want of tokens; the sum of what was used settles it. Each
part is then admitted by itself, as a request of its own size: one permit for all would keep a place
at an engine from part to part while others wait, and its tenant's share would be charged once for
many turns. The deadline is the request's; leaving ends every part and frees what it held.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.clock import Deadline
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import (
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    ForebayError,
    Overloaded,
    StoreError,
    first_error,
)
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Message,
    Sampling,
    SearchRequest,
    SearchResult,
    TextDelta,
)
from forebay.kernel.streams import closing
from forebay.pipeline.answer import (
    AnswerParts,
    AnswerPipeline,
    Prompting,
    beside_if_long,
    question_of,
)
from forebay.pipeline.asking import ask_for
from forebay.pipeline.cut_notice import cut_notice
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest, Usage
from forebay.pipeline.questions import NO_RUNG
from forebay.pipeline.split_notes import (
    WORDS,
    Note,
    Notes,
    Words,
    left_out,
    one_after_the_other,
    part_of,
    shortened,
    shortened_to,
    told,
)
from forebay.pipeline.text_quotes import LongText, Nearest, Splitter, TextQuotes
from forebay.policy.admission import Ask, Entry
from forebay.policy.engine_ladder import others_may
from forebay.policy.splitting import (
    SplittingSettings,
    is_chinese,
    part_sizes,
    task_of,
    too_many_parts,
)

MOST_TOKENS_A_CHARACTER = 4
_SEARCH_SHARE, _PARTS_SHARE, _FIRST_SHARE = 0.3, 0.7, 0.8
"""Of the time that is left: what the search, all parts, and the wait for the merged answer's first
word may take, so that each leaves the rest of its time to what can still answer."""
_MARKER = re.compile(r"\[(\d{1,3})\](?!\()")
_NOTHING = re.compile(r"[\s\"'“”.。!！]*(?:none|无)[\s\"'“”.。!！]*", re.IGNORECASE)


class RoomyPrompting(Prompting, Protocol):
    """Builds prompts from as many passages as it is given, and says how long they may be."""

    def room(self, sampling: Sampling) -> int:
        """Most tokens of a prompt."""
        ...


class Splitting(msgspec.Struct, frozen=True):
    """What cuts and asks: ``window_tokens`` is the longest prompt that is ever built.

    ``nearest`` chooses what of a text is quoted where no engine reads it.
    """

    splitter: Splitter
    nearest: Nearest
    prompting: RoomyPrompting
    settings: SplittingSettings
    window_tokens: int


class _Plan(msgspec.Struct, frozen=True):
    """A text that is to be answered in parts, given as hits in order.

    ``part_tokens`` are those of a part with passages beside it, ``frame_tokens`` of all around;
    ``longest`` is the longest prompt that is taken.
    """

    asked: str
    words: Words
    rules: tuple[Message, ...]
    parts: tuple[Hit, ...]
    part_tokens: int
    note_tokens: int
    frame_tokens: int
    longest: int


class SplittingAnswers:
    """Answers what fits as ever, and what does not in parts."""

    def __init__(self, inner: AnswerPipeline, parts: AnswerParts, splitting: Splitting) -> None:
        self._inner = inner
        self._parts = parts
        self._splitting = splitting
        self._quotes: TextQuotes | None = None
        if parts.quoting is not None:
            quoting = (parts.quoting, splitting.splitter, splitting.nearest)
            self._quotes = TextQuotes(parts, *quoting)

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``AnswerPipeline.search``."""
        return await self._inner.search(ctx, request)

    def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncIterator[AnswerDelta | AnswerEnd]:
        """Yield answer text as it is certain, then one ``AnswerEnd``."""
        who = ctx.principal
        most = self._parts.admission.desk.room(who.tenant, who.priority)
        room = min(self._splitting.window_tokens, most)
        last = request.messages[-1].content if request.messages else ""
        if MOST_TOKENS_A_CHARACTER * len(last) <= room:
            return self._inner.answer(ctx, request)
        return self._answer(ctx, request)

    async def _answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        known, begun = self._parts.density, False
        chinese = is_chinese(question_of(request.messages))
        density = known.of("zh" if chinese else "en")
        for last in (False, False, True):
            plan = await self._plan(ctx, request, density)
            answering = self._inner.answer(ctx, request)
            if plan is not None:
                answering = self._in_parts(ctx, request, plan)
            try:
                async with closing(answering) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ContextTooLong:
                # By what the engine counts it may fit in more parts.
                if last or begun or known.most() <= density:
                    raise
                density = known.most()

    async def _plan(
        self, ctx: RequestContext, request: AnswerRequest, density: float
    ) -> _Plan | None:
        """How the last message is cut; None when it fits whole by what engines count."""
        message = question_of(request.messages)
        settings, prompting = self._splitting.settings, self._splitting.prompting
        rules = tuple(one for one in request.messages if one.role == "system")
        tokens = await beside_if_long([message], self._parts.count, [message])
        words = WORDS[is_chinese(message)]
        bare = prompting.build((*rules, Message("user", words.whole)), (), request.sampling)
        who, desk = ctx.principal, self._parts.admission.desk
        longest = int(desk.longest(who.tenant, who.priority) / density)
        window = min(prompting.room(request.sampling), longest)
        most = min(desk.room(who.tenant, who.priority), longest)
        most -= self._parts.count([rule.content for rule in rules])
        if tokens <= most and tokens + bare.prompt_tokens <= window:
            return None
        task = task_of(message)
        text = message[task.start : task.end]
        asked = task.asked or words.whole
        words = WORDS[is_chinese(asked)] if task.asked else words
        count = self._parts.count
        room = min(most, window) - bare.prompt_tokens
        sizes = part_sizes(
            settings,
            room=room,
            asked_tokens=count([asked, words.part]),
            text_tokens=tokens,
        )
        spans = await beside_if_long(
            [text], self._splitting.splitter.split, text, sizes.text_tokens, settings.overlap_tokens
        )
        if len(spans) > settings.max_parts:
            raise too_many_parts(settings, tokens, len(spans))
        return _Plan(
            asked=asked,
            words=words,
            rules=rules,
            parts=tuple(
                part_of(text[start:end], task.start + start, words, number, len(spans))
                for number, (start, end) in enumerate(spans, 1)
            ),
            part_tokens=sizes.text_tokens + room // 4,
            note_tokens=sizes.note_tokens,
            frame_tokens=bare.prompt_tokens + count([asked, words.part]),
            longest=longest,
        )

    async def _in_parts(
        self, ctx: RequestContext, request: AnswerRequest, plan: _Plan
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        admission, number = self._parts.admission, len(plan.parts)
        part = ask_for(ctx, plan.frame_tokens + plan.part_tokens, plan.note_tokens)
        merging = ask_for(
            ctx, plan.frame_tokens + number * plan.note_tokens, request.sampling.max_tokens
        )
        wanted = SearchRequest(
            kb=request.kb, query=plan.asked, top_k=request.top_k, filter=request.filter
        )
        async with admission.hold([*[part] * number, merging]) as whole:
            ctx.rate = whole.rate
            found = await self._looked_up(ctx, wanted)
            with ctx.stage("parts") as record:
                record.attributes["parts"] = number
                notes, failed = await self._notes(ctx, request, plan, found, whole)
                record.outcome = "ok" if any(notes) else "error"
            if any(notes):
                ctx.degrade("generation", "split", told(notes, plan.note_tokens))
                answering = self._merged(ctx, request, plan, found, (notes, whole))
            else:
                answering = self._quoted(ctx, request, plan, found, (failed, whole))
            async with closing(answering) as events:
                async for event in events:
                    yield event

    async def _looked_up(self, ctx: RequestContext, wanted: SearchRequest) -> SearchResult:
        """What the knowledge base has beside the text, which can be answered without, too."""
        try:
            async with asyncio.timeout(ctx.deadline.remaining() * _SEARCH_SHARE):
                return await self._inner.look_up(ctx, wanted)
        except TimeoutError:
            reason = "timeout"
        except (Overloaded, StoreError) as error:
            reason = error.code
        ctx.degrade("retrieval", NO_RUNG, reason)
        ctx.rung, version = NO_RUNG, ctx.served.version if ctx.served else 0
        return SearchResult((), NO_RUNG, ctx.kb_version or version)

    async def _notes(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        plan: _Plan,
        found: SearchResult,
        whole: Entry,
    ) -> tuple[Notes, list[ForebayError]]:
        """The answers from the parts, in order, and the failures of others.

        A part that fails or is late is missing from the answer, which still comes.
        """
        notes: dict[int, Note] = {}
        failed: list[ForebayError] = []
        waiting = iter(range(len(plan.parts)))
        within_s = ctx.deadline.remaining() * _PARTS_SHARE
        deadline = Deadline.after(within_s, ctx.clock)
        until = asyncio.get_running_loop().time() + within_s

        async def work() -> None:
            for at in waiting:
                own = ctx.part(deadline)
                try:
                    async with asyncio.timeout_at(until):
                        notes[at] = await self._note(own, request, plan, found, (at, whole))
                except TimeoutError:
                    failed.append(DeadlineExceeded("No part of the text was answered in time."))
                except (EngineError, Overloaded, DeadlineExceeded) as error:
                    failed.append(error)
                finally:
                    ctx.take_in(own)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._splitting.settings.at_once, len(plan.parts))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        return [notes.get(at) for at in range(len(plan.parts))], failed

    async def _note(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        plan: _Plan,
        found: SearchResult,
        which: tuple[int, Entry],
    ) -> Note:
        at, whole = which
        asked = plan.words.part.format(asked=plan.asked, number=at + 1, count=len(plan.parts))
        sampling = msgspec.structs.replace(
            request.sampling, max_tokens=plan.note_tokens, stop=None, response_format=None
        )
        prompt = await self._built(
            plan.longest,
            (*plan.rules, Message("user", asked)),
            (plan.parts[at], *found.hits),
            sampling,
            1,
        )
        ask = ask_for(ctx, prompt.prompt_tokens, plan.note_tokens, whole=whole)
        writer = self._parts.cite(prompt)
        pieces: list[str] = []
        finished: Finished | None = None
        async with closing(self._inner.written(ctx, ask, prompt)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    finished = event
                else:
                    pieces.append(writer.feed(event.text))
        rest, _, invalid = writer.finish()
        if finished is None:
            raise EngineError("the answer from a part of the text ended before it was complete.")
        usage = Usage(finished.prompt_tokens, finished.completion_tokens)
        text = "".join((*pieces, rest)).strip()
        return Note(text, usage, invalid, finished.reason == "length", finished.model)

    async def _merged(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        plan: _Plan,
        found: SearchResult,
        made: tuple[Notes, Entry],
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """One answer from the notes; it cites the parts and the hits that the notes cite."""
        notes, whole = made
        shown, cited = self._shown(plan, found, notes)
        asked = plan.asked
        if shown:
            asked = plan.words.merge.format(asked=plan.asked, count=len(shown))
        passages = (*shown, *cited[len(shown) :]) if shown else found.hits
        prompt = await self._built(
            plan.longest,
            (*plan.rules, Message("user", asked)),
            passages,
            request.sampling,
            len(shown),
        )
        sources = cited if shown else found.hits
        writer = self._parts.cite(
            msgspec.structs.replace(prompt, passages=tuple(sources[: len(prompt.passages)]))
        )
        ask = ask_for(ctx, prompt.prompt_tokens, request.sampling.max_tokens, whole=whole)
        finished, pieces = None, []
        async with closing(self._or_notes(ctx, (ask, prompt), shown, notes)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    finished = event
                elif text := writer.feed(event.text):
                    pieces.append(text)
                    yield AnswerDelta(text)
        rest, citations, invalid = writer.finish()
        if finished is not None and finished.bounded:
            rest += cut_notice("".join((*pieces, rest)), prompt)
        if not request.sampling.formed:
            rest += left_out(notes, plan.words)
        if rest:
            yield AnswerDelta(rest)
        if finished is None:
            raise EngineError("the answer ended before it was complete.")
        made_of = [note for note in notes if note is not None]
        yield AnswerEnd(
            finish_reason=finished.reason,
            citations=tuple(shortened(one) for one in citations),
            usage=Usage(
                finished.prompt_tokens + sum(note.usage.prompt_tokens for note in made_of),
                finished.completion_tokens + sum(note.usage.completion_tokens for note in made_of),
            ),
            model=finished.model,
            rung=found.rung,
            kb_version=found.kb_version,
            refused=finished.refused,
            unsure=finished.unsure,
            invalid_citations=invalid + sum(note.invalid for note in made_of),
            degradations=tuple(ctx.degradations),
        )

    async def _quoted(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        plan: _Plan,
        found: SearchResult,
        why: tuple[Sequence[ForebayError], Entry],
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Quotations, where engines did not begin; the failure where that is the text's own."""
        failed, whole = why
        quotes, spares = self._quotes, self._parts.spares
        wanted = not request.sampling.formed and any(others_may(error, spares) for error in failed)
        if quotes is None or not wanted or ctx.deadline.expired():
            raise failed[0]
        message = question_of(request.messages)
        text = LongText(plan.asked, plan.words is WORDS[True], message, plan.parts)
        answering = quotes.answer(ctx, text, found, request.sampling, failed)
        async with closing(answering) as events:
            async for event in events:
                if isinstance(event, AnswerDelta):
                    yield event
                    continue
                whole.prompt_tokens = event.usage.prompt_tokens
                whole.completion_tokens = event.usage.completion_tokens
                cited = tuple(shortened(one) for one in event.citations)
                yield msgspec.structs.replace(event, citations=cited)

    async def _or_notes(
        self,
        ctx: RequestContext,
        asked: tuple[Ask, GenerationRequest],
        shown: Sequence[Hit],
        notes: Notes,
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """What merges the notes writes; the notes themselves where it does not begin in time."""
        ask, prompt = asked
        async with closing(self._inner.written(ctx, ask, prompt)) as events:
            try:
                async with asyncio.timeout(ctx.deadline.remaining() * _FIRST_SHARE):
                    first = await anext(events)
            except (TimeoutError, EngineError, Overloaded, DeadlineExceeded) as error:
                if not shown or prompt.sampling.formed or ctx.deadline.expired():
                    raise
                late = isinstance(error, TimeoutError | DeadlineExceeded)
                reason = "timeout" if late else getattr(error, "code", "error")
                ctx.degrade("generation", "notes", f"the notes were not merged ({reason})")
                yield TextDelta(one_after_the_other(shown))
                model = next(note.model for note in notes if note is not None)
                yield Finished("stop", 0, 0, model)
                return
            yield first
            async for event in events:
                yield event

    def _shown(
        self, plan: _Plan, found: SearchResult, notes: Notes
    ) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
        """The notes that say something, as passages with one numbering, and all that it cites.

        The parts come first, in order, then the hits of the knowledge base that a note cites.
        """
        texts = ["none" if note is None else note.text for note in notes]
        kept = [at for at, text in enumerate(texts) if not _NOTHING.fullmatch(_plain(text))]
        hits: dict[int, int] = {}
        for at in kept:
            for number in map(int, _MARKER.findall(texts[at])):
                if 1 < number <= len(found.hits) + 1 and number not in hits:
                    hits[number] = len(kept) + len(hits) + 1
        shown = []
        for own, at in enumerate(kept, 1):
            text = _MARKER.sub(
                lambda marker, own=own: f"[{hits.get(int(marker[1]), own)}]",  # type: ignore[misc]
                shortened_to(texts[at], plan.note_tokens, self._parts.count),
            )
            part = plan.parts[at]
            chunk = msgspec.structs.replace(part.chunk, text=text)
            shown.append(msgspec.structs.replace(part, chunk=chunk))
        cited = (*(plan.parts[at] for at in kept), *(found.hits[number - 2] for number in hits))
        return tuple(shown), cited

    async def _built(
        self,
        longest: int,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        least: int,
    ) -> GenerationRequest:
        """The prompt; ``ContextTooLong`` unless the first ``least`` passages are in it."""
        texts = [hit.chunk.text for hit in passages]
        build = self._splitting.prompting.build
        prompt = await beside_if_long(texts, build, messages, passages, sampling, longest)
        if len(prompt.passages) < least:
            raise ContextTooLong(
                "The parts of the text do not fit the engines' window beside the question; "
                "shorten the question.",
                param="messages",
            )
        return prompt


def _plain(text: str) -> str:
    return _MARKER.sub("", text) or "none"
