"""Light requests beside long texts answered in parts: the real answering life on a virtual clock.

Splitting, prompts and admission are the server's; the engine is simulated: a step of 8 ms and
160 us a sequence, a fourth of what 200 requests a second need (benchmarks/mixes, row ``parts``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import forebay.pipeline.answer
from forebay.app.admitting import pools_of
from forebay.app.composition import Citing
from forebay.app.settings import Settings
from forebay.context import PromptBuilder
from forebay.generation.nearest import nearest
from forebay.ingest import EstimatedTokenCounter, TextSplitter
from forebay.kernel.clock import VirtualClock, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Message,
    Sampling,
    SearchRequest,
    SearchResult,
    TextDelta,
)
from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.engine import Engine, Sequence, State
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.messages import AnswerEnd, AnswerRequest
from forebay.pipeline.splitting import Splitting, SplittingAnswers
from forebay.policy.admission import Admission, Desk
from forebay.policy.engine_gate import EngineGate
from forebay.policy.open_gate import OpenGate
from forebay.testing.generation import context, passage
from tests.unit.policy.virtual_loop import run_virtually, virtual_clock

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"
COUNTER = EstimatedTokenCounter()
RATE_PER_S = 50.0
TEXTS_S, SECONDS = 20, 50
"""Light ones go on until every text is answered or late: else a long line would cost nothing."""
PROMPT_WORK = 1 / 85
"""Engine time of a prompt's token beside that of a written one in a full batch."""
TICK_S, LOOK_S, WRITE_S = 0.05, 1.0, 0.1
PASSAGES = tuple(
    passage("The casing is painted twice, and dries for nine hours between. " * 12, number=number)
    for number in range(1, 6)
)
QUESTION = "Which paints are used on the casings of the large pumps, and how long do they dry?"


class Steps:
    """A step model of three numbers."""

    def step_seconds(self, decoding: int, context: int, prefill: int, attended: int) -> float:
        return self._step_s(decoding) + prefill / 300_000

    def run_seconds(self, sequences: int, context: int, steps: int) -> float:
        return steps * self._step_s(sequences)

    def steps_within(self, sequences: int, context: int, seconds: float) -> int:
        return max(0, int(seconds / self._step_s(sequences)))

    def _step_s(self, sequences: int) -> float:
        return 0.008 + 160e-6 * sequences


class SimulatedGenerator:
    """One simulated engine behind the generator's protocol; every answer is as long as it may."""

    def __init__(self, clock: VirtualClock) -> None:
        config = EngineConfig(
            kv_tokens=150_000, max_num_seqs=64, max_model_len=17_408, prefix_caching=False
        )
        self.engine = Engine(config, Steps())
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._heard: dict[Sequence, asyncio.Event] = {}

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        most = request.max_output_tokens
        tokens = min(most, request.sampling.max_tokens or most)
        sequence = Sequence(len(self._heard), request.prompt_tokens, tokens)
        heard = self._heard[sequence] = asyncio.Event()
        self.engine.submit(sequence, self._clock.now())
        self._arm()
        written = 0
        try:
            await heard.wait()
            heard.clear()
            while sequence.state is not State.FINISHED:
                self.engine.look(self._clock.now())
                if fresh := self.engine.produced(sequence) - written:
                    written += fresh
                    if ctx.placement is not None:
                        ctx.placement.token()
                    yield TextDelta("pump " * fresh)
                try:
                    async with asyncio.timeout(WRITE_S):
                        await heard.wait()
                except TimeoutError:
                    pass
            if written < tokens:
                yield TextDelta("pump " * (tokens - written))
            yield Finished("length", request.prompt_tokens, tokens, "sim")
        finally:
            del self._heard[sequence]
            self.engine.cancel(sequence, self._clock.now())
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_at = self.engine.next_event_at()
        self._timer = None if due_at is None else self._loop.call_at(due_at, self._move, due_at)

    def _move(self, due_at: float) -> None:
        progress = self.engine.advance(max(due_at, self._clock.now()))
        for sequence in (*progress.first_tokens, *progress.finished):
            if sequence in self._heard:
                self._heard[sequence].set()
        self._arm()


class Found:
    """The same five passages for every query."""

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        return SearchResult(PASSAGES, "bm25", 1)


class Served:
    """One second of one kind: how many came, how many were answered in time, what others heard."""

    def __init__(self) -> None:
        self.sent = self.good = 0
        self.work = 0.0
        self.told: Counter[str] = Counter()


class Server:
    """The answering life with a server's defaults in front of one engine."""

    def __init__(self, *, admission: bool) -> None:
        pool = {
            "name": "engine",
            "base_urls": ["http://engine/v1"],
            "model": "sim",
            "max_input_tokens": 16_384,
            "max_output_tokens": 1_024,
        }
        values: dict[str, Any] = {
            "generation": {"backend": "openai", "pools": [pool]},
            "admission": {"enabled": admission},
        }
        settings = msgspec.convert(values, Settings)
        self.clock = virtual_clock()
        kind = EngineGate if admission else OpenGate
        pools = pools_of(settings)
        self.gates = {rule.name: kind(gate, replicas) for rule, replicas, gate in pools}
        rules = tuple(rule for rule, _, _ in pools)
        desk = Desk(settings.admission, rules, self.gates, self.clock, WallClock())
        self.admission = Admission(desk)
        self.generator = SimulatedGenerator(self.clock)
        parts = AnswerParts(
            retriever=Found(),
            prompting=PromptBuilder(settings.context, COUNTER, "secret"),
            generator=self.generator,
            cite=Citing,
            admission=self.admission,
            count=lambda texts: sum(map(COUNTER.count, texts)),
        )
        roomy = msgspec.structs.replace(settings.context, max_passages=100, history_tokens=0)
        window = int(settings.context.window_tokens * settings.context.input_share)
        self.answering = SplittingAnswers(
            AnswerPipeline(parts),
            parts,
            Splitting(
                TextSplitter(COUNTER),
                nearest,
                PromptBuilder(roomy, COUNTER, "secret"),
                settings.generation.splitting,
                window,
            ),
        )

    async def ask(self, message: str, tokens: int, deadline_s: float, into: Served) -> None:
        """One request, booked when it ended."""
        into.sent += 1
        sampling = Sampling(max_tokens=tokens)
        request = AnswerRequest("kb", (Message("user", message),), sampling=sampling)
        try:
            async with asyncio.timeout(deadline_s):
                ctx = context(timeout_s=deadline_s, clock=self.clock)
                async for event in self.answering.answer(ctx, request):
                    if isinstance(event, AnswerEnd):
                        into.good += 1
                        used = event.usage
                        into.work += used.completion_tokens + PROMPT_WORK * used.prompt_tokens
        except TimeoutError:
            into.told["late"] += 1
        except ForebayError as error:
            into.told[error.code] += 1

    async def look(self) -> None:
        """What a server does beside requests: gates are ticked, engines' pages are read."""
        looks_at = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.now()
            if now >= looks_at:
                looks_at = now + LOOK_S
                self.generator.engine.look(now)
                seen = self.generator.engine.statistics()
                for gate in self.gates.values():
                    gate.health[0].probed(now, ok=True)
                    gate.signals(0, waiting=seen.waiting, kv_use=seen.kv_use)
            self.admission.tick()


@cache
def paragraphs() -> list[str]:
    """The handbook's English ones."""
    texts = [path.read_text("utf-8") for path in sorted(HANDBOOK.rglob("*.md"))]
    found = [one.strip() for text in texts for one in text.split("\n\n")]
    return [one for one in found if len(one) > 80 and one.isascii()]


def long_text(number: int) -> str:
    """25,000 characters, from another place of the handbook on each time, and a question below."""
    known, taken = paragraphs(), [f"Report {number}."]
    while sum(len(one) + 2 for one in taken) < 25_000:
        taken.append(known[(7 * number + len(taken)) % len(known)])
    return "\n\n".join(taken)[:25_000] + f"\n\n{QUESTION}"


def arrivals(share: float, seed: int) -> Iterator[tuple[float, bool]]:
    chance, at_s = Random(seed), 0.0
    while (at_s := at_s + chance.expovariate(RATE_PER_S)) < SECONDS:
        is_heavy = chance.random() < share
        if not is_heavy or at_s < TEXTS_S:
            yield at_s, is_heavy


@cache
def served(share: float, *, admission: bool = True) -> tuple[list[Served], Served]:
    """Light ones by second of their start, and all long texts, of one run."""

    async def main() -> tuple[list[Served], Served]:
        server = Server(admission=admission)
        light, heavy = [Served() for _ in range(SECONDS)], Served()
        looking = asyncio.get_running_loop().create_task(server.look())
        async with asyncio.TaskGroup() as group:
            for number, (at_s, is_heavy) in enumerate(arrivals(share, seed=1)):
                await asyncio.sleep(at_s - server.clock.now())
                if is_heavy:
                    group.create_task(server.ask(long_text(number), 512, 30.0, heavy))
                else:
                    question = f"{QUESTION} Number {number}."
                    group.create_task(server.ask(question, 32, 2.0, light[int(at_s)]))
        looking.cancel()
        return light, heavy

    return run_virtually(main())


def goodput(light: list[Served]) -> float:
    return sum(one.good for one in light) / sum(one.sent for one in light)


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has no place in virtual time: long texts are worked on at once."""
    monkeypatch.setattr(forebay.pipeline.answer, "INLINE_CHARACTERS", 10**9)


def test_light_ones_are_in_time_while_texts_are_answered_in_parts() -> None:
    alone, _ = served(0.0)
    light, _ = served(0.05)
    told = sum((one.told for one in light), Counter())
    assert goodput(light[:TEXTS_S]) >= 0.97 * goodput(alone[:TEXTS_S]), told
    by_second = [one.good / one.sent for one in light[2:]]
    assert min(by_second) >= 0.9, [f"{share:.2f}" for share in by_second]


def test_what_light_ones_leave_goes_to_texts_answered_in_parts() -> None:
    light, texts = served(0.05)
    straight, straight_texts = served(0.05, admission=False)
    work = texts.work + sum(one.work for one in light)
    least = straight_texts.work + sum(one.work for one in straight)
    # Sent straight on, no light request is in time while texts come; it is .98 of that work.
    assert work >= 0.97 * least, (texts.good, straight_texts.good, texts.told)
