"""A light HTTP/1.1 client in a process of its own: one request again and again.

python benchmarks/caching/hammer.py PORT REQUEST_FILE --connections 32 --seconds 5 [--rate R]
Without a rate each connection asks again as soon as it is answered; with one, requests are due at
even distances whatever becomes of those before, and latency counts from when each was due. Prints
one JSON object. An answer ends where its head's content-length says, or with the last chunk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import uvloop

WARM_SHARE = 0.15


class Client:
    """Connections that ask the same, and how long the answers took."""

    def __init__(self, request: bytes, marker: bytes) -> None:
        self.request, self.marker = request, marker
        self.closed_loop = True
        self.due: deque[float] = deque()
        self.idle: list[Connection] = []
        self.took: list[tuple[float, float]] = []
        self.wrong = 0
        self.last = b""

    def ended(self, connection: Connection, asked_at: float, answer: bytes) -> None:
        """An answer is whole."""
        now = time.perf_counter()
        self.took.append((asked_at, now - asked_at))
        if not answer.startswith(b"HTTP/1.1 200") or self.marker not in answer:
            self.wrong, self.last = self.wrong + 1, answer
        if self.closed_loop:
            connection.ask(now)
        elif self.due:
            connection.ask(self.due.popleft())
        else:
            self.idle.append(connection)


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.data, self.asked_at, self.whole = b"", 0.0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Keep the way out."""
        self.transport = transport

    def ask(self, asked_at: float) -> None:
        """Send the request, as of the time it was due."""
        self.data, self.asked_at, self.whole = b"", asked_at, 0
        self.transport.write(self.client.request)

    def data_received(self, data: bytes) -> None:
        """Gather an answer."""
        self.data = self.data + data if self.data else data
        if not self.whole:
            head, _, _ = self.data.partition(b"\r\n\r\n")
            at = head.find(b"content-length: ")
            if at >= 0:
                length = head[at + 16 :].partition(b"\r\n")[0]
                self.whole = len(head) + 4 + int(length)
        ended = len(self.data) >= self.whole if self.whole else self.data.endswith(b"0\r\n\r\n")
        if ended:
            self.client.ended(self, self.asked_at, self.data)


async def hammer(port: int, request: bytes, options: argparse.Namespace) -> dict[str, Any]:
    """Ask for a while; the first part does not count."""
    client = Client(request, options.marker.encode())
    client.closed_loop = not options.rate
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(options.connections):
        _, made = await loop.create_connection(lambda: Connection(client), "127.0.0.1", port)
        connections.append(made)
    began, cpu = time.perf_counter(), time.process_time()
    if client.closed_loop:
        for connection in connections:
            connection.ask(began)
        await asyncio.sleep(options.seconds)
    else:
        client.idle = connections
        await _at_rate(client, options.rate, options.seconds)
    passed, cpu = time.perf_counter() - began, time.process_time() - cpu
    client.closed_loop = False
    since = began + WARM_SHARE * passed
    took = sorted(s for asked_at, s in client.took if asked_at >= since)
    for connection in connections:
        connection.transport.abort()
    return {
        "requests": len(took),
        "per_s": round(len(took) / (passed * (1 - WARM_SHARE)), 1),
        "wrong": client.wrong,
        "said": client.last[:300].decode("utf-8", "replace"),
        "client_cpu_share": round(cpu / passed, 3),
        **{f"p{p:g}_ms": _quantile(took, p) for p in (50, 95, 99, 99.9)},
    }


async def _at_rate(client: Client, rate: float, seconds: float) -> None:
    began, asked = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + seconds:
        while asked < (now - began) * rate:
            due = began + asked / rate
            asked += 1
            if client.idle:
                client.idle.pop().ask(due)
            else:
                client.due.append(due)
        await asyncio.sleep(0.0005)


def _quantile(took: list[float], percent: float) -> float | None:
    place = min(len(took) - 1, int(percent / 100 * len(took)))
    return round(took[place] * 1000, 3) if took else None


def main() -> None:
    """Read the request and hammer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("request", type=Path)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--marker", default="", help="what every answer must hold")
    options = parser.parse_args()
    result = uvloop.run(hammer(options.port, options.request.read_bytes(), options))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
