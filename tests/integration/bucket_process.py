"""One gateway process as far as admission goes, for the bucket that several of them share.

``python bucket_process.py KEEPER RATE_PER_S BURST CALLS``: KEEPER is a Redis address or the folder
of a writer. It says ``ready``, waits for a line, asks CALLS times at once and prints how many were
let in; it waits for a line again, settles each at ``USED`` tokens and prints ``settled``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from forebay.app.sharing import SocketAuthority, open_sharing
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
from forebay.policy.quota import Limit

WHO = Claimant(tenant="t")
PROMPT, CAP, USED = 40, 60, 70


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def call(admission: Admission, asked: asyncio.Queue[bool], finish: asyncio.Event) -> None:
    ask = Ask(WHO, "chat", "normal", time.monotonic() + 60, PROMPT, cap=CAP)
    try:
        async with admission.admit(ask) as permit:
            asked.put_nowait(True)
            permit.began(PROMPT)
            await finish.wait()
            permit.produced(PROMPT, USED - PROMPT, whole=True)
    except RateLimited:
        asked.put_nowait(False)


async def main(keeper: str, rate_per_s: float, burst: float, calls: int) -> None:
    clock = SystemClock()
    # Patient, so that a slow machine does not let a process decide alone.
    shared_settings = CoordinationSettings(timeout_ms=5000.0)
    redis = keeper.startswith("redis://")
    authority = (
        RedisAuthority(CoordinationSettings(redis_url=keeper))
        if redis
        else SocketAuthority(Path(keeper), clock)
    )
    settings = AdmissionSettings(limits=DimensionLimits(tenant=Limit(rate_per_s, burst)))
    gate = PoolGate(GateSettings(), ["r0"])
    async with open_sharing(shared_settings, authority, clock, 1000) as shared:
        rules = [PoolRule("pool", 10_000, 1_000)]
        desk = Desk(settings, rules, {"pool": gate}, clock, WallClock(), shared.ledger)
        admission = Admission(desk, None, shared)
        asked: asyncio.Queue[bool] = asyncio.Queue()
        finish = asyncio.Event()
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        async with asyncio.TaskGroup() as group:
            for _ in range(calls):
                group.create_task(call(admission, asked, finish))
            say(str(sum([await asked.get() for _ in range(calls)])))
            await asyncio.to_thread(sys.stdin.readline)
            finish.set()
    say("settled")


if __name__ == "__main__":
    keeper, rate, burst, calls = sys.argv[1:]
    uvloop.run(main(keeper, float(rate), float(burst), int(calls)))
