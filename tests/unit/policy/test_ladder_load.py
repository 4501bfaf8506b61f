"""The ladder in a process that has too much to do: parts that get no turn, and slow probes."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.policy.test_ladder import STARVED_S, TIMEOUT_S, WORK_S, World
from tests.unit.policy.virtual_loop import run_virtually


def test_a_part_that_gets_no_turn_is_left_for_load_and_blamed_for_nothing() -> None:
    async def main() -> None:
        world = World()
        assert (await world.ask())[0] == "vector+bm25"
        world.mode["vector"] = "starved"
        assert await world.ask() == ("bm25", "vector_load")
        breaker = world.parts["vector"].breaker
        assert breaker.why == "load", "nobody had a turn in half a second"
        assert await world.ask() == ("bm25", "vector_load")
        assert world.clock.now() == pytest.approx(STARVED_S + 6 * WORK_S), "only one waited for it"
        await asyncio.sleep(2.0)
        assert breaker.why == "load", "a probe that gets no turn proves nothing"
        world.mode["vector"] = "well"
        await asyncio.sleep(2.0)
        assert await world.ask() == ("vector+bm25", "")

    run_virtually(main())


def test_while_others_have_their_turn_one_without_changes_nothing() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "starved"
        without = asyncio.get_running_loop().create_task(world.ask())
        await asyncio.sleep(0.1)
        world.mode["vector"] = "well"
        for _ in range(9):
            assert (await world.ask())[0] == "vector+bm25"
        assert await without == ("bm25", "vector_load")
        assert world.parts["vector"].breaker.state == "closed"
        words = World()
        words.mode["bm25"] = "starved"
        assert await words.ask() == ("keyword", "bm25_load"), "vectors alone are no relief"
        assert words.parts["vector"].breaker.state == "closed"
        await words.ladder.close()

    run_virtually(main())


def test_a_probe_is_judged_by_the_parts_own_time() -> None:
    async def main() -> None:
        world = World()
        world.mode["vector"] = "hangs"
        await world.ask()
        world.mode["vector"], world.beside_s = "well", 5 * TIMEOUT_S
        await asyncio.sleep(3.0)
        assert world.parts["vector"].breaker.why is None
        await world.ladder.close()

    run_virtually(main())
