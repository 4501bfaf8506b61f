"""CPU time the gateway itself costs a request, over a pipeline that costs next to nothing.

Run from the repository's root: python benchmarks/gateway/measure.py [requests]
One server process, one client process with keep-alive connections; the server's own CPU time
(user + system) is divided by the requests, so that other load on the machine hardly matters.
"""

from __future__ import annotations

import asyncio
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = 8
DELTAS = 32
PATHS = {
    "healthz": None,
    "search": ("/v1/search", {"query": "leave"}),
    "plain": (
        "/v1/chat/completions",
        {"model": "x", "messages": [{"role": "user", "content": "days?"}]},
    ),
    "streamed, together": (
        "/v1/chat/completions",
        {"model": "x", "stream": True, "messages": [{"role": "user", "content": "days?"}]},
    ),
    "streamed, apart": (
        "/v1/chat/completions",
        {"model": "x", "stream": True, "messages": [{"role": "user", "content": "days?"}]},
    ),
}


def serve(apart: bool, sinks: bool) -> None:
    """The server process: prints its address, then its CPU seconds on each line of input."""
    import uvloop

    from forebay.gateway.server import Server
    from forebay.telemetry.logs import AccessLog, configure_logging
    from forebay.telemetry.settings import TelemetrySettings
    from tests.unit.gateway.fakes import World

    script: list[object] = []
    for number in range(DELTAS):
        script += [f"word{number} "] + ([0.0] if apart else [])
    if sinks:
        nowhere = Path("/dev/null").open("w")  # noqa: SIM115 (open as long as the process)
        configure_logging(TelemetrySettings(), nowhere)
    world = World(script=script, sinks=(AccessLog(),) if sinks else ())

    async def main() -> None:
        server = Server(world.app)
        print(server.addresses[0], flush=True)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            while await loop.run_in_executor(None, sys.stdin.readline):
                use = resource.getrusage(resource.RUSAGE_SELF)
                print(use.ru_utime + use.ru_stime, flush=True)
            server.request_stop()

    uvloop.run(main())


async def load(address: str, request: bytes, count: int) -> None:
    """Send ``count`` requests over a few connections, each after the last one's end."""
    where = urlsplit(address)

    async def connection(share: int) -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        for _ in range(share):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            if b"chunked" in head:
                while (size := int((await reader.readline()).strip(), 16)) > 0:
                    await reader.readexactly(size + 2)
                await reader.readexactly(2)
            else:
                [length] = [
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ]
                await reader.readexactly(length)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(connection(count // CONNECTIONS))


def request_of(path: str, body: object) -> bytes:
    """One HTTP request."""
    if body is None:
        return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def measure(name: str, count: int, sinks: bool) -> dict[str, object]:
    """CPU microseconds a request and requests a second of one core."""
    apart = "apart" if name.endswith("apart") else "together"
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", apart, "sinks" if sinks else "bare"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    address = process.stdout.readline().strip()

    def cpu() -> float:
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    path, body = PATHS[name] or ("/healthz", None)
    request = request_of(path, body)
    time.sleep(0.2)
    asyncio.run(load(address, request, count // 4))
    before, began = cpu(), time.perf_counter()
    asyncio.run(load(address, request, count))
    seconds, spent = time.perf_counter() - began, cpu() - before
    process.stdin.close()
    process.wait(10)
    return {
        "request": name,
        "cpu_us": round(spent / count * 1e6),
        "per_core_second": round(count / spent),
        "wall_per_second": round(count / seconds),
    }


def main() -> None:
    """Measure every kind of request and print and keep the result."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    rows = [measure(name, count, sinks=False) for name in PATHS]
    rows.append(measure("plain", count, sinks=True) | {"request": "plain, with access log"})
    result = {
        "machine": f"{platform.machine()}, {platform.python_implementation()} "
        f"{platform.python_version()}",
        "requests": count,
        "deltas": DELTAS,
        "rows": rows,
    }
    for row in rows:
        print(row)
    Path(__file__).with_name("result.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        sys.path[:0] = [str(ROOT), str(ROOT / "src")]
        serve(sys.argv[2] == "apart", sys.argv[3] == "sinks")
    else:
        main()
