"""CPU time of a relayed token and of a warm streamed answer, old code and new code by turns.

Run from the repository's root:
python benchmarks/relay/measure.py --source src --source ../other/src [--rounds 12] [--case NAME]

One process is engine and client at once and keeps the streams in lockstep: the next token of the
streams is written when every client has read the one before. So a busy machine changes how long a
run takes, not how many reads, events and writes the server has to do. A server for each source is
up all the time; they are measured by turns, and their ratio is taken within each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "request")]

import engine as plain  # noqa: E402  the bare engine's bytes
import measure as whole  # noqa: E402  a whole request's processes


class Case(NamedTuple):
    """``tokens`` an answer, ``together`` of them in each write, ``streams`` at a time."""

    name: str
    tokens: int
    together: int
    streams: int
    answers: int


CASES = (
    Case("8 tokens, one by one", 8, 1, 16, 320),
    Case("200 tokens, one by one", 200, 1, 16, 32),
    Case("200 tokens, 4 together", 200, 4, 16, 64),
    Case("200 tokens, 20 together", 200, 20, 16, 96),
)


class Lockstep:
    """The streams of one run: how far the engine has written and what the clients have read."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.engines: list[EngineStream] = []
        self.reading: set[ClientStream] = set()
        self.news = asyncio.Event()
        self.events = 0
        self.failed = ""

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait for the streams, a minute at most."""
        async with asyncio.timeout(60):
            while not met():
                self.news.clear()
                await self.news.wait()
        if self.failed:
            raise RuntimeError(self.failed)

    async def answers(self, clients: list[ClientStream], requests: list[bytes]) -> None:
        """One answer for each client."""
        self.engines.clear()
        self.reading = set(clients)
        for client, request in zip(clients, requests, strict=True):
            client.ask(request)
        await self.until(lambda: len(self.engines) == len(clients))
        for _ in range(self.case.tokens // self.case.together):
            for client in clients:
                client.fresh = False
            for stream in self.engines:
                stream.write(self.case.together)
            await self.until(lambda: all(client.fresh for client in clients))
        for stream in self.engines:
            stream.end()
        await self.until(lambda: not self.reading)


class EngineStream(asyncio.Protocol):
    """An engine's side of one connection; the chunks are ``engine.py``'s."""

    lockstep: Lockstep | None = None

    def __init__(self) -> None:
        self._data = b""
        self._written = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember where to write."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Open the answer of a request once it is whole."""
        self._data += data
        request = plain.request_of(self._data)
        if request is None:
            return
        self._data = b""
        if request.startswith(b"GET"):
            self._transport.write(plain.OK)
            return
        self._written = 0
        self._transport.write(plain.HEAD)
        if EngineStream.lockstep is None:
            # A server that looks whether its engine is there.
            self.write(1)
            self.end()
            return
        EngineStream.lockstep.engines.append(self)
        EngineStream.lockstep.news.set()

    def write(self, tokens: int) -> None:
        """So many tokens in one write, each an event of its own."""
        at, chunks = self._written, plain.CHUNKS
        self._transport.write(b"".join(chunks[n % len(chunks)] for n in range(at, at + tokens)))
        self._written += tokens

    def end(self) -> None:
        """The end of the answer."""
        self._transport.write(plain.last(self._written))


class ClientStream(asyncio.Protocol):
    """A client's side of one connection; one answer at a time."""

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        self._told = False
        self.fresh = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember where to ask."""
        self.transport = transport

    def ask(self, request: bytes) -> None:
        """Send a request."""
        self._told = False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Count events, notice failures and ends."""
        lockstep, events = self._lockstep, data.count(b'"delta":{"')
        if (not self._told and not data.startswith(b"HTTP/1.1 200")) or b'"error":' in data:
            lockstep.failed = data[-300:].decode("utf-8", "replace")
        self._told = True
        lockstep.events += events
        if events:
            self.fresh = True
        if data.endswith(b"0\r\n\r\n"):
            lockstep.reading.discard(self)
        lockstep.news.set()


def cpu_ns(process: int) -> int:
    """User and system time of all threads of a process, by its CPU clock (Linux)."""
    return time.clock_gettime_ns((~process << 3) | 2)


async def run(case: Case, port: int, process: int, answers: int) -> dict[str, float]:
    """So many answers of one server: its CPU time and what left it."""
    lockstep = EngineStream.lockstep = Lockstep(case)
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: ClientStream(lockstep), "127.0.0.1", port))[1]
        for _ in range(case.streams)
    ]
    requests = whole.requests_of(_load(case))
    before = cpu_ns(process)
    for turn in range(answers // case.streams):
        at = turn * case.streams
        asked = [requests[(at + n) % len(requests)] for n in range(case.streams)]
        await lockstep.answers(clients, asked)
    spent = cpu_ns(process) - before
    for client in clients:
        client.transport.close()
    return {"cpu_us": spent / 1000 / answers, "events": lockstep.events / answers}


def _load(case: Case) -> whole.Case:
    """The same for the processes of a whole request."""
    return whole.Case(case.name, (), "none", True, case.tokens, 0, 0, kept=True)


@contextmanager
def floor(engine: int) -> Iterator[tuple[int, int]]:
    """Port and process of ``floor.py``."""
    port = whole.free_port()
    command = [sys.executable, str(Path(__file__).with_name("floor.py"))]
    command += ["--port", str(port), "--engine", str(engine)]
    with whole.process(command, Path(os.devnull), stdout=subprocess.DEVNULL) as child:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield port, child.pid


async def serve_engine(port: int) -> asyncio.Server:
    """The engine's side of the process."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(EngineStream, "127.0.0.1", port)


async def by_turns(
    cases: list[Case], servers: list[tuple[int, int]], rounds: int
) -> list[dict[str, Any]]:
    """Each case for each server in each round; the first round warms up and is not kept."""
    found: list[dict[str, Any]] = []
    for number in range(-1, rounds):
        for case in cases:
            # Whoever came first comes second next time.
            order = range(len(servers)) if number % 2 else reversed(range(len(servers)))
            for which in order:
                answers = case.answers if number >= 0 else max(case.answers, 640)
                told = await run(case, *servers[which], answers)
                row = {"round": number, "case": case.name, "source": which, **told}
                if number >= 0:
                    found.append(row)
        print(json.dumps(found[-len(cases) * len(servers) :]), flush=True)
    return found


def summary(cases: list[Case], rows: list[dict[str, Any]], sources: int) -> list[dict[str, Any]]:
    """Medians over the rounds, and the ratio to the first source within each."""
    by = {(row["round"], row["case"], row["source"]): row["cpu_us"] for row in rows}
    rounds = sorted({row["round"] for row in rows})
    names = [case.name for case in cases]
    values: dict[str, Callable[[int, int], float]] = {
        f"us an answer: {name}": lambda r, s, name=name: by[r, name, s] for name in names
    }
    fixed = CASES[0]
    for case in cases:
        if fixed.name in names and case.tokens > fixed.tokens:
            tokens = case.tokens - fixed.tokens * (case.together == 1)
            # Together, the few tokens of the short answer are a read or less: left in.
            values[f"us a token more: {case.name}"] = lambda r, s, case=case, tokens=tokens: (
                (by[r, case.name, s] - by[r, fixed.name, s]) / tokens
            )
    told = []
    for name, value in values.items():
        line: dict[str, Any] = {"figure": name}
        for source in range(sources):
            line[f"source_{source}"] = round(median(value(r, source) for r in rounds), 1)
        for source in range(1, sources):
            ratio = median(value(r, source) / value(r, 0) for r in rounds)
            line[f"ratio_{source}"] = round(ratio, 3)
        told.append(line)
    return told


def main() -> None:
    """Measure and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, action="append", help="the code; or floor")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--case", action="append")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    sources = options.source or [ROOT / "src"]
    cases = [case for case in CASES if not options.case or case.name in options.case]
    from benchmarks.__main__ import machine

    async def measured() -> list[dict[str, Any]]:
        engine_port = whole.free_port()
        engine = await serve_engine(engine_port)
        with ExitStack() as stack:
            servers = []
            for source in sources:
                if source.name == "floor":
                    begun = floor(engine_port)
                else:
                    begun = whole.served(_load(cases[0]), source.resolve(), engine_port)
                servers.append(await asyncio.to_thread(stack.enter_context, begun))
            rows = await by_turns(cases, servers, options.rounds)
        engine.close()
        return rows

    load = os.getloadavg()[0]
    rows = uvloop.run(measured())
    result = {
        "machine": machine(),
        "sources": [whole.commit_of(source) for source in sources],
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "summary": summary(cases, rows, len(sources)),
        "rows": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for line in result["summary"]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
