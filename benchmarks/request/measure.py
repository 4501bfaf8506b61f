"""CPU time of whole chat requests, and how many chunks of engines one process relays.

Run from the repository's root: python benchmarks/request/measure.py [--runs 5] [--case NAME ...]
Server, simulated engine and client are processes of their own on one machine; every figure of the
server is its own CPU time (user and system, all its threads) from the operating system.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
FOREBAY = (sys.executable, "-m", "forebay")
QUESTIONS = ROOT / "examples" / "questions" / "handbook.jsonl"
ENV = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
ENV["PYTHONPATH"] = str(ROOT / "src")


class Case(NamedTuple):
    """One kind of load.

    ``engine``: the simulated engine's options, None: extractive answers; ``bare``: those of
    ``engine.py``, which thinks nothing. ``rate``: requests a
    second that do not wait for answers; 0: ``streams`` of them at a time, each after its last.
    """

    name: str
    engine: tuple[str, ...] | None
    embedding: str
    stream: bool
    tokens: int
    rate: float
    requests: int
    streams: int = 0
    kept: bool = False
    """Whether what was found before may be used; else every request asks for no cache."""
    bare: bool = False


QUICK = ("--speed", "1", "--output", "cap")
STEADY = ("--output", "cap", "--speed", "1.0", "--set", "max_num_seqs=1024")


def _bare(chunks_a_s: int, streams: int = 160) -> Case:
    """So many chunks a second offered, by an engine that leaves the machine to the server."""
    interval = ("--interval-ms", str(1000 * streams / chunks_a_s))
    name = f"throughput, {chunks_a_s} a second offered"
    return Case(name, interval, "none", True, 512, 0, 3 * streams, streams, kept=True, bare=True)


CASES = (
    Case("extractive, streamed", None, "none", True, 0, 100, 1500),
    Case("extractive, whole", None, "none", False, 0, 100, 1500),
    Case("extractive, streamed, with vectors", None, "e5", True, 0, 50, 1000),
    Case("relayed, 8 chunks", QUICK, "none", True, 8, 100, 1000),
    Case("relayed, whole", QUICK, "none", False, 8, 100, 1000),
    Case("throughput, 192 chunks", STEADY, "none", True, 192, 0, 1024, 256),
    _bare(12_800),
    _bare(14_400),
    Case("extractive, streamed, found before", None, "none", True, 0, 100, 1500, kept=True),
    Case("extractive, whole, found before", None, "none", False, 0, 100, 1500, kept=True),
    Case("with vectors, streamed, found before", None, "e5", True, 0, 50, 1000, kept=True),
    Case("relayed, 8 chunks, found before", QUICK, "none", True, 8, 100, 1000, kept=True),
    Case("relayed, whole, found before", QUICK, "none", False, 8, 100, 1000, kept=True),
)


class Client:
    """A light HTTP client: counts events and bytes, reads nothing else."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self.port = port
        self.requests = itertools.cycle(requests)
        self.idle: list[_Connection] = []
        self.asked = self.done = self.failed = self.events = self.reads = 0
        self.took: list[float] = []
        self.said = ""
        self.again = 0

    async def at_rate(self, rate: float, requests: int) -> None:
        """Requests at even distances, each on a connection that is free."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.asked < requests:
            while self.asked < min(requests, (loop.time() - began) * rate):
                await self.ask()
            await asyncio.sleep(0.001)
        await self.settled()

    async def at_once(self, streams: int, requests: int) -> None:
        """So many streams at a time."""
        self.again = requests - streams
        for _ in range(streams):
            await self.ask()
            # A line of searches that stands for a second would be shed, rightly.
            await asyncio.sleep(0.005)
        await self.settled()

    async def settled(self) -> None:
        """Wait for every answer."""
        async with asyncio.timeout(60):
            while self.done + self.failed < self.asked:
                await asyncio.sleep(0.005)

    async def ask(self) -> None:
        """Send one."""
        self.asked += 1
        if self.idle:
            connection = self.idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(
                lambda: _Connection(self), "127.0.0.1", self.port
            )
        connection.ask(next(self.requests))

    def ended(self, connection: _Connection, *, ok: bool) -> None:
        """An answer is whole, or it is none."""
        self.done, self.failed = self.done + ok, self.failed + (not ok)
        self.took.append(time.perf_counter() - connection.began)
        if self.again > 0:
            self.again -= 1
            self.asked += 1
            connection.ask(next(self.requests))
        else:
            self.idle.append(connection)


class _Connection(asyncio.Protocol):
    def __init__(self, client: Client) -> None:
        self.client = client
        self.head, self.began, self.busy = b"", 0.0, False
        self.missing = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def ask(self, request: bytes) -> None:
        self.head, self.busy = b"", True
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        client = self.client
        client.reads += 1
        client.events += data.count(b'"delta":{"')
        if not self.head:
            self.head, self.missing = data, _length(data)
        if self.missing:
            self.missing -= len(data)
            ended = self.missing == 0
        else:
            ended = data.endswith(b"0\r\n\r\n")
        if ended:
            ok = self.head.startswith(b"HTTP/1.1 200")
            if not ok or b'"error"' in data:
                client.said, ok = data[-300:].decode(), False
            self.busy = False
            client.ended(self, ok=ok)

    def connection_lost(self, _: Exception | None) -> None:
        if self.busy:
            self.client.failed += 1
        if self in self.client.idle:
            self.client.idle.remove(self)


def _length(data: bytes) -> int:
    """Bytes of an answer with its head; 0 where it comes in chunks."""
    head = data.partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return len(head) + 4 + int(line.partition(b":")[2])
    return 0


def requests_of(case: Case) -> list[bytes]:
    """One request for each question of the handbook's evaluation set."""
    found = []
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        body: dict[str, Any] = {
            "model": "forebay/handbook",
            "messages": [{"role": "user", "content": json.loads(line)["question"]}],
        }
        if case.stream:
            body["stream"] = True
        if case.tokens:
            body["max_tokens"] = case.tokens
        data = json.dumps(body, ensure_ascii=False).encode()
        cache = "" if case.kept else "x-forebay-no-cache: 1\r\n"
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            f"{cache}content-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        found.append(head.encode() + data)
    return found


def drive(port: int, case: Case) -> None:
    """The client's process: warm up, then one measured run for each line of input."""
    requests = requests_of(case)

    async def run(count: int) -> dict[str, Any]:
        client = Client(port, requests)
        before, began = time.process_time(), time.perf_counter()
        if case.rate:
            await client.at_rate(case.rate, count)
        else:
            await client.at_once(case.streams, count)
        seconds = time.perf_counter() - began
        took = sorted(client.took)
        for connection in client.idle[:]:
            connection.transport.close()
        return {
            "requests": client.done,
            "failed": client.failed,
            "said": client.said,
            "events": client.events,
            "reads": client.reads,
            "seconds": round(seconds, 3),
            "client_cpu_s": round(time.process_time() - before, 3),
            "p50_ms": round(took[len(took) // 2] * 1e3, 2),
            "p99_ms": round(took[int(len(took) * 0.99)] * 1e3, 2),
        }

    # What is to be found before is asked once and kept, then found once.
    uvloop.run(run(max(2 * len(requests), case.requests // 4)))
    print("warm", flush=True)
    for _ in sys.stdin:
        print(json.dumps(uvloop.run(run(case.requests))), flush=True)


def free_port() -> int:
    """A port nobody has at present."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def process(command: Sequence[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child that is ended with the block."""
    with log.open("w") as output:
        child = subprocess.Popen(command, stderr=output, cwd=ROOT, env=ENV, text=True, **options)
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()


def wait_for(url: str, server: subprocess.Popen[Any], seconds: float = 60) -> None:
    """Until it answers 200."""
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
        time.sleep(0.2)


def wait_embedded(port: int, case: Case, seconds: float = 120) -> None:
    """Until a search sees every vector, and sentences have theirs: before that nobody keeps what is
    found, and the server has other work.
    """
    if case.embedding == "none":
        return
    body = json.dumps(
        {
            "model": "forebay/handbook",
            "messages": [{"role": "user", "content": "Which paints are used on the casings?"}],
        }
    ).encode()
    headers = {"content-type": "application/json", "x-forebay-no-cache": "1"}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions", body, headers
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            told = json.load(answer)["forebay"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/kb/handbook") as answer:
            made = json.load(answer).get("sentences")  # None: of a version that makes none
        whole = made is None or made["kept"] == made["chunks"]
        if whole and not told.get("degradations"):
            return
        time.sleep(0.5)
    raise TimeoutError("the handbook is not embedded")


def configuration(case: Case, port: int, engine: int, folder: Path) -> str:
    """What the server is told; everything else is its default."""
    text = (
        f'[server]\nport = {port}\n[store]\npath = "{folder}/store"\n'
        f'[knowledge.handbook]\npaths = ["{ROOT}/examples/handbook"]\n'
        f'[embedding]\nbackend = "{case.embedding}"\n'
    )
    if case.engine is not None:
        text += (
            '[generation]\nbackend = "openai"\n[[generation.pools]]\nname = "sim"\n'
            f'base_urls = ["http://127.0.0.1:{engine}/v1"]\nmodel = "sim"\n'
            "max_input_tokens = 8192\nmax_output_tokens = 1024\n"
            "[admission.pools.sim]\ngate.limit = { initial = 1024, least = 1024, most = 1024 }\n"
        )
    return text


def commit_of(source: Path) -> str:
    """The commit of a copy of the code."""
    if not source.exists():
        return source.name
    command = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cpu_s(one: psutil.Process) -> float:
    """User and system time of a process, of all its threads."""
    times = one.cpu_times()
    return times.user + times.system


@contextmanager
def running(case: Case, source: Path) -> Iterator[tuple[int, int, int]]:
    """Port, process of the server and of the engine (0: none)."""
    engine = free_port()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-request-"))
        folder, engine_pid = Path(name), 0
        if case.engine is not None:
            serve = [str(Path(__file__).with_name("engine.py"))]
            if not case.bare:
                serve = [*FOREBAY[1:], "simulate", "serve"]
            command = [sys.executable, *serve, "--port", str(engine), *case.engine]
            child = stack.enter_context(
                process(command, folder / "engine.log", stdout=subprocess.DEVNULL)
            )
            engine_pid = child.pid
            wait_for(f"http://127.0.0.1:{engine}/health", child)
        port, server = stack.enter_context(served(case, source, engine))
        yield port, server, engine_pid


@contextmanager
def served(case: Case, source: Path, engine: int) -> Iterator[tuple[int, int]]:
    """Port and process of a server whose engine, if it has one, listens at ``engine``."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="forebay-request-") as name:
        folder = Path(name)
        config = folder / "forebay.toml"
        config.write_text(configuration(case, port, engine, folder), encoding="utf-8")
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(
                [*FOREBAY, "serve", "--config", str(config)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=ROOT,
                env={**ENV, "PYTHONPATH": str(source)},
            )
            try:
                wait_for(f"http://127.0.0.1:{port}/readyz", server)
                wait_embedded(port, case)
                yield port, server.pid
            finally:
                server.terminate()
                try:
                    server.wait(30)
                except subprocess.TimeoutExpired:
                    server.kill()


def measure(case: Case, runs: int, source: Path) -> list[dict[str, Any]]:
    """Runs of one case against one server."""
    found = []
    with ExitStack() as stack:
        port, server_pid, engine_pid = stack.enter_context(running(case, source))
        command = [sys.executable, __file__, "--drive", str(port), "--case", case.name]
        driver = stack.enter_context(
            process(command, Path(os.devnull), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert driver.stdin is not None and driver.stdout is not None
        assert driver.stdout.readline().strip() == "warm", "the client did not get going"
        server = psutil.Process(server_pid)
        engine = psutil.Process(engine_pid) if engine_pid else None
        for _ in range(runs):
            before, engine_before = cpu_s(server), cpu_s(engine) if engine else 0.0
            driver.stdin.write("\n")
            driver.stdin.flush()
            run = json.loads(driver.stdout.readline())
            spent = cpu_s(server) - before
            run["server_cpu_s"] = round(spent, 3)
            run["engine_cpu_s"] = round(cpu_s(engine) - engine_before, 3) if engine else 0.0
            run["cpu_ms_a_request"] = round(spent / max(1, run["requests"]) * 1e3, 3)
            run["server_share"] = round(spent / run["seconds"], 3)
            if case.tokens:
                chunks = run["requests"] * case.tokens
                run["chunks_a_s"] = round(chunks / run["seconds"])
                run["events_a_s"] = round(run["events"] / run["seconds"])
                run["chunks_a_cpu_s"] = round(chunks / spent)
                run["events_a_cpu_s"] = round(run["events"] / spent)
            found.append(run)
            print(json.dumps({"case": case.name, **run}), flush=True)
    return found


def main() -> None:
    """Measure the cases and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the code to measure")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [case for case in CASES if not options.case or case.name in options.case]
    if options.drive:
        drive(options.drive, cases[0])
        return
    from benchmarks.__main__ import machine

    results = []
    for case in cases:
        runs = measure(case, options.runs, options.source)
        figures = {
            name: median(run[name] for run in runs)
            for name, value in runs[0].items()
            if isinstance(value, int | float)
        }
        results.append({"case": case.name, "median": figures, "runs": runs})
    text = json.dumps({"machine": machine(), "cases": results}, indent=1) + "\n"
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
