"""CPU time of ``simulate serve`` per streamed answer of 32 tokens, at 800 answers/s.

python benchmarks/simulator/serve.py [--seconds 20] [--rate 800]
One server process with four replicas behind a shared port, on one core; a raw client on the other.
The server's own CPU time (user and system) is divided by the answers, so that other load on the
machine hardly matters. Half a core at 800/s is 625 us an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.__main__ import machine  # noqa: E402
from forebay.lab.workload.text import TextMaker  # noqa: E402

TOKENS = 32
TARGET_US = 625
# name, tokens per write, prompt tokens, speed of the engine (so that it keeps up), streamed
CASES = (
    ("8 writes", 5, 48, 1.0, True),
    ("32 writes", 1, 48, 1.0, True),
    ("8 writes, prompt of 1,000", 5, 1000, 8.0, True),
    ("in one piece", 1, 48, 1.0, False),
)


def serve(port: int, tokens_per_write: int, speed: float) -> None:
    """The server process."""
    from forebay.lab.sim.serving import SimulatedServer, serve_simulated

    options = SimulatedServer(
        port=0, shared_port=port, replicas=4, tokens_per_write=tokens_per_write, speed=speed
    )
    serve_simulated(options, lambda _: print("ready", flush=True))


class Client:
    """Open loop over kept connections; a connection is used again when its answer is whole."""

    def __init__(self, port: int, prompt_tokens: int, stream: bool) -> None:
        self.port = port
        maker = TextMaker()
        self.requests = [
            _request(maker.text(number, prompt_tokens), stream) for number in range(512)
        ]
        self.idle: list[_Connection] = []
        self.sent = self.done = self.events = self.reads = self.failed = 0
        self.seconds = 0.0

    async def run(self, rate: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        while (now := loop.time() - began) < seconds:
            while sent < now * rate:
                sent += 1
                await self._send(loop)
            await asyncio.sleep(0.002)
        until = loop.time() + 30
        while self.done + self.failed < self.sent and loop.time() < until:
            await asyncio.sleep(0.05)

    async def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sent += 1
        if self.idle:
            connection = self.idle.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: _Connection(self), "127.0.0.1", self.port
            )
        connection.ask(self.requests[self.sent % len(self.requests)])


class _Connection(asyncio.Protocol):
    def __init__(self, client: Client) -> None:
        self.client = client
        self.answer: list[bytes] = []
        self.asking = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def ask(self, request: bytes) -> None:
        self.asking, self.answer = True, []
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        client = self.client
        client.reads += 1
        self.answer.append(data)
        if data.endswith((b"0\r\n\r\n", b"}}}")):
            client.seconds += time.perf_counter() - self.began
            whole = b"".join(self.answer)
            if whole.startswith(b"HTTP/1.1 200") and b'"completion_tokens":%d' % TOKENS in whole:
                client.done += 1
                client.events += max(1, whole.count(b'"delta":{"content":"'))
            else:
                client.failed += 1
            self.asking = False
            client.idle.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.client.failed += self.asking
        with contextlib.suppress(ValueError):
            self.client.idle.remove(self)


def _request(text: str, stream: bool) -> bytes:
    body: dict[str, object] = {
        "model": "sim",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def measure(
    case: tuple[str, int, int, float, bool], rate: float, seconds: float
) -> dict[str, object]:
    """One case: a fresh server, two seconds to warm up, then the measured time."""
    name, tokens_per_write, prompt_tokens, speed, stream = case
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, __file__, "--serve", str(port), str(tokens_per_write), str(speed)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().strip() == "ready"
            _pin(process.pid)
            server = psutil.Process(process.pid)
            client = Client(port, prompt_tokens, stream)

            async def run() -> tuple[float, float, float]:
                await client.run(rate, 2.0)
                client.sent = client.done = client.events = client.reads = client.failed = 0
                client.seconds = 0.0
                used, began, own = server.cpu_times(), time.perf_counter(), time.process_time()
                await client.run(rate, seconds)
                now = server.cpu_times()
                spent = now.user + now.system - used.user - used.system
                return spent, time.perf_counter() - began, time.process_time() - own

            spent, wall, own = uvloop.run(run())
            resident = server.memory_info().rss
        finally:
            process.terminate()
            process.wait(20)
    return {
        "case": name,
        "rate_per_s": rate,
        "prompt_tokens": prompt_tokens,
        "answers": client.done,
        "failed": client.failed + client.sent - client.done - client.failed,
        "writes_an_answer": round(client.events / max(1, client.done), 2),
        "cpu_us_an_answer": round(spent / max(1, client.done) * 1e6),
        "server_cpu_share": round(spent / wall, 3),
        "client_cpu_share": round(own / wall, 3),
        "mean_total_ms": round(client.seconds / max(1, client.done) * 1e3, 1),
        "server_rss_mib": round(resident / 2**20),
    }


def _pin(pid: int) -> None:
    """Server and client on a core each, where the system can do that."""
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
        first, second, *_ = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {first})
        os.sched_setaffinity(0, {second})


def main() -> None:
    """Measure every case, print and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=800.0)
    arguments = parser.parse_args()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    rows = []
    for case in CASES:
        rows.append(measure(case, arguments.rate, arguments.seconds))
        if cores is not None:
            os.sched_setaffinity(0, cores)
        print(rows[-1], flush=True)
    result = {
        "machine": machine(),
        "seconds": arguments.seconds,
        "target_cpu_us": TARGET_US,
        "met": rows[0]["cpu_us_an_answer"] <= TARGET_US,
        "rows": rows,
    }
    Path(__file__).with_name("serve.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
