"""Three replicas of which one hangs, fails or dies: who is slowed, and how often is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from forebay.lab.sim.serving.faults import Error, Stall
from forebay.lab.sim.serving.server import SimulationServer
from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Answer, Gateway, engine_config, gateway, simulated, until
from tests.stopwatch import Stopwatch, watching

RATE_PER_S = 30.0
SILENT_S = 1.0
ATTEMPTS = 4
CONFIG = f"""
[generation.engine]
warm_after_s = 0
[admission.pools.pool.gate.ejection]
stalled_s = {SILENT_S}
rest_s = 30.0
"""


class Asked:
    """How long each answer took, the statuses, and for how long the machine stood still."""

    stood_s = 0.0

    def __init__(self, watch: Stopwatch) -> None:
        self.took_s: list[float] = []
        self.statuses: set[int] = set()
        self._watch = watch

    async def ask(self, made: Gateway, number: int) -> None:
        began_at = self._watch.now()
        question = f"How long is spillway {number}?"  # conversations of their own
        messages = [{"role": "user", "content": question}]
        answer: Answer = await made.ask(messages=messages, max_tokens=20)
        self.took_s.append(self._watch.now() - began_at)
        self.statuses.add(answer.status)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.took_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def steadily(made: Gateway, seconds: float, begin: int) -> Asked:
    began_at = asyncio.get_running_loop().time()
    async with watching() as watch, asyncio.TaskGroup() as group:
        asked = Asked(watch)
        for number in range(int(seconds * RATE_PER_S)):
            group.create_task(asked.ask(made, begin + number))
            await asyncio.sleep(1 / RATE_PER_S)
    asked.stood_s = asyncio.get_running_loop().time() - began_at - watch.now()
    return asked


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[SimulationServer, Gateway]]:
    """A gateway in front of three simulated engines."""
    async with simulated(replicas=3, output="cap") as engines:
        urls = [f"{url}/v1" for url in engines.addresses.replicas]
        async with gateway(folder, engine_config(*urls) + CONFIG) as made:
            yield engines, made


class Hung(NamedTuple):
    """What was asked before a replica hung, at first, and then; how many were left alone."""

    calm: Asked
    first: Asked
    then: Asked
    ejected: float


async def hung_one(folder: Path) -> Hung:
    async with three(folder) as (engines, made):
        calm = await steadily(made, 2.0, 0)
        engines.replicas[1].put_fault(Stall())
        first = await steadily(made, 4.0, 1000)
        then = await steadily(made, 2.0, 2000)
        ejected = (await made.figures())['forebay_pool_ejected{pool="pool"}']
        engines.replicas[1].clear_faults()
        return Hung(calm, first, then, ejected)


def judge(found: Hung) -> None:
    """The promises: nobody waits for a hung replica for long, few do at all, and then nobody."""
    calm, first, then, ejected = found
    caught = [took_s for took_s in first.took_s if took_s > 0.5 * SILENT_S]
    # What went there before its silence was noticed goes on elsewhere at once, within the
    # budget: nobody waits longer than until then, and for an answer.
    assert max(caught, default=0.0) <= SILENT_S + 0.2 + 2 * calm.percentile(1.0)
    assert 1 <= len(caught) <= 0.1 * len(first.took_s)
    quick = sorted(took_s for took_s in first.took_s if took_s <= 0.5 * SILENT_S)
    assert quick[int(0.99 * len(quick))] <= 2 * calm.percentile(0.99) + 0.05
    assert then.percentile(1.0) <= 2 * calm.percentile(1.0) + 0.05
    assert ejected == 1


async def test_one_hung_replica_of_three_slows_nobody_on_the_others(tmp_path: Path) -> None:
    for left in reversed(range(ATTEMPTS)):
        found = await hung_one(tmp_path / str(left))
        assert found.calm.statuses == found.first.statuses == found.then.statuses == {200}
        try:
            judge(found)
        except AssertionError:
            # Where the machine stood still for long enough, every replica was silent.
            if not left or found.first.stood_s < SILENT_S / 4:
                raise
        else:
            break


async def test_retries_are_a_tenth_of_the_requests_and_a_few_at_once(tmp_path: Path) -> None:
    # Every attempt fails: without a budget there would be two for each request.
    more = "[admission.pools.pool]\nlook_s = 0\n"
    more += "[admission.pools.pool.gate.ejection]\nfailures = 1000\n"
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(EngineServer()) for _ in range(2)]
        config = engine_config(*(one.base_url for one in engines)) + more
        config += "[generation.engine]\nwarm_timeout_s = 0\n[generation.ladder]\nenabled = false\n"
        async with gateway(tmp_path, config) as made:
            for one in engines:
                one.status = 500
            answers = [await made.ask() for _ in range(200)]
            assert {answer.status for answer in answers} == {502}
            attempts = sum(len(one.requests) for one in engines)
            assert 200 + 20 <= attempts <= 200 * 1.1 + 10


async def test_a_failing_replica_costs_its_clients_nothing(tmp_path: Path) -> None:
    async with three(tmp_path) as (engines, made):
        engines.replicas[0].put_fault(Error(status=500))
        asked = await steadily(made, 2.0, 0)
        assert asked.statuses == {200}
        await until(lambda: made.desk.gates["pool"].statistics()["ejected"] == 1)


async def test_nothing_is_tried_again_after_the_first_token(tmp_path: Path) -> None:
    async with EngineServer() as first, EngineServer() as second:
        config = engine_config(first.base_url, second.base_url)
        config += "[generation.engine]\nwarm_timeout_s = 0\n"
        async with gateway(tmp_path, config) as made:
            first.break_after = second.break_after = 1
            answer = await made.ask(stream=True)
            assert answer.status == 200
            assert b'"content":"Hell' in answer.body
            assert b'"error"' in answer.body
            assert b"[DONE]" not in answer.body
            assert len(first.requests) + len(second.requests) == 1


async def test_nothing_is_tried_again_when_no_time_is_left(tmp_path: Path) -> None:
    async with EngineServer() as first, EngineServer() as second:
        config = engine_config(first.base_url, second.base_url)
        config += "[generation.engine]\nwarm_timeout_s = 0\nfirst_token_timeout_s = 0.2\n"
        config += "[generation.ladder]\nenabled = false\n"
        async with gateway(tmp_path, config) as made:
            for one in (first, second):
                one.gate.clear()
            # A machine that stands still may leave no time for the first attempt, either.
            for _ in range(20):
                answer = await made.ask(headers={"x-forebay-deadline-ms": "210"})
                assert answer.status in (502, 504)
                if first.requests or second.requests:
                    break
            assert len(first.requests) + len(second.requests) == 1
            await made.nothing_held()
