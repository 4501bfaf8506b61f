"""One gateway process as far as admission goes, for tests with several: quotas shared in Redis.

``python quota_process.py URL RATE_PER_S BURST CALLS_PER_S SECONDS``: says ``ready``, waits for a
line, then asks at a steady rate, whatever comes of it, and prints what it saw as one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import uvloop

from forebay.app.sharing import open_sharing
from forebay.coordination.redis_quota import RedisAuthority
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.errors import RateLimited
from forebay.policy.admission import (
    Admission,
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    PoolRule,
)
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.limit import LimitSettings
from forebay.policy.quota import Limit, SharedQuotas
from tests.stopwatch import Stopwatch, watching

WHO = Claimant(key="k", user="u", tenant="t", ip="10.0.0.1")
PROMPT, CAP, WRITTEN = 40, 60, 30
WORK_S = 0.03


class Seen:
    """What the calls saw: when each began (Unix time), how long admission took, was it let in."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, bool]] = []
        self.tokens = 0
        self.alone: list[tuple[float, bool]] = []


def say(line: str) -> None:
    rest = line.encode() + b"\n"
    while rest:  # a pipe may take a part, and Python's own output is not buffered here
        rest = rest[os.write(1, rest) :]


async def call(admission: Admission, seen: Seen, watch: Stopwatch) -> None:
    began, began_at = watch.now(), time.time()
    ask = Ask(WHO, "chat", "normal", time.monotonic() + 30, PROMPT, cap=CAP)
    try:
        async with admission.admit(ask) as permit:
            seen.calls.append((began_at, watch.now() - began, True))
            permit.began(PROMPT)
            await asyncio.sleep(WORK_S)
            permit.produced(PROMPT, WRITTEN, whole=False)
            seen.tokens += PROMPT + WRITTEN
    except RateLimited:
        seen.calls.append((began_at, watch.now() - began, False))


async def offer(admission: Admission, shared: SharedQuotas, calls_per_s: float, s: float) -> Seen:
    seen = Seen()
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with watching() as watch, asyncio.TaskGroup() as group:
        for number in range(int(calls_per_s * s)):
            await asyncio.sleep(max(0.0, start + number / calls_per_s - loop.time()))
            group.create_task(call(admission, seen, watch))
            if not seen.alone or seen.alone[-1][1] != shared.alone:
                seen.alone.append((time.time(), shared.alone))
    return seen


async def main(url: str, rate_per_s: float, burst: float, calls_per_s: float, s: float) -> None:
    clock = SystemClock()
    coordination = CoordinationSettings(redis_url=url)
    limits = DimensionLimits(tenant=Limit(rate_per_s, burst), all=Limit(1e7, 1e8))
    settings = AdmissionSettings(limits=limits)
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=1000, most=1000)), ["r0"])
    async with open_sharing(coordination, RedisAuthority(coordination), clock, 1000) as shared:
        rule = PoolRule("pool", 10_000, 1_000)
        desk = Desk(settings, [rule], {"pool": gate}, clock, WallClock(), shared.ledger)
        admission = Admission(desk, None, shared)
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        cpu, before = time.process_time(), shared.statistics()["calls"]
        seen = await offer(admission, shared, calls_per_s, s)
        found = {
            "calls": seen.calls,
            "tokens": seen.tokens,
            "alone": seen.alone,
            "cpu_s": time.process_time() - cpu,
            "round_trips": shared.statistics()["calls"] - before,
            "ledger": shared.ledger.statistics(),
        }
    say(json.dumps(found))


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    uvloop.run(main(url, *map(float, numbers)))
