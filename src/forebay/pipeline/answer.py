"""The answering life: parse, retrieve, build the prompt, generate, cite.

Reads top to bottom. Every stage is a protocol, so whatever wraps it (cache, breaker, ladder)
is invisible here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from forebay.kernel.caching import ServedVersions
from forebay.kernel.context import RequestContext, StageRecord
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
    TextDelta,
    Understood,
)
from forebay.kernel.streams import closing
from forebay.pipeline.asking import ask_for, claimant, session_of
from forebay.pipeline.cut_notice import bounded, cut_notice
from forebay.pipeline.density import Density
from forebay.pipeline.fragility import Fragility, cautioned, is_fragile
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    AnswerRequest,
    CitationWriter,
    Rests,
    StoredAnswer,
    Usage,
)
from forebay.pipeline.passing import AnswerText, noted
from forebay.pipeline.questions import (
    MODEL,
    NO_RUNG,
    Questions,
    as_read,
    cited_request,
    decided,
    in_form,
)
from forebay.pipeline.sentences import Comparing
from forebay.policy.admission import Admission, Ask, Permit

T = TypeVar("T")
INLINE_CHARACTERS = 20_000


class Prompting(Protocol):
    """Builds the prompt of a question from its passages, within a token budget."""

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        most_tokens: int | None = None,
    ) -> GenerationRequest:
        """Return the finished prompt with the passages that fitted, in citation order.

        ``most_tokens`` bounds it where that is tighter than the window.
        """
        ...


class EngineTokens(Protocol):
    """Counts as the engines of a pool do, where they say how."""

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """Tokens of a prompt in the pool ``ctx`` was put in; None: the estimate stands."""
        ...

    def written(self, pool: str, text: str) -> int | None:
        """Tokens of a text that was written there, at once; None: the estimate stands."""
        ...


class Near(Protocol):
    """Knows answers to questions that say the same in other words."""

    async def find(self, ctx: RequestContext, request: AnswerRequest) -> StoredAnswer | None:
        """A kept answer that will do; None: this question is to be answered."""
        ...


class Widening(Protocol):
    """Reads what stands around hits in their documents."""

    async def widen(self, ctx: RequestContext, kb: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return passages, best first: each a stretch of its document's own text."""
        ...


class AnswerParts(msgspec.Struct, frozen=True):
    """The stages of an answer, already wrapped in their policies.

    ``count`` estimates; ``tokens`` corrects that for prompts and for answers that were cut.
    ``serving`` says which version a query may be answered from. ``spares``: refusals of a pool
    after which ``generator`` has another way to answer; ``engines`` does not quote, for prompts
    whose answer no passage is, and ``quoting`` does nothing else; ``engine_spares`` are the
    refusals for whoever wants no quotation. ``widening`` None: prompts hold hits as they were
    found. ``questions`` None: what users write is searched as it is.
    ``density`` is what engines count for an estimate. ``most_passages`` is what a prompt holds:
    no more are planned, however many are asked for. ``comparing`` None: no sentence has a vector
    of its own.
    """

    retriever: Retriever
    prompting: Prompting
    generator: Generator
    cite: Callable[[GenerationRequest], CitationWriter]
    admission: Admission
    count: Callable[[Sequence[str]], int]
    tokens: EngineTokens | None = None
    serving: ServedVersions | None = None
    near: Near | None = None
    fragility: Fragility | None = None
    widening: Widening | None = None
    spares: frozenset[str] = frozenset()
    engine_spares: frozenset[str] = frozenset()
    engines: Generator | None = None
    quoting: Generator | None = None
    questions: Questions | None = None
    density: Density = msgspec.field(default_factory=Density)
    most_passages: int = 100
    comparing: Comparing | None = None


class AnswerPipeline:
    """Questions in, cited answers out."""

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts

    async def look_up(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Retrieve for an answer that is charged as a whole."""
        await self._pin(ctx, request.kb)
        return await self._retrieve(ctx, request)

    async def written(
        self, ctx: RequestContext, ask: Ask, prompt: GenerationRequest, *, quotable: bool = False
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """What an engine writes to a prompt that is built, admitted as ``ask`` says.

        ``quotable``: where none begins, passages of the prompt are an answer.
        """
        ask = msgspec.structs.replace(ask, spares=self._parts.spares)
        began_at = ctx.clock.now()
        async with self._parts.admission.admit(ask) as permit:
            _placed(ctx, permit, began_at)
            with ctx.stage("prompt") as record:
                prompt = await self._counted(ctx, prompt, record)
            await permit.built(prompt.prompt_tokens)
            generated = self._generated(ctx, prompt, permit, quotable)
            async with closing(generated) as events:
                async for event in events:
                    yield event

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Retrieve without generating; the query's tokens count towards the quotas."""
        if not request.query.strip():
            raise InvalidRequest("the query is empty.", param="query")
        await self._pin(ctx, request.kb)
        tokens = await beside_if_long([request.query], self._parts.count, [request.query])
        ctx.rate = await self._parts.admission.charge(claimant(ctx), "search", tokens)
        found = await self._as_read(ctx, request)
        if self._parts.fragility is not None:
            await self._parts.fragility.shown(ctx, request.kb, found)
        return found

    async def _as_read(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        if self._parts.questions is None:
            return await self._retrieve(ctx, request)
        # Searched as it is: a rewritten query would be a surprise where no answer explains it.
        read = self._parts.questions.read(ctx, (Message("user", request.query),))
        found = await self._retrieve(ctx, msgspec.structs.replace(request, kind=read.kind))
        told = Understood(request.query, read.language, read.kind)
        return msgspec.structs.replace(found, understood=told)

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """Yield answer text as it is certain, then one ``AnswerEnd``."""
        question = question_of(request.messages)
        await self._pin(ctx, request.kb)
        wanted, read = await self._read(ctx, request, question)
        if read is not None and read.reply:
            for said in await self._said(ctx, read, None):
                yield said
            return
        ask = await self._asked(ctx, request)
        began_at = ctx.clock.now()
        async with self._parts.admission.admit(ask) as permit:
            _placed(ctx, permit, began_at)
            near = self._parts.near
            kept = None if near is None else await near.find(ctx, request)
            if kept is not None:
                for told in self._instead(ctx, question, kept, permit):
                    yield told
                return
            found, read = await self._found(ctx, request, wanted, read)
            if read is not None and (read.reply or read.each):
                permit.produced(self._parts.count([question]), 0, whole=False)
                for said in await self._said(ctx, read, found):
                    yield said
                return
            prompt = await self._built(ctx, request, found, read)
            await permit.built(prompt.prompt_tokens)
            text = AnswerText(ctx, self._parts.cite(prompt))
            generated = self._generated(ctx, prompt, permit)
            async with closing(generated) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        finished = event
                    elif certain := text.feed(event.text):
                        yield AnswerDelta(certain)
        rest, citations, invalid = text.writer.finish(refused=finished.refused)
        if rest:
            yield AnswerDelta(rest)
        if self._parts.fragility is not None and not finished.refused:
            await self._parts.fragility.answered(ctx, request.kb, f"{text}{rest}", prompt.passages)
        if finished.bounded and (notice := cut_notice(f"{text}{rest}", prompt)):
            yield AnswerDelta(notice)
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
            rests=Rests(prompt.passages, found),
            understood=read,
        )

    async def _read(
        self, ctx: RequestContext, request: AnswerRequest, question: str
    ) -> tuple[SearchRequest, Understood | None]:
        """What to search for, and how the question was read."""
        wanted = SearchRequest(
            kb=request.kb, query=question, top_k=request.top_k, filter=request.filter
        )
        questions = self._parts.questions
        if questions is None:
            return wanted, None
        read = in_form(request, questions.read(ctx, request.messages))
        read, hypothesis = await questions.written(ctx, request.messages, read)
        wanted = msgspec.structs.replace(
            wanted, query=read.question, kind=read.kind, hypothesis=hypothesis
        )
        return wanted, read

    async def _found(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        wanted: SearchRequest,
        read: Understood | None,
    ) -> tuple[SearchResult, Understood | None]:
        if self._parts.questions is None or read is None:
            found = await self._retrieve(ctx, wanted)
        else:
            found, judged = await self._parts.questions.found(ctx, wanted, read, self._retrieve)
            read = in_form(request, judged)
        # What was found in parts has been widened already, and its hits differ as they should.
        if self._parts.fragility is not None and not decided(read):
            found = await self._parts.fragility.searched(ctx, wanted, found, self._retrieve)
        return found, read

    async def _said(
        self, ctx: RequestContext, read: Understood, found: SearchResult | None
    ) -> tuple[AnswerDelta, AnswerEnd]:
        """A sentence that nobody generated, instead of an answer; before a search it is charged
        here, after one by the permit. Where each sense is to be answered, it is empty, and the end
        says what was found.
        """
        used = self._parts.count([read.question])
        if found is None:
            await self._parts.admission.charge(claimant(ctx), "chat", used, ctx.scene.name)
            ctx.rung, ctx.kb_version = NO_RUNG, ctx.served.version if ctx.served else 0
        writer = self._parts.cite(cited_request(read, found))
        text = writer.feed(read.reply)
        rest, citations, _ = writer.finish()
        end = AnswerEnd(
            finish_reason="stop",
            citations=tuple(citations),
            usage=Usage(used, 0),
            model=MODEL,
            rung=ctx.rung or NO_RUNG,
            kb_version=ctx.kb_version or 0,
            # Before a search only small talk has a reply, and nothing was asked there.
            refused=found is not None and not read.each,
            degradations=tuple(ctx.degradations),
            rests=Rests((), found) if found is not None and read.each else None,
            understood=read,
        )
        return AnswerDelta(text + rest), end

    def _instead(
        self, ctx: RequestContext, question: str, kept: StoredAnswer, permit: Permit
    ) -> tuple[AnswerDelta, AnswerEnd]:
        """An answer to another question that says the same; it costs what this question weighs."""
        used = self._parts.count([question])
        permit.produced(used, 0, whole=False)
        ctx.cache["answer"] = "near"
        ctx.rung, ctx.kb_version = kept.end.rung, kept.end.kb_version
        end = msgspec.structs.replace(kept.end, usage=Usage(used, 0))
        return AnswerDelta(kept.text), end

    async def _asked(self, ctx: RequestContext, request: AnswerRequest) -> Ask:
        """What the request asks of admission: a reservation, and a place in a pool."""
        texts = [message.content for message in request.messages]
        tokens = await beside_if_long(texts, self._parts.count, texts)
        room = self._parts.admission.desk.room(ctx.principal.tenant, ctx.principal.priority)
        if tokens > room and len(texts) > 1:
            # Earlier turns that do not fit are left out of the prompt.
            kept = [one.content for one in request.messages if one.role == "system"]
            kept.append(texts[-1])
            tokens = max(room, await beside_if_long(kept, self._parts.count, kept))
        cap = request.reserved_tokens or request.sampling.max_tokens
        passages = min(request.top_k, self._parts.most_passages)
        session = session_of(ctx, request.messages)
        ask = ask_for(ctx, tokens, cap, passages=passages, session=session)
        formed = request.sampling.formed
        spares = self._parts.engine_spares if formed else self._parts.spares
        return msgspec.structs.replace(ask, spares=spares)

    async def _generated(
        self, ctx: RequestContext, prompt: GenerationRequest, permit: Permit, quotable: bool = True
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """What the generator writes; the permit learns what was used, also of a cut answer."""
        engines = None if quotable and not prompt.sampling.formed else self._parts.engines
        generator = engines or self._parts.generator
        finished: Finished | None = None
        texts: list[str] = []
        permit.began(prompt.prompt_tokens)
        ctx.direct = noted(texts, ctx.direct)
        with ctx.stage("generation") as record:
            try:
                async with closing(generator.generate(ctx, prompt)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            finished = event
                            break
                        if not texts:
                            record.attributes["ttft_s"] = ctx.clock.now() - record.started_at
                        texts.append(event.text)
                        yield event
                if finished is None:
                    raise EngineError("the engine's answer ended before it was complete.")
            finally:
                ctx.direct = None
                if finished is None:
                    written = self._written(permit.pool, "".join(texts))
                    permit.produced(prompt.prompt_tokens, written, whole=False)
            permit.produced(finished.prompt_tokens, finished.completion_tokens, whole=True)
            record.attributes["model"] = finished.model
            record.attributes["input_tokens"] = finished.prompt_tokens
            record.attributes["output_tokens"] = finished.completion_tokens
        if finished.reason == "length":
            finished = bounded(ctx, prompt, permit.max_output_tokens, finished)
        yield finished

    async def _built(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        found: SearchResult,
        read: Understood | None,
    ) -> GenerationRequest:
        """The prompt as whoever answers it takes it."""
        comparing = self._parts.comparing
        with ctx.stage("prompt") as record:
            prompt = await self._prompt(ctx, request, found, record)
            record.attributes["language"] = prompt.language
            prompt = as_read(prompt, read)
            if comparing is not None:
                prompt = await comparing.compared(ctx, request.kb, prompt)
        return prompt

    async def _prompt(
        self,
        ctx: RequestContext,
        request: AnswerRequest,
        found: SearchResult,
        record: StageRecord,
    ) -> GenerationRequest:
        """The prompt, no longer than the caller's pools take, as their engines count it."""
        widening, passages = self._parts.widening, found.hits
        if widening is not None:
            passages = tuple(await widening.widen(ctx, request.kb, passages))
        texts = [message.content for message in request.messages]
        build, sampling = self._parts.prompting.build, request.sampling
        who = ctx.principal
        longest = most = self._parts.admission.desk.longest(who.tenant, who.priority)
        messages = request.messages
        prompt = await beside_if_long(texts, build, messages, passages, sampling, most)
        if is_fragile(ctx):
            messages = cautioned(messages, prompt.language)
            prompt = await beside_if_long(texts, build, messages, passages, sampling, most)
        counted = await self._counted(ctx, prompt, record)
        if counted.prompt_tokens > longest:
            # The engine counts more than was estimated: what fits by its count.
            most = longest * prompt.prompt_tokens // counted.prompt_tokens
            prompt = await beside_if_long(texts, build, messages, passages, sampling, most)
            counted = await self._counted(ctx, prompt, record)
        return counted

    async def _counted(
        self, ctx: RequestContext, prompt: GenerationRequest, record: StageRecord
    ) -> GenerationRequest:
        """The prompt with the engine's own count of it, where that is to be had."""
        if self._parts.tokens is None:
            return prompt
        tokens = await self._parts.tokens.prompt(ctx, prompt.messages)
        record.attributes["counted"] = "estimate" if tokens is None else "engine"
        if tokens is None:
            return prompt
        self._parts.density.learn(prompt.language, prompt.prompt_tokens, tokens)
        return msgspec.structs.replace(prompt, prompt_tokens=tokens)

    def _written(self, pool: str, text: str) -> int:
        own = self._parts.tokens.written(pool, text) if self._parts.tokens is not None else None
        return self._parts.count([text]) if own is None else own

    async def _pin(self, ctx: RequestContext, kb: str) -> None:
        """Have the process up to date before anything is looked up: what was acknowledged before
        this query is seen by it.
        """
        serving = self._parts.serving
        if serving is not None:
            ctx.served = serving.current(kb) or await serving.renew(kb, ctx.deadline)

    async def _retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        with ctx.stage("retrieval") as record:
            found = await self._parts.retriever.retrieve(ctx, request)
            record.attributes["query_length"] = len(request.query)
            record.attributes["top_k"] = request.top_k
            record.attributes["hits"] = len(found.hits)
        ctx.kb_version = found.kb_version
        ctx.rung = found.rung
        return found


def _placed(ctx: RequestContext, permit: Permit, began_at: float) -> None:
    """Waiting for a place is a stage of its own."""
    ctx.stages.append(StageRecord("admission", began_at, waited_s=permit.waited_s))
    ctx.placement, ctx.rate = permit, permit.rate


async def beside_if_long(texts: Sequence[str], work: Callable[..., T], *arguments: object) -> T:
    """Work on long texts goes on beside the loop, so that they hold up nobody."""
    if sum(map(len, texts)) <= INLINE_CHARACTERS:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def question_of(messages: Sequence[Message]) -> str:
    """The text of the last user message; ``InvalidRequest`` when there is none."""
    for message in reversed(messages):
        if message.role == "user":
            if message.content.strip():
                return message.content
            break
    raise InvalidRequest("messages must end with a user message that has text.", param="messages")
