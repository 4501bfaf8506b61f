"""A reader of long texts behind the answering life, and texts for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from forebay.app.composition import Citing
from forebay.context import ContextSettings, PromptBuilder
from forebay.generation.extractive import ExtractiveGenerator
from forebay.generation.nearest import nearest
from forebay.ingest import EstimatedTokenCounter, TextSplitter
from forebay.kernel.clock import Clock, SystemClock, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    EngineError,
)
from forebay.kernel.stages import (
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    SearchRequest,
    SearchResult,
    TextDelta,
)
from forebay.pipeline.answer import AnswerParts, AnswerPipeline, EngineTokens
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest
from forebay.pipeline.splitting import Splitting, SplittingAnswers
from forebay.policy.admission import Admission, AdmissionSettings, Desk, DimensionLimits, PoolRule
from forebay.policy.engine_ladder import EngineLadder, EngineLadderSettings
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.limit import LimitSettings
from forebay.policy.quota import Limit
from forebay.policy.splitting import SplittingSettings
from forebay.testing.generation import context, passage

COUNTER = EstimatedTokenCounter()
WINDOW = 1600
FACTS = re.compile(r"(?:Gate|闸门) \d+ (?:weighs|重) \d+ (?:tonnes|吨)")


def english(gates: int, times: int = 8) -> str:
    filling = "The rest of this chapter is about other things that nobody asks for. " * times
    return "\n\n".join(
        f"## Chapter {gate}\n\n{filling}Gate {gate} weighs {gate}5 tonnes. {filling.strip()}"
        for gate in range(1, gates + 1)
    )


def chinese(gates: int, times: int = 12) -> str:
    filling = "本章其余内容讲的是没有人问的别的事情。" * times
    return "\n\n".join(
        f"第{gate}章 概述\n\n{filling}闸门 {gate} 重 {gate}5 吨。{filling}"
        for gate in range(1, gates + 1)
    )


class Searching:
    """Finds one passage for every query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.failure: Exception | None = None

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.queries.append(request.query)
        if self.failure is not None:
            raise self.failure
        return SearchResult((passage("All gates were made in Linz.", number=7),), "bm25", 3)


class Reading:
    """Says the facts of the passages it is shown, each with its number, or that there is none."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.active = self.most = 0
        self.fails_at: int | None = None
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.cut = False
        self.failure: Exception | None = None

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        self.requests.append(request)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if self.fails_at == len(self.requests):
                raise EngineError("broken")
            asked = request.messages[-1].content
            if self.failure is not None:
                raise self.failure
            if any(sign in asked for sign in self.fails):
                raise EngineError("broken")
            if any(sign in asked for sign in self.hangs):
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            await self.gate.wait()
            said = []
            for number, hit in enumerate(request.passages, 1):
                facts = FACTS.findall(hit.chunk.text)
                said += [f"{fact} [{number}]." for fact in facts]
                if "Linz" in hit.chunk.text and said:
                    said.append(f"Made in Linz [{number}].")
            for word in said or ["NONE" if request.language == "en" else "无。"]:
                yield TextDelta(word + "\n")
            reason: FinishReason = "length" if self.cut else "stop"
            yield Finished(reason, request.prompt_tokens, 3 * len(said) + 1, "reader")
        finally:
            self.active -= 1


class Service:
    """The answering life in front of one pool."""

    def __init__(
        self,
        *,
        limit: int = 8,
        burst: float = 0.0,
        quoting: bool = False,
        tokens: EngineTokens | None = None,
        **splitting: Any,
    ) -> None:
        clock: Clock = SystemClock()
        gate = GateSettings(limit=LimitSettings(initial=limit, most=limit))
        limits = DimensionLimits(tenant=Limit(1.0, burst) if burst else None)
        self.gate = PoolGate(gate, ["a"])
        self.desk = Desk(
            AdmissionSettings(limits=limits),
            (PoolRule("pool", WINDOW, 400),),
            {"pool": self.gate},
            clock,
            WallClock(),
        )
        settings = ContextSettings(window_tokens=2 * WINDOW, input_share=0.5, max_passages=100)
        prompting = PromptBuilder(settings, COUNTER, "secret")
        self.retriever, self.generator = Searching(), Reading()
        self.admission = Admission(self.desk)
        parts = AnswerParts(
            retriever=self.retriever,
            prompting=prompting,
            generator=self.generator,
            cite=Citing,
            admission=self.admission,
            count=lambda texts: sum(map(COUNTER.count, texts)),
            tokens=tokens,
        )
        if quoting:
            ladder = EngineLadderSettings()
            parts = msgspec.structs.replace(
                parts,
                engines=EngineLadder(self.generator, None, parts.admission, ladder),
                quoting=ExtractiveGenerator(COUNTER),
                spares=ladder.spares(),
            )
        self.answering = SplittingAnswers(
            AnswerPipeline(parts),
            parts,
            Splitting(
                TextSplitter(COUNTER), nearest, prompting, SplittingSettings(**splitting), WINDOW
            ),
        )

    async def ask(
        self, message: str, ctx: RequestContext | None = None, **more: Any
    ) -> tuple[str, AnswerEnd]:
        request = self.request(message, **more)
        text, end = "", None
        async for event in self.answering.answer(ctx or context(), request):
            if isinstance(event, AnswerDelta):
                text += event.text
            else:
                end = event
        assert end is not None
        return text, end

    def request(self, message: str, rules: Sequence[str] = (), **more: Any) -> AnswerRequest:
        system = tuple(Message("system", rule) for rule in rules)
        return AnswerRequest("kb", (*system, Message("user", message)), **more)

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Gates are looked at now and then, as in a server."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.02)
                self.admission.tick()

        ticking = asyncio.get_running_loop().create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()

    def held(self) -> dict[str, float]:
        """What is still taken."""
        found = self.gate.statistics()
        return {
            "in_flight": found["in_flight"],
            "cost": found["in_flight_cost"],
            "waiting": found["queue_waiting"],
            "in_work": sum(self.desk._in_work.values()),
        }


NOTHING = {"in_flight": 0, "cost": 0, "waiting": 0, "in_work": 0}


def reasons(end: AnswerEnd) -> dict[tuple[str, str], str]:
    return {(one.stage, one.rung): one.reason for one in end.degradations}
