"""Answers that are kept, end to end, beside a trivial JSON answer on the same server.

Closed loop at saturation with 32 connections, then open loop at half the rate that gave. The server
is one process over the handbook with everything at its defaults but a rule that keeps answers, and
its access log off in one of two runs.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from measured import request_file
from server import page
from stand import LOOPBACK

from forebay.app.children import Child, running
from forebay.gateway.server import bind

ROOT = Path(__file__).resolve().parents[2]
HANDBOOK = ROOT / "examples" / "handbook"
QUESTION = "How long is the notice period?"
HIT = "answer=hit"
CONNECTIONS = 32
HERE = Path(__file__).resolve().parent


async def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Trivial answers and hits by turns, so that all of them see the same machine."""
    seconds, rounds = (1.0, 2) if quick else (3.0, 3)
    found: dict[str, Any] = {"connections": CONNECTIONS, "seconds": seconds, "rounds": rounds}
    for access_log in (True, False):
        name = "with access log" if access_log else "without access log"
        place = folder / name.replace(" ", "-")
        place.mkdir()
        found[name] = await _compared(place, access_log, (seconds, rounds))
    return found


async def _compared(folder: Path, access_log: bool, length: tuple[float, int]) -> dict[str, Any]:
    seconds, rounds = length
    async with AsyncExitStack() as stack:
        port, server = await _server(folder, access_log, stack)
        bare_port = await _bare(stack)
        whole = request_file(folder / "whole", "handbook", QUESTION, stream=False)
        stream = request_file(folder / "stream", "handbook", QUESTION, stream=True)
        health = folder / "health"
        health.write_bytes(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for _ in range(2):
            await hammer(port, whole, 0.2)
        cases: dict[str, tuple[int, Path, str]] = {
            "bare": (bare_port, whole, ""),
            "healthz": (port, health, ""),
            "hit": (port, whole, HIT),
            "hit, streamed": (port, stream, HIT),
        }
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, (at, request, marker) in cases.items():
                before = server.cpu_s()
                run = await hammer(at, request, seconds, "--marker", marker)
                used = server.cpu_s() - before
                run["server_cpu_us"] = round(used / max(1.0, run["per_s"] * seconds) * 1e6, 1)
                runs[name].append(run)
        rates = {name: median(run["per_s"] for run in each) for name, each in runs.items()}
        half = {
            name: await hammer(
                port, cases[name][1], 2 * seconds, *("--rate", str(rates[name] / 2)),
                *("--marker", HIT),
            )
            for name in ("hit", "hit, streamed")
        }  # fmt: skip
    return {
        "per_s": rates,
        "hit_to_bare": round(rates["hit"] / rates["bare"], 3),
        "hit_to_healthz": round(rates["hit"] / rates["healthz"], 3),
        "at_half_the_rate": half,
        "runs": runs,
    }


async def _server(folder: Path, access_log: bool, stack: AsyncExitStack) -> tuple[int, Child]:
    with bind(LOOPBACK, 0) as probe:
        port = probe.getsockname()[1]
    (folder / "forebay.toml").write_text(
        f'[server]\nport = {port}\n[store]\npath = "{folder}/store"\n'
        f"[telemetry]\naccess_log = {str(access_log).lower()}\n"
        f'[knowledge.handbook]\npaths = ["{HANDBOOK}"]\n[embedding]\nbackend = "none"\n'
        '[[cache.answers.rules]]\nname = "all"\nlife_s = 3600\n',
        encoding="utf-8",
    )
    child = await stack.enter_async_context(running("server", ["serve"], folder))
    await _until(port, "/readyz", child)
    return port, child


async def _bare(stack: AsyncExitStack) -> int:
    with bind(LOOPBACK, 0) as probe:
        port: int = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, str(HERE / "bare.py"), str(port))
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    await _until(port, "/", None)
    return port


async def _until(port: int, path: str, child: Child | None) -> None:
    for _ in range(300):
        if child is not None:
            child.check()
        try:
            status, _ = await asyncio.to_thread(page, port, path)
            if status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        await asyncio.sleep(0.2)
    raise SystemExit(f"nothing answers at port {port}")


async def hammer(port: int, request: Path, seconds: float, *more: str) -> dict[str, Any]:
    """One run of the light client."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "hammer.py"), str(port), str(request)),
        *("--seconds", str(seconds), "--connections", str(CONNECTIONS), *more),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    found: dict[str, Any] = json.loads(said)
    if found["wrong"]:
        # Only the first answers of a server may be none of those that are measured.
        print(f"{found['wrong']} unexpected answers: {found['said']}", file=sys.stderr)
    else:
        del found["said"]
    return found
