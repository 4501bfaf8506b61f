"""How many streamed requests a second one core of the generator offers, and how late it is.

Run from the repository's root: python benchmarks/bench/generator.py [seconds]
A trivial server (server.py) has the other core; the generator is one process. For each client the
CPU of its process per request is measured at a steady rate (Poisson arrivals); higher rates follow
until the bench itself calls its result not valid. `forebay` runs are real bench runs (schedule,
recorder and all); `aiohttp` is the same load sent by aiohttp's client, with nothing recorded but
the first chunk.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Snapshot, Target
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.workload.plan import Workload, WorkloadSpec

HERE = Path(__file__).resolve().parent
# (chunks, milliseconds between them; 0: all in one write, rates to try)
SHAPES = (
    (8, 0.0, (1_000, 3_000)),
    (8, 2.0, (1_000, 3_000)),
    (32, 0.0, (1_000,)),
    (32, 2.0, (500,)),
)
CAPACITY_RATES = (4_000, 6_000, 8_000)


@contextmanager
def server(chunks: int, gap_ms: float) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The trivial server in a process of its own."""
    command = [sys.executable, str(HERE / "server.py"), str(chunks)]
    process = subprocess.Popen(
        command + ([str(gap_ms)] if gap_ms else []),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process
    finally:
        process.kill()
        process.wait()


def server_cpu_s(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def load(rate: float, seconds: float, chunks: int) -> Workload:
    spec = {
        "arrivals": {"kind": "poisson", "rate": rate, "duration_s": seconds},
        "kinds": [{"name": "light", "input_tokens": 8, "output_tokens": chunks, "deadline_s": 1.0}],
    }
    return Workload(msgspec.convert(spec, WorkloadSpec))


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_forebay(url: str, rate: float, seconds: float, chunks: int) -> dict[str, Any]:
    options = BenchOptions(
        target=Target(base_url=url, model="sim"),
        workload=load(rate, seconds, chunks),
        bounds=GeneratorBounds(),
    )
    looks: list[Snapshot] = []
    before = cpu_s()
    result = uvloop.run(run_bench(options, looks.append))
    used = cpu_s() - before
    generator = result.generator
    assert generator is not None
    return {
        "client": "forebay",
        "sent": result.total.sent,
        "ok": result.total.ok,
        "cpu_us_per_request": used / result.total.sent * 1e6,
        "cpu_share": generator.cpu_share,
        "lateness_ms": {
            name: round(getattr(generator.lateness, f"{name}_s") * 1000, 3)
            for name in ("mean", "p50", "p99", "p999", "max")
        },
        "sent_per_s": result.sent_per_s,
        "ttft_p50_ms": result.total.ttft.p50_s * 1000,
        "total_p99_ms": result.total.total.p99_s * 1000,
        "connections": generator.connections,
        "valid": generator.valid,
        "why_not": list(generator.why_not),
    }


def run_aiohttp(url: str, rate: float, seconds: float, chunks: int) -> dict[str, Any]:
    import aiohttp

    workload = load(rate, seconds, chunks)
    firsts: list[float] = []
    late: list[float] = []
    answered = 0

    async def one(session: aiohttp.ClientSession, body: bytes, at: float) -> None:
        nonlocal answered
        first = True
        async with session.post(
            f"{url}/chat/completions", data=body, headers={"content-type": "application/json"}
        ) as response:
            async for line in response.content:
                if line.startswith(b"data: ") and b'"content":"' in line and first:
                    firsts.append(time.monotonic() - at)
                    first = False
                elif line.startswith(b"data: [DONE]"):
                    answered += 1

    async def main() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            asyncio.TaskGroup() as group,
        ):
            start = time.monotonic() + 0.05
            for planned in workload.requests(1):
                messages = list(workload.materialise(planned, 1))
                body = json.dumps({"model": "sim", "messages": messages, "stream": True}).encode()
                at = start + planned.at_s
                if (wait := at - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                late.append(time.monotonic() - at)
                group.create_task(one(session, body, at))

    before = cpu_s()
    uvloop.run(main())
    used = cpu_s() - before
    late.sort()
    firsts.sort()
    return {
        "client": "aiohttp",
        "sent": len(late),
        "ok": answered,
        "cpu_us_per_request": used / len(late) * 1e6,
        "lateness_ms": {
            "p50": round(late[len(late) // 2] * 1000, 3),
            "p99": round(late[int(len(late) * 0.99)] * 1000, 3),
            "max": round(late[-1] * 1000, 3),
        },
        "sent_per_s": len(late) / seconds,
        "ttft_p50_ms": firsts[len(firsts) // 2] * 1000,
    }


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    rows = [
        measure(client, rate, seconds, (chunks, gap_ms))
        for chunks, gap_ms, rates in SHAPES
        for rate in rates
        for client in (run_forebay, run_aiohttp)
    ]
    for gap_ms in (0.0, 2.0):
        for rate in CAPACITY_RATES:
            rows.append(measure(run_forebay, rate, seconds, (8, gap_ms)))
            if not rows[-1]["valid"]:
                break
    result = {
        "machine": msgspec.to_builtins(describe_machine()),
        "commit": describe_commit(),
        "versions": describe_versions("aiohttp", "httptools", "uvloop"),
        "seed": 1,
        "rows": rows,
    }
    (HERE / "generator.json").write_text(json.dumps(result, indent=1) + "\n")


def measure(client: Any, rate: float, seconds: float, shape: tuple[int, float]) -> dict[str, Any]:
    chunks, gap_ms = shape
    with server(chunks, gap_ms) as (url, process):
        before = server_cpu_s(process)
        row: dict[str, Any] = client(url, rate, seconds, chunks)
        used = server_cpu_s(process) - before
    row = {"rate": rate, "chunks": chunks, "gap_ms": gap_ms, **row}
    row["server_cpu_share"] = used / seconds
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
