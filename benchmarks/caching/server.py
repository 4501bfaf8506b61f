"""A server over the big store with simulated engines behind it, each a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import corpus
import msgspec
import psutil
from stand import LOOPBACK

from forebay.app.children import Child, running
from forebay.gateway.server import bind

START_S = 120.0
WRITE_EVERY_MS = 2_500
"""After its first token an answer is written at most so often: 2,000 tokens come in 8 pieces."""
ENGINES = {
    # Answers quote the first passage and end by themselves, so that they may be kept.
    "light": (
        *("--replicas", "2", "--speed", "16", "--output", "draw"),
        *("--set", "text=quoted", "--set", "output_median_tokens=200"),
        *("--set", "output_sigma=0.2", "--set", "max_num_seqs=1024"),
    ),
    "heavy": (
        *("--replicas", "1", "--speed", "32", "--output", "cap"),
        *("--set", "kv_tokens=4000000", "--set", "max_num_seqs=1024"),
    ),
}
INPUT_TOKENS = {"light": 4_096, "heavy": 24_000}
OUTPUT_TOKENS = {"light": 1_024, "heavy": 2_048}
MODEL_TOKENS = 32_000
WATCHED = Path(__file__).with_name("watched.py")


class Stand(NamedTuple):
    """Where the server listens, its process, the engines' and what watches it."""

    url: str
    port: int
    server: psutil.Process
    engines: list[Child]
    watch: Path


def configuration(folder: Path, port: int, urls: dict[str, str], *, answers: bool) -> str:
    """``forebay.toml``; what is not named is the default.

    The generated chunks are near-duplicates of one another: that the best by words is among the ten
    nearest by vector says nothing of the vectors there, and half of the time they would be left.
    """
    text = f"""
[server]
port = {port}
max_in_flight = 10000
[server.connections]
max_connections = 8192
[store]
path = "{folder}/store"
[context]
max_passages = 2
window_tokens = 24000
[telemetry]
access_log = false
[retrieval.ladder.vector]
hit_rate = 0.0
[generation]
backend = "openai"
"""
    for name, url in urls.items():
        text += f"""
[[generation.pools]]
name = "{name}"
base_urls = ["{url}/v1"]
model = "sim"
max_input_tokens = {INPUT_TOKENS[name]}
max_output_tokens = {OUTPUT_TOKENS[name]}
"""
    for name in urls:
        # Engines are not what is measured: they take all that comes.
        text += f"[admission.pools.{name}.gate.limit]\ninitial = 2048\nleast = 2048\nmost = 2048\n"
    if answers:
        text += '[[cache.answers.rules]]\nname = "all"\nlife_s = 3600\n'
    return text


@asynccontextmanager
async def standing(folder: Path, *, answers: bool, workers: int = 1) -> AsyncIterator[Stand]:
    """Engines and server while the block runs; ``folder`` holds the store."""
    async with AsyncExitStack() as stack:
        engines, urls = [], {}
        for name, more in ENGINES.items():
            words = ["simulate", "serve", "--port", "0", "--shared-port", "0", "--json", *more]
            words += ["--set", f"write_every_ms={WRITE_EVERY_MS}"]
            words += ["--set", f"max_model_len={MODEL_TOKENS}"]
            child = await stack.enter_async_context(running(name, words, folder, heard=True))
            said = msgspec.json.decode(await child.line())
            urls[name] = said.get("shared") or said["replicas"][0]
            engines.append(child)
        with bind(LOOPBACK, 0) as probe:
            port = probe.getsockname()[1]
        config = folder / "forebay.toml"
        config.write_text(configuration(folder, port, urls, answers=answers), encoding="utf-8")
        watch = folder / "watch.jsonl"
        process = await stack.enter_async_context(_watched(folder, config, watch, workers))
        await _ready(port, process, folder / "server.log")
        url = f"http://{LOOPBACK}:{port}"
        yield Stand(url, port, psutil.Process(process.pid), engines, watch)


@asynccontextmanager
async def _watched(
    folder: Path, config: Path, watch: Path, workers: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(WATCHED), str(watch), "serve", "--config", str(config)),
            *(("--workers", str(workers)) if workers > 1 else ()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(30):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _ready(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            status, _ = await asyncio.to_thread(page, port, "/readyz")
        except (OSError, http.client.HTTPException):
            status = 0
        if status == 200:
            return
        if process.returncode is not None or time.monotonic() > until:
            raise SystemExit(f"the server is not ready:\n{log.read_text()[-2000:]}")
        await asyncio.sleep(0.2)


def page(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page of the server."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=120.0)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def model() -> str:
    """What clients call the knowledge base."""
    return f"forebay/{corpus.KB}"
