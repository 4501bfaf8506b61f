"""The first minute after a restart, with and without what is fetched beforehand.

Run from the repository's root: python benchmarks/caching/prewarm.py --data ../shared/data
A log (sequences.py) is cut at three quarters. What came before is the server's log of questions, as
it would have written it; what comes after is asked of the real server (e5, extractive answers, the
manual as its knowledge base) at a rate, open loop, for a minute from the moment it is ready. Cold:
the same server, store and requests with prewarming off. Pairs alternate, as the machine is shared.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any

import aiohttp
from sequences import Request, log, shuffled

from forebay.cache.prewarm import Asked, Question
from forebay.cache.request_log import CURRENT, line_of
from forebay.cache.sessions import summed_up
from forebay.kernel.stages import Sampling

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
[server]
default_kb = "manual"
[telemetry]
access_log = false
[cache.prewarm]
enabled = {prewarm}
[knowledge.manual]
paths = ["{documents}"]
"""
FIRST = 100
"""Requests that count as the beginning."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def who(user: str) -> str:
    """As the server names users: without keys there is one tenant, and nobody's key."""
    return blake2b(f"default\0anonymous\0{user}".encode(), digest_size=8).hexdigest()


def write_log(folder: Path, requests: Sequence[Request]) -> None:
    """What the server would have written, ending now."""
    now, end = time.time(), requests[-1].at
    lines = []
    for one in requests:
        question = Question("default", None, "", "manual", one.text, 5, {}, Sampling())
        kind = summed_up(one.text).kind()
        lines.append(line_of(Asked(now - end + one.at, who(one.user), kind, question)))
    (folder / CURRENT).write_bytes(b"".join(lines))


class Server:
    """``forebay serve`` on a copy of a store."""

    def __init__(self, place: Path, documents: Path, *, prewarm: bool) -> None:
        self.port = free_port()
        config = place / "forebay.toml"
        text = CONFIG.format(prewarm=str(prewarm).lower(), documents=documents)
        config.write_text(text, encoding="utf-8")
        self.began = time.perf_counter()
        command = [sys.executable, "-c", "from forebay.app.cli import main; main()", "serve"]
        words = ["--port", str(self.port), "--store", str(place / "store")]
        self.log = (place / "serve.log").open("wb")
        self.process = subprocess.Popen(
            [*command, *words],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=self.log,
            stderr=self.log,
        )

    async def ready(self, session: aiohttp.ClientSession) -> float:
        """Seconds from the start until it was ready."""
        while True:
            if self.process.poll() is not None:
                raise SystemExit(Path(self.log.name).read_text("utf-8"))
            try:
                async with session.get(f"http://127.0.0.1:{self.port}/readyz") as answer:
                    if answer.status == 200:
                        return time.perf_counter() - self.began
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        self.log.close()


async def ask(
    session: aiohttp.ClientSession, port: int, one: Request, done: list[tuple[float, str, int]]
) -> None:
    began = time.perf_counter()
    tier, status = "", 0
    body = {"model": "forebay/manual", "messages": [{"role": "user", "content": one.text}]}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    try:
        async with session.post(url, json=body, headers={"x-forebay-user": one.user}) as answer:
            await answer.read()
            status = answer.status
            tier = answer.headers.get("x-forebay-cache", "")
    except (aiohttp.ClientError, TimeoutError):
        pass
    done.append((time.perf_counter() - began, tier, status))


async def load(
    port: int, requests: Sequence[Request], rate: float, seconds: float
) -> list[tuple[float, str, int]]:
    """Open loop: evenly spaced, in the order of the log; answers in the order of requests."""
    slots: list[list[tuple[float, str, int]]] = []
    timeout = aiohttp.ClientTimeout(total=20)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
                slots.append([])
                one = requests[number % len(requests)]
                group.create_task(ask(session, port, one, slots[-1]))
    return [slot[0] for slot in slots]


def summary(done: Sequence[tuple[float, str, int]]) -> dict[str, Any]:
    right = sorted(seconds for seconds, _, status in done if status == 200)
    hits = ["retrieval=hit" in tier for _, tier, status in done if status == 200]
    first = ["retrieval=hit" in tier for _, tier, _ in done[:FIRST]]

    def at(share: float) -> float:
        return round(right[min(len(right) - 1, int(share * len(right)))] * 1000, 2)

    return {
        "requests": len(done),
        "failed": len(done) - len(right),
        "p50_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "hit_rate": round(sum(hits) / max(1, len(hits)), 4),
        "hit_rate_first": round(sum(first) / FIRST, 4),
        "by_10_s_p95_ms": [
            round(sorted(one[0] for one in part)[int(0.95 * len(part))] * 1000, 1)
            for part in (done[at * len(done) // 6 : (at + 1) * len(done) // 6] for at in range(6))
        ],
    }


async def prewarm_figures(port: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    pattern = r'forebay_cache_events_total\{event="(\w+)",tier="prewarm"\} (\S+)'
    return {event: float(value) for event, value in re.findall(pattern, text)}


async def one_run(
    base: Path, documents: Path, before: Sequence[Request], after: Sequence[Request], how: Any
) -> dict[str, Any]:
    lock = how[3]
    with ExitStack() as stack:
        if lock is not None:
            held = stack.enter_context(lock.open("a"))
            await asyncio.to_thread(fcntl.flock, held, fcntl.LOCK_EX)
        return await _one_run(base, documents, before, after, how)


async def _one_run(
    base: Path, documents: Path, before: Sequence[Request], after: Sequence[Request], how: Any
) -> dict[str, Any]:
    prewarm, rate, seconds, _, both = how
    with tempfile.TemporaryDirectory(prefix="forebay-prewarm-") as name:
        place = Path(name)
        await asyncio.to_thread(shutil.copytree, base, place / "store")
        if prewarm:
            await asyncio.to_thread(write_log, place / "store", before)
        server = Server(place, documents, prewarm=prewarm)
        try:
            async with aiohttp.ClientSession() as session:
                ready_s = await server.ready(session)
            if both is not None:
                await both.wait()
            done = await load(server.port, after, rate, seconds)
            found = {"ready_s": round(ready_s, 2), **summary(done)}
            if prewarm:
                found["prewarm"] = await prewarm_figures(server.port)
            return found
        finally:
            server.stop()


async def prepared(place: Path, documents: Path) -> Path:
    """A store with the knowledge base in it and all its vectors."""
    server = Server(place, documents, prewarm=False)
    try:
        async with aiohttp.ClientSession() as session:
            await server.ready(session)
            url = f"http://127.0.0.1:{server.port}/v1/kb/manual"
            while True:
                async with session.get(url) as answer:
                    kb = await answer.json()
                if kb["embedded_chunks"] == kb["chunks"]:
                    break
                await asyncio.sleep(0.2)
    finally:
        server.stop()
    return place / "store"


async def measure(arguments: argparse.Namespace) -> None:
    documents = arguments.data.resolve() / "documents" / "manual"
    logs = {"sequences": log(arguments.data)}
    logs["shuffled"] = shuffled(logs["sequences"])
    result: dict[str, Any] = {"first": FIRST, "seconds": arguments.seconds, "runs": {}}
    with tempfile.TemporaryDirectory(prefix="forebay-prewarm-") as name:
        base = arguments.store or await prepared(Path(name), documents)
        for which in arguments.logs:
            requests = logs[which]
            cut = len(requests) * 3 // 4
            before, after = requests[:cut], requests[cut:]
            for rate in arguments.rates:
                pairs = result["runs"].setdefault(f"{which}/{rate:g}", [])
                for number in range(arguments.pairs):
                    kinds = ("cold", "warm") if number % 2 == 0 else ("warm", "cold")
                    both = asyncio.Barrier(2) if arguments.together else None
                    works = [
                        one_run(
                            base,
                            documents,
                            before,
                            after,
                            (kind == "warm", rate, arguments.seconds, arguments.lock, both),
                        )
                        for kind in kinds
                    ]
                    if arguments.together:
                        found = await asyncio.gather(*works)
                    else:
                        found = [await work for work in works]
                    pair: dict[str, Any] = dict(zip(kinds, found, strict=True))
                    print(which, rate, json.dumps(pair), flush=True)
                    pair["p95_ratio"] = round(pair["warm"]["p95_ms"] / pair["cold"]["p95_ms"], 3)
                    pairs.append(pair)
                    text = json.dumps(result, indent=1) + "\n"
                    await asyncio.to_thread(arguments.out.write_text, text, encoding="utf-8")
                ratio = statistics.median(pair["p95_ratio"] for pair in pairs)
                print(which, rate, "P95 warm over cold", ratio, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[40.0])
    parser.add_argument("--logs", nargs="+", default=["sequences", "shuffled"])
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--store", type=Path, help="A store with the manual in it, embedded.")
    parser.add_argument(
        "--together",
        action="store_true",
        help="Ask both servers the same at the same moment: what else the machine does, both feel.",
    )
    parser.add_argument("--lock", type=Path, help="A file to lock for each run.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/caching/prewarm.json"))
    arguments = parser.parse_args()
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
