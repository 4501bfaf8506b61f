"""Targets that answer byte for byte as told: the well-behaved, the slow, the broken."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Target
from forebay.lab.workload.plan import Workload, WorkloadSpec

OK_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


class Asked:
    """One request as it came: head lines, and the body decoded."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        self.body: dict[str, Any] = json.loads(body) if body else {}


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class RawTarget:
    """A server on a loopback port that hands each request to ``answer``."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.connections = 0
        self.left = 0
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line[15:])
                asked = Asked(head, await reader.readexactly(length))
                self.asked.append(asked)
                await self.answer(asked, writer)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left += 1
        finally:
            writer.close()


@asynccontextmanager
async def raw_target(
    answer: Answer, context: ssl.SSLContext | None = None
) -> AsyncIterator[RawTarget]:
    target = RawTarget(answer)
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    target.base_url = f"http{'s' if context else ''}://127.0.0.1:{port}"
    try:
        yield target
    finally:
        server.close()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for what happens on the other side of a connection."""
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.005)


def event(text: str = "", *, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> bytes:
    body = {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def whole_stream(tokens: int = 3) -> bytes:
    return (
        event()
        + b"".join(event(f"w{number} ") for number in range(tokens))
        + event(finish="stop")
        + usage(5, tokens)
        + b"data: [DONE]\n\n"
    )


def chunked(body: bytes, size: int = 1 << 20) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def ready(body: bytes, head: bytes = OK_STREAM) -> Answer:
    """Answers at once with a chunked body."""
    whole = head + b"transfer-encoding: chunked\r\n\r\n" + chunked(body)

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)

    return answer


def sent(*pieces: bytes, close: bool = False, pause_s: float = 0.0) -> Answer:
    """Writes pieces as they are, apart; then closes or not."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if close:
            writer.close()

    return answer


def workload(**spec: Any) -> Workload:
    """Ten requests in a tenth of a second unless told otherwise."""
    spec.setdefault("arrivals", {"kind": "constant", "rate": 100, "count": 10})
    spec.setdefault("kinds", [{"name": "light", "input_tokens": 6, "output_tokens": 3}])
    if "closed_loop" in spec:
        del spec["arrivals"]
    import msgspec

    return Workload(msgspec.convert(spec, WorkloadSpec))


def options(target: RawTarget | str, load: Workload | None = None, **more: Any) -> BenchOptions:
    url = target if isinstance(target, str) else target.base_url
    bounds = GeneratorBounds(
        max_lateness_p99_s=more.pop("max_lateness_p99_s", 5.0),
        max_in_flight=more.pop("max_in_flight", 1_000),
        max_connections=more.pop("max_connections", 100),
        accept_not_sent=more.pop("accept_not_sent", False),
        processes=more.pop("processes", 1),
    )
    run = {name: more.pop(name) for name in ("seed", "slice_s", "warmup_s") if name in more}
    more.setdefault("model", "m")
    more.setdefault("timeout_s", 5.0)
    return BenchOptions(
        target=Target(base_url=url, **more), workload=load or workload(), bounds=bounds, **run
    )
