"""A server over a real knowledge base and embedder, a quick engine double, and who writes beside.

The store is made once in a cache folder and copied for each run: every run begins with the same
documents embedded and every cache empty.
"""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overload"))

from stand import KB, LOOPBACK, Stand, ready

from forebay.app.children import running
from forebay.gateway.server import bind
from forebay.lab.workload.arrivals import Step, StepArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.queries import QueriesSpec

SETS = ("xquad_en", "xquad_zh")
LATER = "scifact_train"
"""Whose texts are put while others ask."""
WATCHED = (
    "forebay_shed_total",
    "forebay_cache_total",
    "forebay_pool_limit",
    "forebay_pool_waiting{",
    "forebay_pool_in_flight{",
    "forebay_pool_tokens_per_second",
)
QUIET = 5
MAX_NEW, DEADLINE_S = 32, 2.0
ENGINE = (
    *("--profile", "h100/8b/fp16/tp1", "--speed", "4", "--output", "cap"),
    *("--set", "max_num_seqs=1024", "--set", "write_every_ms=1000"),
)


class Put(NamedTuple):
    """One document that was put: when, how long it took, what the server said."""

    at_s: float
    took_s: float
    status: int


def rows(data: Path, name: str, file: str) -> Iterator[dict[str, Any]]:
    """A set's lines."""
    with (data / "retrieval" / name / f"{file}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write_documents(folder: Path, data: Path, sets: tuple[str, ...], most: int) -> None:
    """One file for each passage."""
    folder.mkdir(parents=True)
    for name in sets:
        for number, row in enumerate(islice(rows(data, name, "corpus"), most)):
            text = f"# {row.get('title') or name}\n\n{row['text']}\n"
            (folder / f"{name}-{number:05}.md").write_text(text, encoding="utf-8")


async def stored(data: Path, cache: Path) -> Path:
    """The folder of documents and store, all of it embedded; made once."""
    folder = cache / "first-seconds"
    if not (folder / "built").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_documents(folder / "documents", data, SETS, 100_000)
        words = ["ingest", "documents", "--kb", KB, "--store", "store", "--wait-embedded"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "forebay", *words), cwd=folder
        )
        if await process.wait():
            raise SystemExit("the documents were not ingested")
        async with standing(folder) as stand:
            await settled(stand.url)
        (folder / "built").touch()
    return folder


async def settled(url: str) -> None:
    """Wait until sentences have their vectors, too: they are made in the background."""
    quiet = 0
    async with aiohttp.ClientSession() as session:
        while quiet < QUIET:
            await asyncio.sleep(1.0)
            async with session.get(f"{url}/metrics") as answer:
                under_way = "forebay_sentences_under_way 0.0" not in await answer.text()
            quiet = 0 if under_way else quiet + 1


def load(folder: Path, data: Path, steps: tuple[tuple[float, float], ...]) -> Workload:
    """Questions by Zipf's law at these rates, light and due within two seconds."""
    texts = [row["text"] for name in SETS for row in rows(data, name, "queries")]
    with (folder / "questions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    kind = Kind(
        name="light",
        output_tokens=MAX_NEW,
        deadline_s=DEADLINE_S,
        queries=QueriesSpec(file="questions.csv", zipf=1.0),
    )
    arrivals = StepArrivals(steps=tuple(Step(rate=rate, duration_s=s) for rate, s in steps))
    return Workload(WorkloadSpec(arrivals=arrivals, kinds=(kind,)), folder)


def configuration(port: int, engine: str, *, paths: str) -> str:
    """``forebay.toml``: admission and caches as they come."""
    return f"""
[server]
host = "{LOOPBACK}"
port = {port}
[server.connections]
max_connections = 8192
[store]
path = "store"
[knowledge.{KB}]
paths = [{paths}]
[telemetry]
access_log = false
[generation]
backend = "openai"
[[generation.pools]]
name = "engine"
base_urls = ["{engine}/v1"]
model = "sim"
max_input_tokens = 12000
max_output_tokens = 1024
"""


@asynccontextmanager
async def standing(folder: Path, *, paths: str = "") -> AsyncIterator[Stand]:
    """Engine double and server while the block runs; ``folder`` holds the store."""
    async with AsyncExitStack() as stack:
        words = ["simulate", "serve", "--port", "0", "--json", *ENGINE]
        engine = await stack.enter_async_context(running("engine", words, folder, heard=True))
        url = msgspec.json.decode(await engine.line())["replicas"][0]
        with bind(LOOPBACK, 0) as probe:
            port = probe.getsockname()[1]
        (folder / "forebay.toml").write_text(configuration(port, url, paths=paths), "utf-8")
        gateway = await stack.enter_async_context(running("gateway", ["serve"], folder))
        children = {"engine": engine, "gateway": gateway}
        await ready(gateway, port)
        yield Stand(f"http://{LOOPBACK}:{port}", port, children)


async def put_documents(url: str, data: Path, every_s: float) -> list[Put]:
    """One document after the other until it is cancelled; what became of each."""
    done: list[Put] = []
    began_at = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for number, row in enumerate(rows(data, LATER, "corpus")):
                due_at = began_at + number * every_s
                await asyncio.sleep(max(0.0, due_at - time.monotonic()))
                at = time.monotonic()
                text = f"# {row['title']}\n\n{row['text']}\n"
                where = f"{url}/v1/kb/{KB}/documents/put/{number}.md"
                async with session.put(where, data=text.encode()) as answer:
                    await answer.read()
                    done.append(Put(at - began_at, time.monotonic() - at, answer.status))
    except asyncio.CancelledError:
        pass
    return done


async def watch(url: str) -> list[dict[str, float]]:
    """The figures of gates, caches and refusals, each second until it is cancelled."""
    seen: list[dict[str, float]] = []
    began_at = time.monotonic()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            for second in count():
                await asyncio.sleep(max(0.0, began_at + second - time.monotonic()))
                async with session.get(f"{url}/metrics") as answer:
                    seen.append({"at_s": time.monotonic() - began_at, **_told(await answer.text())})
    except asyncio.CancelledError:
        pass
    return seen


def _told(page: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page.splitlines())
    return {name: float(value) for name, _, value in lines if name.startswith(WATCHED)}
