"""When requests go out: whatever happened before (open), after the answer (closed, turns)."""

from __future__ import annotations

import asyncio

from forebay.lab.bench.options import Snapshot
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import OK
from tests.unit.lab.bench.targets import (
    OK_STREAM,
    Asked,
    chunked,
    event,
    options,
    raw_target,
    ready,
    usage,
    whole_stream,
    workload,
)

HEAD = OK_STREAM + b"transfer-encoding: chunked\r\n\r\n"


async def test_closed_loop_waits_for_answers() -> None:
    load = workload(closed_loop={"users": 3, "count": 12, "think_s": 0.01})
    active = most = 0

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.03)
        active -= 1
        writer.write(HEAD + chunked(whole_stream()))

    async with raw_target(slow) as target:
        result = await run_bench(options(target, load))
    assert result.total.statuses == {OK: 12}
    assert most <= 3 and target.connections <= 3


async def test_closed_loop_ends_with_its_time() -> None:
    load = workload(closed_loop={"users": 2, "duration_s": 1.5})
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(options(target, load))
    assert result.total.statuses == {OK: result.total.sent}
    assert result.total.sent > 2
    assert 1.4 < result.elapsed_s < 15.0


async def test_turns_wait_for_the_answer_and_carry_what_was_said() -> None:
    load = workload(
        arrivals={"kind": "constant", "rate": 20, "count": 6},
        kinds=[
            {
                "name": "talk",
                "input_tokens": 6,
                "output_tokens": 3,
                "conversation": {"turns": 3, "think_s": 0.01},
            }
        ],
    )

    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(HEAD + chunked(event("w0 ") + event(finish="stop") + usage(1, 1)))

    async with raw_target(slow) as target:
        result = await run_bench(options(target, load))
    assert result.total.statuses == {OK: 6}
    longest = max(target.asked, key=lambda asked: len(asked.body["messages"]))
    roles = [message["role"] for message in longest.body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert longest.body["messages"][1]["content"] == "w0 "


async def test_stopping_ends_the_sending_and_keeps_what_was_sent() -> None:
    stop = asyncio.Event()
    load = workload(arrivals={"kind": "constant", "rate": 50, "duration_s": 60.0})

    def look(snapshot: Snapshot) -> None:
        stop.set()

    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(options(target, load), look, stop=stop)
    assert 0 < result.total.sent < 1000
    assert result.total.statuses == {OK: result.total.sent}
    assert result.duration_s < 20


async def test_a_stall_cannot_hide() -> None:
    """Two seconds of standing still, at 50 requests/s: whoever was meant to start then waited."""
    woken_at = 0.0

    async def stalling(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal woken_at
        now = asyncio.get_running_loop().time()
        if not woken_at:
            woken_at = now + 2.0
        await asyncio.sleep(max(0.0, woken_at - now))
        writer.write(HEAD + chunked(whole_stream()))

    load = workload(arrivals={"kind": "constant", "rate": 50, "duration_s": 3.0})
    async with raw_target(stalling) as target:
        result = await run_bench(options(target, load, max_connections=200))
    assert result.total.statuses == {OK: 150}
    # The first waited 2 s, the last of the stall hardly at all: uniform over the stall, which
    # makes 1.97 s and 0.5 s; a busy machine adds to that.
    assert result.total.total.p99_s > 1.87
    assert 0.35 < result.total.total.p50_s < 1.5
    assert result.generator is not None and result.generator.valid
    assert result.generator.max_in_flight > 90


async def test_users_who_think_are_not_waited_for() -> None:
    stop = asyncio.Event()
    load = workload(closed_loop={"users": 4, "duration_s": 600.0, "think_s": 300.0})
    async with raw_target(ready(whole_stream())) as target, asyncio.timeout(60.0):
        result = await run_bench(
            options(target, load), lambda look: stop.set() if look.ok == 4 else None, stop=stop
        )
    assert result.total.statuses == {OK: 4}
