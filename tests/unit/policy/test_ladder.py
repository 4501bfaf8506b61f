"""The ladder of retrieval, in virtual time: who answers when what is broken, and at whose cost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Literal

import pytest

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Coverage, Principal, RequestContext
from forebay.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    PartFailed,
    Unavailable,
)
from forebay.kernel.stages import PartUse, SearchRequest, SearchResult
from forebay.policy.breaker import Breaker, BreakerSettings
from forebay.policy.ladder import LadderRetriever, Part, Rung
from tests.unit.policy.virtual_loop import run_virtually, virtual_clock

TIMEOUT_S, WORK_S, STARVED_S = 0.08, 0.005, 0.5
Mode = Literal["well", "hangs", "fails", "slow", "starved"]


class World:
    """Parts that can be broken, rungs over them, and the ladder over those."""

    def __init__(
        self,
        *,
        vector: BreakerSettings | None = None,
        words: BreakerSettings | None = None,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.clock = virtual_clock()
        self.mode: dict[str, Mode] = {"vector": "well", "bm25": "well"}
        self.remembered = False
        self.sure = False
        self.asked: Counter[str] = Counter()
        self.time_outs: list[float] = []
        self.in_work = 0
        self.beside_s = 0.0
        self.keyword_fails: BaseException | None = None
        self.fusion_fails: BaseException | None = None
        settings = {"vector": vector or BreakerSettings(), "bm25": words or BreakerSettings()}
        self.parts = {
            name: Part(name, Breaker(settings[name], chance), _By(self, name, (name,)), TIMEOUT_S)
            for name in settings
        }
        self.ladder = LadderRetriever(
            [
                Rung(
                    "vector+bm25",
                    _By(self, "vector+bm25", ("bm25", "vector")),
                    ("vector", "bm25"),
                ),
                Rung("bm25", _By(self, "bm25", ("bm25",)), ("bm25",)),
                Rung("vector", _By(self, "vector", ("vector",)), ("vector",), spare=True),
                Rung("keyword", _By(self, "keyword", ())),
            ],
            list(self.parts.values()),
            self.clock,
        )

    async def part(self, ctx: RequestContext, name: str) -> PartUse:
        """Use one part as a rung does."""
        probe = ctx.request_id == "probe"
        self.asked[f"{name} probe" if probe else name] += 1
        mode = self.mode[name]
        allowed = min(TIMEOUT_S, ctx.deadline.remaining() / 2)
        work_s = 0.06 if mode == "slow" else WORK_S
        try:
            async with asyncio.timeout(allowed):
                if mode == "hangs":
                    await asyncio.sleep(3600)
                await asyncio.sleep(work_s)
        except TimeoutError:
            if not probe:
                self.time_outs.append(self.clock.now())
            own = allowed >= TIMEOUT_S
            raise PartFailed(name, f"{name}_timeout", late_s=allowed, at_fault=own) from None
        if mode == "fails":
            raise PartFailed(name, "engine_error")
        if mode == "starved":
            await asyncio.sleep(STARVED_S)
            raise starved(name)
        await asyncio.sleep(self.beside_s)
        return PartUse(name, work_s)

    def context(self, seconds: float = 2.0) -> RequestContext:
        return RequestContext(
            request_id="r",
            principal=Principal(),
            deadline=Deadline.after(seconds, self.clock),
            clock=self.clock,
        )

    async def ask(self, seconds: float = 2.0) -> tuple[str, str]:
        """The rung and the reason of one answer."""
        ctx = self.context(seconds)
        result = await self.ladder.retrieve(ctx, SearchRequest("kb", "q"))
        assert ctx.coverage is result.coverage
        assert not ctx.deadline.expired()
        why = [step.reason for step in ctx.degradations]
        assert all(
            (step.stage, step.rung) == ("retrieval", result.rung) for step in ctx.degradations
        )
        assert len(why) <= 1
        return result.rung, why[0] if why else ""


def starved(name: str) -> PartFailed:
    return PartFailed(name, f"{name}_load", late_s=STARVED_S, at_fault=False, busy=True)


class _By:
    """A rung that needs some parts."""

    def __init__(self, world: World, name: str, parts: tuple[str, ...]) -> None:
        self._world = world
        self._name = name
        self._parts = parts

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        world = self._world
        world.in_work += 1
        try:
            uses = [await world.part(ctx, name) for name in self._parts]
        finally:
            world.in_work -= 1
        if self._name == "keyword" and world.keyword_fails is not None:
            raise world.keyword_fails
        if self._name == "vector+bm25" and world.fusion_fails is not None:
            raise world.fusion_fails
        if world.remembered:
            uses = [use for use in uses if use.part != "vector"]
        sure = self._name == "vector+bm25" or world.sure
        return SearchResult(
            (), self._name, 1, coverage=Coverage(1.0, 1.0), sure=sure, uses=tuple(uses)
        )


@pytest.mark.parametrize(
    ("broken", "rung", "reason"),
    [
        ({}, "vector+bm25", ""),
        ({"vector": "hangs"}, "bm25", "vector_timeout"),
        ({"vector": "fails"}, "bm25", "engine_error"),
        ({"bm25": "hangs"}, "vector", "bm25_timeout"),
        ({"bm25": "fails"}, "vector", "engine_error"),
        ({"vector": "hangs", "bm25": "fails"}, "keyword", "engine_error, vector_timeout"),
        ({"vector": "hangs", "bm25": "hangs"}, "keyword", "bm25_timeout, vector_timeout"),
        ({"vector": "fails", "bm25": "hangs"}, "keyword", "bm25_timeout, engine_error"),
    ],
)
def test_whatever_is_broken_somebody_answers_and_says_why(
    broken: dict[str, Mode], rung: str, reason: str
) -> None:
    async def main() -> None:
        world = World()
        world.mode.update(broken)
        found = await world.ask()
        assert found[0] == rung
        assert set(found[1].split(", ")) <= {*reason.split(", "), "bm25_silent", "vector_silent"}
        assert found[1].startswith(reason.partition(",")[0])
        await world.ladder.close()

    run_virtually(main())


def test_a_hung_part_costs_its_time_out_once_then_nothing() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        began_at = world.clock.now()
        assert await world.ask() == ("bm25", "vector_timeout")
        assert world.clock.now() - began_at == pytest.approx(TIMEOUT_S + 2 * WORK_S, abs=1e-6)
        for _ in range(20):
            began_at = world.clock.now()
            assert await world.ask() == ("bm25", "vector_silent")
            assert world.clock.now() - began_at == pytest.approx(WORK_S, abs=1e-6)
        assert world.time_outs == [pytest.approx(TIMEOUT_S + WORK_S)]
        await world.ladder.close()

    run_virtually(main())


@pytest.mark.parametrize("seed", range(3))
def test_hung_at_200_a_second_one_time_out_and_no_deadline_missed(seed: int) -> None:
    """Sixty seconds: hung from the 10th to the 40th; deadlines of 400 ms."""

    async def main() -> None:
        chance = random.Random(seed)
        world = World(chance=chance.random)
        rungs: list[tuple[float, str, float]] = []

        async def one() -> None:
            began_at = world.clock.now()
            rung, _ = await world.ask(seconds=0.4)
            rungs.append((began_at, rung, world.clock.now() - began_at))

        async with asyncio.TaskGroup() as group:
            while world.clock.now() < 60.0:
                world.mode["vector"] = "hangs" if 10.0 <= world.clock.now() < 40.0 else "well"
                group.create_task(one())
                await asyncio.sleep(chance.expovariate(200))
        assert len(rungs) > 11_000
        assert len(world.time_outs) == 1, "one request in thirty seconds paid the time-out"
        assert max(took for *_, took in rungs) <= TIMEOUT_S + 3 * WORK_S + 1e-6
        during = [rung for at, rung, _ in rungs if 10.1 < at < 40.0]
        assert set(during) == {"bm25"}
        # Failed probes come every five seconds at last.
        after = [rung for at, rung, _ in rungs if at > 46.0]
        assert set(after) == {"vector+bm25"}
        assert world.asked["vector probe"] < 14
        assert all(part.breaker.in_flight == 0 for part in world.parts.values())
        await world.ladder.close()

    run_virtually(main())


def test_those_who_wait_for_a_hung_part_are_sent_down_together() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        asked = []
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                asked.append(group.create_task(world.ask()))
                await asyncio.sleep(0.004)
        reasons = Counter(task.result()[1] for task in asked)
        assert reasons == {"vector_timeout": 1, "vector_silent": 9}
        assert world.clock.now() == pytest.approx(TIMEOUT_S + 2 * WORK_S, abs=1e-6)
        await world.ladder.close()

    run_virtually(main())


def test_a_slow_answer_among_good_ones_changes_nothing() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        slow = asyncio.get_running_loop().create_task(world.ask())
        await asyncio.sleep(0.01)
        world.mode["vector"] = "well"
        for _ in range(9):
            assert (await world.ask())[0] == "vector+bm25"
        assert await slow == ("bm25", "vector_timeout")
        assert world.parts["vector"].breaker.state == "closed"

    run_virtually(main())


def test_recovery_is_automatic_and_no_request_pays_for_it() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        await world.ask()
        world.mode["vector"] = "well"
        assert await world.ask() == ("bm25", "vector_silent"), "not before a probe has seen it"
        await asyncio.sleep(1.0)
        assert await world.ask() == ("vector+bm25", "")
        assert world.asked["vector probe"] == 1
        assert world.ladder.shortcomings() == ()

    run_virtually(main())


def test_a_part_that_is_too_slow_is_not_taken_back() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        await world.ask()
        part = world.parts["vector"]
        part.probe_s = 0.05
        world.mode["vector"] = "slow"
        await asyncio.sleep(10.0)
        assert part.breaker.why == "silent" and world.asked["vector probe"] > 3
        world.mode["vector"] = "well"
        await asyncio.sleep(10.0)
        assert part.breaker.why is None

    run_virtually(main())


def test_what_a_client_in_a_hurry_sees_speaks_against_nobody() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        for _ in range(50):
            rung, why = await world.ask(seconds=0.1)
            assert (rung, why) == ("bm25", "vector_timeout")
        assert world.parts["vector"].breaker.state == "closed"

    run_virtually(main())


def test_a_remembered_vector_is_no_sign_of_life() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        first = asyncio.get_running_loop().create_task(world.ask())
        await asyncio.sleep(0.01)
        world.remembered, world.mode["vector"] = True, "well"
        assert (await world.ask())[0] == "vector+bm25"
        world.mode["vector"] = "hangs"
        await first
        assert world.parts["vector"].breaker.why == "silent"
        await world.ladder.close()

    run_virtually(main())


def test_sure_words_are_no_step_down() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        await world.ask()
        world.sure = True
        assert await world.ask() == ("bm25", "")
        await world.ladder.close()

    run_virtually(main())


def test_too_much_for_words_is_no_reason_to_ask_vectors_alone() -> None:
    async def main() -> None:
        world = World(words=BreakerSettings(max_per_s=10))
        found = Counter([await world.ask() for _ in range(20)])
        assert found == {("vector+bm25", ""): 10, ("keyword", "bm25_load"): 10}
        assert world.asked["vector"] == 10
        broken = World()
        broken.mode["bm25"] = "fails"
        for _ in range(30):
            assert (await broken.ask())[0] == "vector"
        assert broken.parts["bm25"].breaker.why == "errors"
        await broken.ladder.close()

    run_virtually(main())


def test_too_many_at_once_go_by_words() -> None:
    async def main() -> None:
        world = World(vector=BreakerSettings(max_in_flight=4))
        found = Counter(await asyncio.gather(*[world.ask() for _ in range(10)]))
        assert found == {("vector+bm25", ""): 4, ("bm25", "vector_load"): 6}

    run_virtually(main())


def test_a_deadline_and_a_clients_error_are_the_requests_own() -> None:
    async def main() -> None:
        world = World()
        for error in (InvalidRequest("no"), DeadlineExceeded("late"), Overloaded("full")):
            world.fusion_fails = error
            with pytest.raises(type(error)):
                await world.ask()
        assert world.parts["vector"].breaker.statistics()["in_flight"] == 0

    run_virtually(main())


def test_what_nobody_foresaw_on_one_rung_is_answered_by_the_next() -> None:
    async def main() -> None:
        world = World()
        world.fusion_fails = ZeroDivisionError()
        assert await world.ask() == ("bm25", "error")
        assert world.parts["vector"].breaker.state == "closed"

    run_virtually(main())


def test_when_nobody_can_answer_it_says_to_come_again() -> None:
    async def main() -> None:
        world = World()
        world.mode.update(vector="fails", bm25="fails")
        world.keyword_fails = ZeroDivisionError()
        with pytest.raises(Unavailable):
            await world.ask()
        await world.ladder.close()

    run_virtually(main())


def test_a_client_that_leaves_at_any_await_gives_everything_back() -> None:
    async def main() -> None:
        modes: tuple[Mode, ...] = ("well", "hangs", "fails")
        for mode in modes:
            for steps in range(25):
                world = World()
                world.mode["vector"] = mode
                task = asyncio.get_running_loop().create_task(world.ask())
                for _ in range(steps):
                    await asyncio.sleep(0.004)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert world.in_work == 0
                for part in world.parts.values():
                    assert part.breaker.in_flight == 0 and not part.waiting
                await world.ladder.close()

    run_virtually(main())


def test_closing_ends_probes_at_any_moment() -> None:
    async def main() -> None:
        for steps in range(40):
            world = World()
            world.mode["vector"] = "hangs"
            await world.ask()
            await asyncio.sleep(steps * 0.02)
            await world.ladder.close()
            assert world.in_work == 0
            assert world.parts["vector"].breaker.state == "open"
            await world.ask()

    run_virtually(main())


def test_it_tells_what_is_left_in_words_and_figures(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        with caplog.at_level("INFO", "forebay.ladder"):
            await world.ask()
            await asyncio.sleep(3.0)
            assert world.ladder.shortcomings() == (
                "retrieval does without vector for 3 s (silent)",
            )
            assert world.ladder.statistics()["vector"]["left"] == 1
            assert world.ladder.statistics()["bm25"]["left"] == 0
            world.mode["vector"] = "well"
            await asyncio.sleep(10.0)
        told = [record.getMessage() for record in caplog.records]
        assert told[0] == "retrieval does without vector (silent)"
        assert told[1].startswith("retrieval has vector again after ")
        assert len(told) == 2

    run_virtually(main())


def test_the_clock_of_the_tests_is_virtual() -> None:
    async def main() -> None:
        assert isinstance(virtual_clock(), VirtualClock)

    run_virtually(main())
