"""A trivial OpenAI-compatible server: the least a streamed answer can cost on the other core.

Run: python benchmarks/bench/server.py CHUNKS [GAP_MS]
Prints its port. Answers every POST with CHUNKS chunks of one token and usage. Without a gap all
chunks go out in one write; with one, each is a write of its own, GAP_MS milliseconds apart. Each
line on its input is answered by its CPU seconds so far.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from typing import cast

import uvloop

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\nx-forebay-rung: bm25\r\n\r\n"
)


def events(chunks: int) -> list[bytes]:
    """The parts of one answer as they are written."""

    def event(delta: dict[str, str], finish: str | None = None) -> bytes:
        body = {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "sim",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

    parts = [event({"content": f"word{number} "}) for number in range(chunks)]
    parts[0] = event({"role": "assistant", "content": ""}) + parts[0]
    usage = {"prompt_tokens": 8, "completion_tokens": chunks, "total_tokens": chunks + 8}
    last = {"id": "chatcmpl-0123456789abcdef", "choices": [], "usage": usage}
    parts[-1] += event({}, "stop") + b"data: " + json.dumps(last).encode() + b"\n\n"
    parts[-1] += b"data: [DONE]\n\n"
    framed = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    framed[0] = HEAD + framed[0]
    framed[-1] += b"0\r\n\r\n"
    return framed


class Server(asyncio.Protocol):
    """Counts bytes of requests by their content-length; answers from ready bytes."""

    def __init__(self, parts: list[bytes], gap_s: float) -> None:
        self._parts = parts
        self._whole = b"".join(parts)
        self._gap_s = gap_s
        self._loop = asyncio.get_running_loop()
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while (end := self._pending.find(b"\r\n\r\n")) >= 0:
            head = self._pending[:end].lower() + b"\r\n"
            at = head.find(b"content-length: ")
            length = int(head[at + 16 : head.find(b"\r\n", at)])
            if len(self._pending) < end + 4 + length:
                return
            self._pending = self._pending[end + 4 + length :]
            if self._gap_s:
                self._write(0)
            else:
                self._transport.write(self._whole)

    def _write(self, number: int) -> None:
        self._transport.write(self._parts[number])
        if number + 1 < len(self._parts):
            self._loop.call_later(self._gap_s, self._write, number + 1)


async def main() -> None:
    parts = events(int(sys.argv[1]))
    gap_s = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.0
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(parts, gap_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(usage.ru_utime + usage.ru_stime, flush=True)


if __name__ == "__main__":
    uvloop.run(main())
