"""Event-loop lag of a running server while everything heavy happens at once.

For ``--seconds``: a 2 MB prompt without spaces every second, a 300-page PDF upload after another,
and light searches and answers at ``--rate`` a second. The lag is the server's own watchdog
(``forebay_loop_lag_seconds``: how late a 50 ms sleep ends), over this time only.

Run: python benchmarks/serving/lag.py --data FOLDER [--seconds 30] [--rate 20]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import random
import re
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import pypdfium2

SEED = 20260102
ROOT = Path(__file__).resolve().parent.parent.parent
QUESTIONS = (
    "How long is parental leave?",
    "年假可以结转吗？",
    "What does error E21 mean?",
    "值班手机号是多少？",
)
_BUCKET = re.compile(r'forebay_loop_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)')


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pdf(data: Path, pages: int) -> bytes:
    """A PDF of ``pages`` pages of real text."""
    source = pypdfium2.PdfDocument(data / "documents" / "pdfplumber__issue-848.pdf")
    made = pypdfium2.PdfDocument.new()
    while len(made) < pages:
        made.import_pages(source, pages=list(range(min(len(source), pages - len(made)))))
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()


def buckets(text: str) -> dict[float, float]:
    """Cumulative counts of the lag histogram by upper bound in seconds."""
    return {float(bound): float(count) for bound, count in _BUCKET.findall(text)}


def quantile(before: dict[float, float], after: dict[float, float], q: float) -> float:
    """The upper bound of the bucket that holds quantile ``q`` of what came between."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in after}
    wanted = q * counts[float("inf")]
    return min(bound for bound in sorted(counts) if counts[bound] >= wanted)


class Load:
    """The three kinds of traffic and what became of them."""

    def __init__(self, session: aiohttp.ClientSession, until: float) -> None:
        self._session = session
        self._until = until
        self.light_ms: list[float] = []
        self.statuses: dict[str, int] = {}

    def _count(self, kind: str, status: int) -> None:
        key = f"{kind} {status}"
        self.statuses[key] = self.statuses.get(key, 0) + 1

    async def light(self, rate: float) -> None:
        """Searches and answers at a steady rate; latency from the intended start."""
        chance = random.Random(SEED)
        due = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while due < self._until:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._ask(chance.choice(QUESTIONS), due))
                due += 1 / rate

    async def _ask(self, question: str, due: float) -> None:
        body = {
            "model": "forebay/handbook",
            "messages": [{"role": "user", "content": question}],
        }
        async with self._session.post("/v1/chat/completions", json=body) as answer:
            await answer.read()
            self._count("light", answer.status)
        self.light_ms.append((time.perf_counter() - due) * 1000)

    async def heavy_prompts(self) -> None:
        """A 2 MB prompt without spaces, one after the other, one a second at most."""
        text = "x1-" * 700_000
        body = json.dumps(
            {"model": "forebay/handbook", "messages": [{"role": "user", "content": text}]}
        ).encode()
        headers = {"content-type": "application/json"}
        while time.perf_counter() < self._until:
            began = time.perf_counter()
            async with self._session.post(
                "/v1/chat/completions", data=body, headers=headers
            ) as answer:
                await answer.read()
                self._count("2 MB prompt", answer.status)
            await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))

    async def uploads(self, data: bytes) -> None:
        """The PDF under a new id again and again."""
        number = 0
        headers = {"content-type": "application/pdf"}
        while time.perf_counter() < self._until:
            url = f"/v1/kb/uploads/documents/book-{number}.pdf"
            async with self._session.put(url, data=data, headers=headers) as answer:
                await answer.read()
                self._count("300-page PDF", answer.status)
            number += 1


async def measure(options: argparse.Namespace, port: int) -> dict[str, Any]:
    """Wait for the server, run the load, read the histogram before and after."""
    base = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=256)
    async with aiohttp.ClientSession(base, connector=connector) as session:
        for _ in range(600):
            try:
                async with session.get("/readyz") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        async with session.get("/metrics") as answer:
            before = buckets(await answer.text())
        load = Load(session, time.perf_counter() + options.seconds)
        book = pdf(options.data, 300)
        async with asyncio.TaskGroup() as group:
            if "light" in options.only:
                group.create_task(load.light(options.rate))
            if "prompts" in options.only:
                group.create_task(load.heavy_prompts())
            if "uploads" in options.only:
                group.create_task(load.uploads(book))
            await asyncio.sleep(options.seconds)
        async with session.get("/metrics") as answer:
            after = buckets(await answer.text())
    light = sorted(load.light_ms) or [0.0]
    return {
        "lag_ms_at_most": {
            name: quantile(before, after, q) * 1000
            for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
        },
        "light_ms": {
            "p50": round(light[len(light) // 2], 1),
            "p99": round(light[int(len(light) * 0.99)], 1),
        },
        "statuses": load.statuses,
        "pdf_bytes": len(book),
    }


async def serve_and_measure(options: argparse.Namespace) -> dict[str, Any]:
    """A server of its own on a fresh store."""
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        command = (
            f"-m forebay serve examples/handbook --port {port} --store {scratch}/store "
            "--set server.max_upload_bytes=64000000 --set telemetry.access_log=false"
        )
        server = await asyncio.create_subprocess_exec(
            sys.executable, *command.split(), cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            return await measure(options, port)
        finally:
            server.send_signal(signal.SIGTERM)
            await server.wait()


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--rate", type=float, default=20)
    kinds = ("light", "prompts", "uploads")
    arguments.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    options = arguments.parse_args()
    result = asyncio.run(serve_and_measure(options))
    result["seed"] = SEED
    result["machine"] = f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()}"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
