"""CPU time of a cold question: 2,380 different ones, each asked once, over 1,480 passages.

    python benchmarks/request/cold.py --data ../shared/data [--set retrieval.x=y] [--tree PATH] ...

XQuAD's questions (English and Chinese) to the paragraphs of XQuAD in both languages and of DRCD,
one document each. The store is built once, in ``--cache``; each run serves a copy of it. The server
is a process of its own with its defaults and its figure its own processor time (user and system,
all its threads) between the first question and the last answer, less what it takes while idle. The
client is this process. ``--case NAME=SETTING,SETTING`` names a server; cases run by turns,
``--rounds`` times. A case whose first setting is ``tree:PATH`` runs the code of another checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from measure import ENV, FOREBAY, ROOT, free_port, process, wait_for

CORPORA = ("xquad_en", "xquad_zh", "drcd_dev")
ASKED = ("xquad_en", "xquad_zh")
IDLE_S = 4.0


def lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def store(data: Path, cache: Path) -> Path:
    """A store with all passages, their vectors and those of their sentences; made once."""
    folder = cache / "cold-questions"
    if (folder / "built").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for name in CORPORA:
        for row in lines(data / "retrieval" / name / "corpus.jsonl"):
            title = row.get("title", "").replace("_", " ")
            (texts / f"{name}-{row['_id']}.md").write_text(f"# {title}\n\n{row['text']}\n", "utf-8")
    subprocess.run(
        [*FOREBAY, "ingest", str(texts), "--kb=kb", f"--store={folder}/store", "--wait-embedded"],
        check=True,
        env=ENV,
        stdout=subprocess.DEVNULL,
    )
    port = free_port()
    with process(
        [*FOREBAY, "serve", "--store", str(folder / "store"), "--port", str(port)],
        folder / "log",
        stdout=subprocess.DEVNULL,
    ) as server:
        wait_for(f"http://127.0.0.1:{port}/readyz", server)
        asyncio.run(settled(port, 1800.0))
    (folder / "built").write_text("")
    return folder


async def settled(port: int, within_s: float) -> None:
    """Until every chunk's sentences have vectors."""
    until = time.monotonic() + within_s
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < until:
            async with session.get(f"http://127.0.0.1:{port}/v1/kb/kb") as answer:
                told = await answer.json()
            made = told.get("sentences")
            if made is None or made["kept"] == made["chunks"]:
                return
            await asyncio.sleep(0.5)
    raise TimeoutError("sentences have no vectors yet")


def used_s(server: psutil.Process) -> float:
    """Processor time of a process so far."""
    times = server.cpu_times()
    return float(times.user + times.system)


async def ask(
    port: int, texts: list[str], rate: float, seed: int, server: psutil.Process
) -> dict[str, Any]:
    """Ask each text once, at seeded Poisson times that wait for no answer."""
    chance = random.Random(seed)
    chance.shuffle(texts)
    rungs: Counter[str] = Counter()
    took: list[float] = []
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    loop = asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(text: str, due: float) -> None:
            body = {"model": "forebay/kb", "messages": [{"role": "user", "content": text}]}
            async with session.post(url, json=body) as answer:
                await answer.read()
                rung = answer.headers.get("x-forebay-rung", "")
                degraded = answer.headers.get("x-forebay-degraded", "")
                rungs[f"{answer.status} {rung} {degraded}".strip()] += 1
                took.append(loop.time() - due)

        # What is loaded by the first questions is no question's cost.
        for text in ("What is this about?", "这些资料讲什么？", "Who wrote it, and when?"):
            await one(text, loop.time())
        rungs.clear(), took.clear()
        before = used_s(server)
        await asyncio.sleep(IDLE_S)
        idle = (used_s(server) - before) / IDLE_S
        before, began = used_s(server), loop.time()
        due = began
        async with asyncio.TaskGroup() as group:
            for text in texts:
                due += chance.expovariate(rate)
                await asyncio.sleep(max(0.0, due - loop.time()))
                group.create_task(one(text, due))
        seconds = loop.time() - began
        cpu_s = used_s(server) - before
    took.sort()
    return {
        "questions": len(texts),
        "seconds": round(seconds, 1),
        "cpu_ms": round(1e3 * cpu_s / len(texts), 2),
        "cpu_ms_less_idle": round(1e3 * (cpu_s - idle * seconds) / len(texts), 2),
        "p50_ms": round(1e3 * took[len(took) // 2], 1),
        "p99_ms": round(1e3 * took[int(0.99 * len(took))], 1),
        "answers": dict(rungs.most_common()),
        "load": round(os.getloadavg()[0], 1),
    }


def served(options: argparse.Namespace, built: Path, settings: list[str], seed: int) -> Any:
    """One run of one case."""
    tree = next((one[5:] for one in settings if one.startswith("tree:")), str(ROOT))
    flags = [part for one in settings if not one.startswith("tree:") for part in ("--set", one)]
    texts = [
        row["text"]
        for name in ASKED
        for row in lines(options.data / "retrieval" / name / "queries.jsonl")
    ][:: options.every]
    with tempfile.TemporaryDirectory(prefix="forebay-cold-") as folder:
        shutil.copytree(built / "store", Path(folder) / "store")
        port = free_port()
        command = [*FOREBAY, "serve", "--store", f"{folder}/store", "--port", str(port), *flags]
        ENV["PYTHONPATH"] = f"{tree}/src"
        with process(command, Path(folder) / "log", stdout=subprocess.DEVNULL) as server:
            wait_for(f"http://127.0.0.1:{port}/readyz", server, 120)
            time.sleep(options.settle)
            return asyncio.run(ask(port, texts, options.rate, seed, psutil.Process(server.pid)))


def main() -> None:
    """Run all cases by turns and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--case", action="append", help="NAME=SETTING,SETTING")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--every", type=int, default=1, help="one question in so many")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds before questions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    built = store(options.data, options.cache)
    cases = dict(one.partition("=")[::2] for one in options.case or ["defaults="])
    runs: dict[str, list[Any]] = {name: [] for name in cases}
    for number in range(options.rounds):
        for name, text in cases.items():
            settings = [one for one in text.split(",") if one]
            runs[name].append(served(options, built, settings, options.seed + number))
            print(json.dumps({name: runs[name][-1]}), flush=True)
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, cwd=ROOT, check=False
    )
    result = {
        "commit": told.stdout.decode().strip(),
        "cores": os.cpu_count(),
        "rate": options.rate,
        "seed": options.seed,
        "median_cpu_ms": {n: median(r["cpu_ms_less_idle"] for r in one) for n, one in runs.items()},
        "runs": runs,
    }
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    if options.out:
        options.out.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
