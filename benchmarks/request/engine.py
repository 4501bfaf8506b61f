"""An engine that is nothing but its stream: one-token chunks at even distances, made once.

Run: python benchmarks/request/engine.py --port 8500 --interval-ms 10. It reads ``max_tokens`` and
whether to stream, and writes each chunk by itself, as an engine does that decodes a token at a
time. A simulated engine that thinks takes as much of the machine as the server that is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from typing import Any

import uvloop

_MOST = re.compile(rb'"max_(?:completion_)?tokens":(\d+)')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_WORDS = (" the", " pump", " stands", " still", " and", " the", " gate", " opens")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(**fields: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "sim", **fields}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _choice(delta: dict[str, str], reason: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": reason}]


CHUNKS = tuple(_framed(_event(choices=_choice({"content": word}))) for word in _WORDS)


def last(tokens: int) -> bytes:
    """The end of an answer of so many tokens."""
    usage = {"prompt_tokens": 500, "completion_tokens": tokens, "total_tokens": 500 + tokens}
    events = _event(choices=_choice({}, "length")) + _event(choices=[], usage=usage)
    return _framed(events + b"data: [DONE]\n\n") + b"0\r\n\r\n"


def request_of(data: bytes) -> bytes | None:
    """The request if it is whole."""
    head, found, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    whole = found and len(body) >= (int(length[1]) if length else 0)
    return data if whole else None


class Pace:
    """Writes the next chunk of every stream once an interval, a sixteenth of them at a time."""

    SLOTS = 16

    def __init__(self, interval_s: float) -> None:
        self._slots: list[set[Stream]] = [set() for _ in range(self.SLOTS)]
        self._interval_s = interval_s
        self._turn = 0

    def join(self, stream: Stream) -> None:
        """From now on it is written to."""
        min(self._slots, key=len).add(stream)

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            at += self._interval_s / self.SLOTS
            await asyncio.sleep(max(0.0, at - loop.time()))
            slot = self._slots[self._turn]
            self._turn = (self._turn + 1) % self.SLOTS
            slot -= {stream for stream in slot if not stream.write()}


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._data = b""
        self._written = self._most = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember where to write."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer a request once it is whole."""
        self._data += data
        request = request_of(self._data)
        if request is None:
            return
        self._data = b""
        if request.startswith(b"GET"):
            self._transport.write(OK)
            return
        most = _MOST.search(request)
        self._written, self._most = 0, int(most[1]) if most else 64
        self._transport.write(HEAD)
        self._pace.join(self)

    def write(self) -> bool:
        """The next chunk; False after the last."""
        if self._transport.is_closing():
            return False
        if self._written >= self._most:
            self._transport.write(last(self._most))
            return False
        self._transport.write(CHUNKS[self._written % len(CHUNKS)])
        self._written += 1
        return True


async def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--interval-ms", type=float, default=10.0)
    options = parser.parse_args()
    pace = Pace(options.interval_ms / 1000)
    server = await asyncio.get_running_loop().create_server(
        lambda: Stream(pace), "127.0.0.1", options.port
    )
    async with server:
        await pace.run()


if __name__ == "__main__":
    uvloop.run(main())
