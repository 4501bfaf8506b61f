"""Several generator processes offer one schedule and hand in one result."""

from __future__ import annotations

import asyncio

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.bench.offer import Part
from forebay.lab.bench.options import Snapshot
from forebay.lab.bench.processes import _together
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import OK
from forebay.lab.workload.request import PlannedRequest
from tests.unit.lab.bench.targets import (
    options,
    raw_target,
    ready,
    sent,
    until,
    whole_stream,
    workload,
)


def planned(index: int, session: str = "") -> PlannedRequest:
    return PlannedRequest(index, 0.0, "light", 1, 1, session=session)


def test_parts_share_the_load_out_and_keep_sessions_whole() -> None:
    parts = [Part(number, 3) for number in range(3)]
    for index in range(30):
        assert sum(part.has(planned(index)) for part in parts) == 1
        session = f"talk-{index % 5}"
        owners = [part.has(planned(index, session)) for part in parts]
        assert owners == [part.has(planned(index + 1, session)) for part in parts]
    assert [part.users(7) for part in parts] == [3, 2, 2]
    assert Part().users(7) == 7 and Part().has(planned(5))


def test_looks_are_added_up() -> None:
    one = Snapshot(
        elapsed_s=1.0, sent=4, statuses={OK: 3}, recent_ok_per_s=3, recent_good_share=1.0
    )
    other = Snapshot(
        elapsed_s=1.1,
        sent=6,
        statuses={OK: 1},
        recent_ok_per_s=1,
        recent_good_share=0.0,
        recent_ttft_p99_s=2.0,
    )
    both = _together([one, other])
    assert (both.sent, both.statuses, both.elapsed_s) == (10, {OK: 4}, 1.1)
    assert both.recent_good_share == pytest.approx(0.75)
    assert both.recent_ttft_p99_s == 2.0


async def test_two_processes_send_one_schedule() -> None:
    load = workload(
        arrivals={"kind": "poisson", "rate": 60, "duration_s": 1.5},
        kinds=[
            {"name": "light", "input_tokens": 6, "output_tokens": 3, "share": 0.8},
            {"name": "heavy", "input_tokens": 9, "output_tokens": 3, "share": 0.2},
        ],
    )
    looks: list[Snapshot] = []
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(options(target, load, processes=2), looks.append)
    expected = list(load.requests(1))
    assert result.total.statuses == {OK: len(expected)}
    assert result.by_kind["heavy"].sent == sum(one.kind == "heavy" for one in expected)
    assert len(target.asked) == len(expected)
    generator = result.generator
    assert generator is not None
    assert (generator.processes, generator.sends) == (2, len(expected))
    assert generator.connections == target.connections
    assert looks and looks[-1].sent > 0
    assert result.total.output_tokens == 3 * len(expected)


async def test_stopping_reaches_the_processes() -> None:
    stop = asyncio.Event()
    load = workload(arrivals={"kind": "constant", "rate": 40, "duration_s": 60})
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(
            options(target, load, processes=2), lambda look: stop.set(), stop=stop
        )
    assert 0 < result.total.sent < 2000, "of 2400"


async def test_cancelling_ends_the_processes() -> None:
    load = workload(arrivals={"kind": "constant", "rate": 100, "duration_s": 60})
    async with raw_target(sent()) as target:
        async with asyncio.TaskGroup() as group:
            run = group.create_task(run_bench(options(target, load, processes=2)))
            await until(lambda: bool(target.asked))
            run.cancel()
        await until(lambda: target.left == target.connections)


async def test_a_childs_error_is_told() -> None:
    load = workload(
        arrivals={"kind": "constant", "rate": 100, "count": 10},
        tenants=[{"name": "客户", "users": 3}],
    )
    with pytest.raises(ConfigError, match="cannot carry"):
        async with raw_target(ready(whole_stream())) as target:
            await run_bench(options(target, load, processes=2))


async def test_more_processes_than_can_be() -> None:
    with pytest.raises(ConfigError, match="at most"):
        await run_bench(options("http://127.0.0.1:9", processes=1_000))
    load = workload(closed_loop={"users": 2, "count": 2})
    with pytest.raises(ConfigError, match="users as processes"):
        await run_bench(options("http://127.0.0.1:9", load, processes=3))
