"""The ladder of generation, in virtual time: who writes when what fails, and what is given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
import pytest

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    AllInUse,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    Overloaded,
    Unavailable,
)
from forebay.kernel.stages import Finished, GenerationRequest, TextDelta
from forebay.policy.admission import (
    Admission,
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    PoolRule,
)
from forebay.policy.engine_ladder import OUT, EngineLadder, EngineLadderSettings, others_may
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.quota import Limit
from forebay.policy.shed import ShedSettings
from forebay.testing.generation import ScriptedGenerator, context, generation_request
from tests.unit.policy.virtual_loop import run_virtually, virtual_clock

WHO = Claimant(key="k", tenant="shop")
REQUEST = msgspec.structs.replace(generation_request("Why?", ("Because.",)), prompt_tokens=100)
SMALL = EngineLadderSettings(small_pool="small")
Failure = BaseException | str | None
"""What a pool does: raises it, hangs, breaks after its first token, or (None) writes."""


class Engines:
    """One adapter in front of both pools, as the real one is."""

    def __init__(self) -> None:
        self.fails: dict[str, Failure] = {"big": None, "small": None}
        self.asked: list[str] = []
        self.active = 0

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        assert ctx.placement is not None
        pool = ctx.placement.pool
        self.asked.append(pool)
        self.active += 1
        try:
            await asyncio.sleep(0.1)
            failure = self.fails[pool]
            if isinstance(failure, BaseException):
                raise failure
            if failure == "hangs":
                await asyncio.sleep(3600)
            ctx.placement.token()
            yield TextDelta(pool)
            await asyncio.sleep(0.1)
            if failure == "breaks":
                raise EngineError("broken off")
            yield TextDelta(" says so")
            yield Finished("stop", request.prompt_tokens, 2, pool)
        finally:
            self.active -= 1


class World:
    """Admission in front of two pools, engines behind it, and the ladder."""

    def __init__(self, settings: EngineLadderSettings = SMALL, *, quotes: bool = True) -> None:
        self.clock = virtual_clock()
        self.settings = settings
        self.engines = Engines()
        self.quoting = ScriptedGenerator(["quoted"])
        rules = (PoolRule("big", 4000, 500), PoolRule("small", 2000, 500, spare=True))
        gate = GateSettings(shed=ShedSettings(target_s=0.25, interval_s=1.0, max_wait_s=0.5))
        self.gates = {rule.name: PoolGate(gate, ["r0"]) for rule in rules}
        limits = DimensionLimits(tenant=Limit(1e-3, 1_000_000))
        made = AdmissionSettings(limits=limits)
        self.admission = Admission(Desk(made, rules, self.gates, self.clock, self.clock))
        quoting = self.quoting if quotes else None
        self.ladder = EngineLadder(self.engines, quoting, self.admission, settings)

    async def answer(self, request: GenerationRequest = REQUEST, within_s: float = 20.0) -> str:
        """The text of one answer, admitted and settled as the answering life does it."""
        ctx = context(timeout_s=within_s, clock=self.clock)
        self.ctx = ctx
        ask = Ask(
            who=WHO,
            route="chat",
            priority="normal",
            deadline_at=ctx.deadline.at,
            input_tokens=request.prompt_tokens,
            cap=50,
            spares=self.settings.spares(),
        )
        text = ""
        async with self.admission.admit(ask) as permit:
            ctx.placement = permit
            await permit.built(request.prompt_tokens)
            permit.began(request.prompt_tokens)
            async with aclosing(self.ladder.generate(ctx, request)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        permit.produced(event.prompt_tokens, event.completion_tokens, whole=True)
                    else:
                        text += event.text
        return text

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.admission.tick()

    @property
    def told(self) -> list[tuple[str, str, str]]:
        return [(step.stage, step.rung, step.reason) for step in self.ctx.degradations]

    def level(self) -> float:
        claim = self.admission.desk._book.claims(WHO, 0.0)[0]
        left = self.admission.desk.ledger.remaining([claim], self.clock.now())
        assert left is not None
        return left[1]

    def nothing_held(self) -> None:
        assert not self.engines.active and not self.quoting.active
        assert not len(self.admission._waiters)
        assert not self.admission.desk._in_work
        for gate in self.gates.values():
            assert gate.statistics()["in_flight"] == 0
            assert gate.statistics()["in_flight_cost"] == 0
            assert not gate.queue


@pytest.mark.parametrize(
    ("big", "small", "text", "rung", "reason"),
    [
        (None, None, "big says so", "", ""),
        (EngineError("x"), None, "small says so", "small", "engine_error"),
        (Unavailable("x"), None, "small says so", "small", "unavailable"),
        (Overloaded("x"), None, "small says so", "small", "overloaded"),
        (EngineRefused("x", status=401), None, "small says so", "small", "engine_refused"),
        (ZeroDivisionError(), None, "small says so", "small", "error"),
        ("hangs", None, "small says so", "small", "first_token_timeout"),
        (EngineError("x"), EngineError("x"), "quoted", "extractive", "engine_error"),
        ("hangs", "hangs", "quoted", "extractive", "first_token_timeout"),
        (
            EngineError("x"),
            "hangs",
            "quoted",
            "extractive",
            "engine_error, first_token_timeout",
        ),
    ],
)
def test_who_writes_when_what_fails(
    big: Failure, small: Failure, text: str, rung: str, reason: str
) -> None:
    async def main() -> None:
        world = World()
        world.engines.fails.update(big=big, small=small)
        before = world.level()
        assert await world.answer() == text
        assert world.told == ([("generation", rung, reason)] if rung else [])
        assert not world.ctx.deadline.expired()
        world.nothing_held()
        # Charged once, for what was used: the prompt and what was written.
        assert before - world.level() == pytest.approx(102 if "says" in text else 101, abs=0.1)

    run_virtually(main())


@pytest.mark.parametrize(
    ("big", "small", "error"),
    [
        (EngineError("x"), None, None),
        ("hangs", None, None),
        (EngineError("first"), Unavailable("second"), EngineError),
        ("hangs", "hangs", DeadlineExceeded),
        (ZeroDivisionError(), EngineError("x"), ZeroDivisionError),
    ],
)
def test_who_does_not_quote_tells_why_no_pool_began(
    big: Failure, small: Failure, error: type[Exception] | None
) -> None:
    async def main() -> None:
        world = World(quotes=False)
        world.engines.fails.update(big=big, small=small)
        if error is None:
            assert await world.answer() == "small says so"
            assert [rung for _, rung, _ in world.told] == ["small"]
        else:
            with pytest.raises(error):
                await world.answer()
            assert not world.told
        world.nothing_held()

    run_virtually(main())


def test_where_nothing_is_below_the_last_pool_has_all_of_the_time() -> None:
    async def main() -> None:
        world = World(EngineLadderSettings(), quotes=False)
        assert await world.answer(within_s=0.15) == "big says so", "quotations need none of it"

    run_virtually(main())


def test_who_does_not_quote_is_refused_at_once_while_engines_are_out() -> None:
    async def main() -> None:
        world = World(EngineLadderSettings(), quotes=False)
        world.engines.fails["big"] = EngineError("x")
        for _ in range(5):
            with pytest.raises((EngineError, Overloaded)) as told:
                await world.answer()
        assert told.value.code == OUT
        assert others_may(told.value, EngineLadderSettings().spares())
        world.nothing_held()

    run_virtually(main())


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (EngineError("x"), True),
        (EngineRefused("x", status=401), True),
        (EngineRefused("too long", status=400), False),
        (DeadlineExceeded("late"), True),
        (Overloaded("x"), True),
        (Overloaded("x", code=OUT), True),
        (Overloaded("x", code="overloaded_queue_full"), False),
        (AllInUse("x"), False),
        (ContextTooLong("x"), False),
    ],
)
def test_what_others_may_answer(error: Exception, may: bool) -> None:
    assert others_may(error, EngineLadderSettings().spares()) is may
    busy = EngineLadderSettings(when_busy=True).spares()
    full = isinstance(error, Overloaded) and error.code.startswith("overloaded_")
    assert others_may(error, busy) is (may or full)


@pytest.mark.parametrize(
    "error",
    [
        EngineRefused("too long", status=400),
        ContextTooLong("no"),
        DeadlineExceeded("late"),
        AllInUse("full"),
    ],
)
def test_what_is_the_requests_own_is_raised(error: Exception) -> None:
    async def main() -> None:
        world = World()
        world.engines.fails["big"] = error
        with pytest.raises(type(error)):
            await world.answer()
        assert world.engines.asked == ["big"] and not world.quoting.requests
        world.nothing_held()

    run_virtually(main())


def test_after_the_first_token_nobody_else_goes_on() -> None:
    async def main() -> None:
        world = World()
        world.engines.fails["big"] = "breaks"
        with pytest.raises(EngineError):
            await world.answer()
        assert world.engines.asked == ["big"] and not world.told
        world.engines.fails.update(big=EngineError("x"), small="breaks")
        with pytest.raises(EngineError):
            await world.answer()
        assert not world.quoting.requests
        world.nothing_held()

    run_virtually(main())


def test_engines_that_are_known_to_be_out_are_not_asked_but_by_single_trials() -> None:
    async def main() -> None:
        world = World(EngineLadderSettings())
        world.engines.fails["big"] = EngineError("x")
        ticking = asyncio.get_running_loop().create_task(world.tick())
        for _ in range(500):
            began_at = world.clock.now()
            assert await world.answer(within_s=1.0) == "quoted"
            assert world.clock.now() - began_at <= 0.1 + 0.06, "nobody waits for a rest to end"
            await asyncio.sleep(0.1)
        ticking.cancel()
        assert len(world.engines.asked) < 12, "trials after rests of 1, 2, 4 … 30 s"
        assert world.told == [("generation", "extractive", "engines_out")]
        world.engines.fails["big"] = None
        await asyncio.sleep(31.0)
        assert await world.answer() == "big says so" and not world.told
        world.nothing_held()

    run_virtually(main())


def test_a_full_pool_refuses_unless_told_otherwise() -> None:
    async def main(*, when_busy: bool) -> list[str]:
        world = World(EngineLadderSettings(when_busy=when_busy))
        world.gates["big"].hold = 0.999  # room for one
        found = []
        async with asyncio.TaskGroup() as group:

            async def one() -> None:
                try:
                    found.append(await world.answer(within_s=2.0))
                except Overloaded as error:
                    found.append(error.code)

            for _ in range(40):
                group.create_task(one())
        world.nothing_held()
        return found

    stern = run_virtually(main(when_busy=False))
    assert sum(one.startswith("overloaded_") for one in stern) > 10
    kind = run_virtually(main(when_busy=True))
    assert set(kind) == {"quoted", "big says so"}


def test_a_prompt_too_long_for_the_small_pool_is_quoted() -> None:
    async def main() -> None:
        world = World()
        world.engines.fails["big"] = EngineError("x")
        long = msgspec.structs.replace(REQUEST, prompt_tokens=3000)
        assert await world.answer(long) == "quoted"
        assert world.told == [("generation", "extractive", "engine_error, context_length_exceeded")]
        world.nothing_held()

    run_virtually(main())


def test_the_small_pool_is_for_nobody_else() -> None:
    async def main() -> None:
        world = World()
        for _ in range(20):
            assert await world.answer() == "big says so"
        assert "small" not in world.engines.asked

    run_virtually(main())


def test_a_client_that_leaves_at_any_moment_holds_nothing() -> None:
    async def main() -> None:
        for big, small in ((None, None), (EngineError("x"), None), ("hangs", "hangs")):
            failures: dict[str, Failure] = {"big": big, "small": small}
            for steps in range(0, 60, 1 if big != "hangs" else 5):
                world = World()
                world.engines.fails.update(failures)
                task = asyncio.get_running_loop().create_task(world.answer())
                await asyncio.sleep(steps * (0.01 if big != "hangs" else 0.5))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                world.nothing_held()

    run_virtually(main())


def test_answers_of_quotations_teach_the_pools_nothing() -> None:
    async def main() -> None:
        world = World(EngineLadderSettings())
        world.engines.fails["big"] = EngineError("x")
        for _ in range(5):
            await world.answer()
        assert world.gates["big"].health[0].state == "ejected"
        assert world.admission.desk.takes().ended == 0

    run_virtually(main())


def test_a_client_in_a_hurry_takes_no_engine_from_anybody() -> None:
    async def main() -> None:
        world = World(EngineLadderSettings())
        for _ in range(10):
            assert await world.answer(within_s=0.15) == "quoted"
            assert world.told == [("generation", "extractive", "first_token_timeout")]
        assert world.gates["big"].statistics()["ejected"] == 0
        assert await world.answer() == "big says so"
        world.engines.fails["big"] = "hangs"
        for _ in range(3):
            assert await world.answer(within_s=5.0) == "quoted"
        assert world.gates["big"].statistics()["ejected"] == 1, "nothing at all came for long"

    run_virtually(main())
