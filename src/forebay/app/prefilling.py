"""How a question that will be asked is made ready: its search and prompt, if allowed its answer.

All of it goes through the tiers themselves, with the rights of those who will ask: what is stored
is what their own request would have stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from forebay.app.caching import Tiers
from forebay.app.prewarming import Gate, Prewarmer, PrewarmParts, running, spare
from forebay.app.runtime import Process, Reading, store_folder
from forebay.cache.prewarm import Learner, Question
from forebay.cache.request_log import RequestLog
from forebay.cache.rules import Asked as AskedOfRules
from forebay.cache.settings import AnswerRule
from forebay.kernel.clock import Deadline, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ForebayError, NotFound
from forebay.kernel.stages import Message, Sampling
from forebay.kernel.streams import closing
from forebay.pipeline.answer import AnswerParts
from forebay.pipeline.messages import Answering, AnswerRequest
from forebay.policy.admission import Admission
from forebay.policy.bulkhead import BoundedRetriever
from forebay.policy.gate import PoolGate

FILL_S = 5.0
ANSWER_S = 60.0
USUAL_BYTES = 16_384
"""Of a kept result, until some are kept."""


class Prefilling:
    """Makes questions ready through a process's own stages."""

    def __init__(self, reading: Reading, around: Around) -> None:
        self._reading = reading
        self._tiers = around.tiers
        self._prompting = around.parts.prompting
        self._answering = around.answering
        self._widening = around.parts.widening
        self._longest = around.admission.desk.longest
        self._answers = reading.settings.cache.prewarm.answers

    async def fill(self, question: Question) -> bool:
        """Make it ready; whether that came through."""
        rule = self._rule(question)
        limit_s = FILL_S if rule is None else ANSWER_S
        ctx = RequestContext(
            request_id="prewarm",
            principal=question.principal(),
            deadline=Deadline.after(limit_s, self._reading.clock),
            clock=self._reading.clock,
        )
        try:
            if rule is None:
                await self._search(ctx, question)
            else:
                async with closing(self._answering.answer(ctx, _request(question))) as events:
                    async for _ in events:
                        pass
        except (ForebayError, TimeoutError):
            return False  # the knowledge base is gone, the place is taken: nobody asked yet
        return not ctx.degradations

    async def held(self, question: Question) -> bool:
        """Whether there is nothing to make ready: it is already, or its knowledge base is gone."""
        retriever = self._tiers.retriever
        try:
            served = self._reading.versions.current(question.kb)
        except NotFound:
            return True
        if retriever is None or served is None:
            return False
        principal = question.principal()
        if self._rule(question) is None or self._tiers.answers is None:
            return retriever.explain(principal, question.search(), served).verdict == "hit"
        _, found = await self._tiers.answers.explain(principal, _request(question), served)
        return found.verdict == "hit"

    def room(self, share: float) -> int:
        """How many results fit into a share of the tier's memory."""
        figures = self._tiers.memory["retrieval"].statistics()
        each = figures["bytes"] / figures["entries"] if figures["entries"] > 100 else USUAL_BYTES
        return int(self._reading.settings.cache.retrieval.max_bytes * share / each)

    async def _search(self, ctx: RequestContext, question: Question) -> None:
        retriever, versions = self._tiers.retriever, self._reading.versions
        assert retriever is not None
        ctx.served = versions.current(question.kb)
        if ctx.served is None:
            ctx.served = await versions.renew(question.kb, ctx.deadline)
        found = await retriever.retrieve(ctx, question.search())
        if self._tiers.prompts is not None and question.sampling is not None:
            said = (Message("user", question.text),)
            passages: Sequence[Hit] = found.hits
            if self._widening is not None:
                passages = await self._widening.widen(ctx, question.kb, passages)
            who = ctx.principal
            most = self._longest(who.tenant, who.priority)
            self._prompting.build(said, passages, question.sampling, most)

    def _rule(self, question: Question) -> AnswerRule | None:
        """The rule that allows an answer to be kept, where answers are to be written beforehand."""
        if not self._answers or question.sampling is None:
            return None
        asked = AskedOfRules(question.kb, question.tenant, question.route, question.text)
        return self._tiers.rules.match(asked)


def _request(question: Question) -> AnswerRequest:
    return AnswerRequest(
        kb=question.kb,
        messages=(Message("user", question.text),),
        sampling=question.sampling or Sampling(),
        top_k=question.top_k,
        filter=question.filter,
        route="mcp" if question.route == "mcp" else "chat",
    )


class Around(msgspec.Struct, frozen=True):
    """The stages of a process that prewarming goes through, and the gates it stays behind."""

    tiers: Tiers
    parts: AnswerParts
    answering: Answering
    retriever: BoundedRetriever
    admission: Admission

    def gates(self) -> Sequence[Gate]:
        """How full retrieval is, and engines."""
        line = self.retriever.line
        retrieval = Gate(len(line.queue), line.limit.limit, line.free())
        return [retrieval, *map(_gate, self.admission.desk.gates.values())]


@asynccontextmanager
async def open_prewarming(
    process: Process, around: Around, *, serves: bool
) -> AsyncIterator[Prewarmer | None]:
    """What will be asked is fetched beforehand while the block runs; None: switched off."""
    reading = process.reading
    settings = reading.settings.cache.prewarm
    if not serves or not settings.enabled or around.tiers.retriever is None:
        yield None
        return
    filling = Prefilling(reading, around)
    folder = store_folder(reading.settings)
    parts = PrewarmParts(
        learner=Learner(settings, reading.settings.cache.retrieval.life_s),
        log=RequestLog(folder, settings.log_bytes, rotates=process.writing is not None),
        fill=filling.fill,
        held=filling.held,
        spare=lambda: spare(around.gates(), settings.share),
        room=filling.room,
        indexing=lambda: any(map(reading.versions.indexing, reading.settings.knowledge)),
        clock=reading.clock,
        wall=WallClock(),
    )
    prewarmer = Prewarmer(parts, settings)
    around.tiers.prewarming = prewarmer.statistics
    async with running(prewarmer):
        yield prewarmer


def _gate(gate: PoolGate) -> Gate:
    places = sum(gate.places(at) for at in range(len(gate.loads)))
    return Gate(len(gate.queue), places, int(gate.free()))
