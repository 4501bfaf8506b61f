"""Light requests beside heavy ones of three shapes, in real time, through a server with defaults.

``python benchmarks/mixes/run.py`` asks every row and writes ``result.json``; ``--row NAME`` some
of them, ``--scale 0.25`` on a machine that is too slow for 200 requests a second: rates, the
engine's sequences, prefill and cache are then so much smaller, at the same latencies.
``--straight`` switches admission off, for what sending straight on achieves.
``--check`` writes nothing and fails where a promise does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import psutil
import uvloop
from engine import KV_TOKENS, MAX_SEQUENCES, PREFILL_PER_S, SEQUENCE_S, STEP_S
from traffic import HANDBOOK, HEAVY, LIGHT, RATE_PER_S, ROWS, Row, calm, workload, write_questions

from forebay.app.children import Child, running
from forebay.gateway.server import bind
from forebay.kernel.clock import SystemClock
from forebay.lab.bench.desk import Books
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.offer import offer
from forebay.lab.bench.options import BenchOptions, Target
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.machine import describe_commit, describe_machine
from forebay.lab.measure.recorder import Recorder
from forebay.lab.measure.result import OK, REFUSED, Generator
from forebay.lab.workload.plan import Workload

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KB = "handbook"
LOOPBACK = "127.0.0.1"
POLL_S, START_S = 0.2, 120.0
SECOND = 3
"""Every second counts from this one on."""
LEAST_OF_ALONE, LEAST_A_SECOND = 0.97, 0.9
FEWEST = 10
"""A second with fewer light requests says nothing of shares."""
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


class Kept(Recorder):
    """Keeps every request as it ended, and what failed ones were told."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Finished] = []
        self.told: dict[str, Counter[str]] = {}

    def record(self, finished: Finished) -> None:
        """Keep and count."""
        self.all.append(finished)
        super().record(finished)

    def note(self, status: str, message: str) -> None:
        """Count it, without its numbers, for the kind that was recorded last."""
        reasons = self.told.setdefault(self.all[-1].kind, Counter())
        reasons[f"{status}: {_NUMBER.sub('N', message)}"] += 1
        super().note(status, message)


class Measured(NamedTuple):
    """A row as it went; CPU in shares of one core."""

    kept: Kept
    health: Generator
    cpu: dict[str, float]


def configuration(engine_url: str, port: int, row: Row, *, straight: bool) -> str:
    """The server's ``forebay.toml``: one pool, and else its defaults."""
    straight_on = "[admission]\nenabled = false\n" if straight else ""
    window = f"[context]\nwindow_tokens = {row.window_tokens}\n" if row.window_tokens else ""
    return f"""
[server]
host = "{LOOPBACK}"
port = {port}
[store]
path = "store"
[knowledge.{KB}]
paths = ["{HANDBOOK}"]
{window}[generation]
backend = "openai"
[[generation.pools]]
name = "engine"
base_urls = ["{engine_url}/v1"]
model = "sim"
max_input_tokens = 16384
max_output_tokens = 1024
[telemetry]
access_log = false
{straight_on}"""


@asynccontextmanager
async def engine(scale: float, log: Path) -> AsyncIterator[tuple[str, int]]:
    """The double's address and process number while the block runs."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "engine.py"),
            "--scale",
            f"{scale:g}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            told = json.loads(await process.stdout.readline())
        yield told["replicas"][0], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(15):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def measured(row: Row, asked: argparse.Namespace) -> Measured:
    """One row against a fresh engine and a fresh, warm server."""
    scale, seconds, seed = asked.scale, asked.seconds, asked.seed
    with tempfile.TemporaryDirectory(prefix="forebay-mixes-") as name:
        folder = Path(name)
        write_questions(folder)
        async with AsyncExitStack() as stack:
            engine_url, engine_pid = await stack.enter_async_context(
                engine(scale, folder / "engine.log")
            )
            with bind(LOOPBACK, 0) as probe:
                port = probe.getsockname()[1]
            text = configuration(engine_url, port, row, straight=asked.straight)
            (folder / "forebay.toml").write_text(text, encoding="utf-8")
            server = await stack.enter_async_context(running("server", ["serve"], folder))
            url = f"http://{LOOPBACK}:{port}"
            await _warm(server, url, folder, row)
            await offered(url, calm(folder, scale), seed + 1)
            processes = {"engine": psutil.Process(engine_pid)}
            before = {"server": server.cpu_s(), "engine": _cpu_s(processes["engine"])}
            clock = SystemClock()
            began_at = clock.now()
            kept, health = await offered(url, workload(folder, row, scale, seconds), seed)
            passed_s = clock.now() - began_at
            server.check()
            after = {"server": server.cpu_s(), "engine": _cpu_s(processes["engine"])}
            cpu = {which: (after[which] - before[which]) / passed_s for which in after}
    return Measured(kept, health, {**cpu, "generator": health.cpu_share})


async def _warm(server: Child, url: str, folder: Path, row: Row) -> None:
    """Until the handbook is embedded, and what the row asks has been looked up once."""
    clock = SystemClock()
    until = clock.now() + START_S
    files = [folder / f"{LIGHT}.jsonl", *([folder / f"{row.name}.jsonl"] if row.heavy else [])]
    texts = [json.loads(line)["question"] for file in files for line in file.open(encoding="utf-8")]
    async with aiohttp.ClientSession(url) as session:
        while not await _embedded(session):
            server.check()
            if clock.now() > until:
                raise SystemExit(f"the handbook was not embedded within {START_S:g} s")
            await asyncio.sleep(POLL_S)
        for text in texts:
            body = {"model": f"forebay/{KB}", "query": text}
            async with session.post("/v1/search", json=body) as answer:
                if answer.status != 200:
                    raise SystemExit(f"a search gave {answer.status}: {await answer.text()}")


async def _embedded(session: aiohttp.ClientSession) -> bool:
    """Whether the server is ready, and chunks and their sentences have vectors."""
    try:
        async with session.get("/readyz") as answer:
            if answer.status != 200:
                return False
        async with session.get(f"/v1/kb/{KB}") as answer:
            told = await answer.json()
    except aiohttp.ClientError:
        return False
    sentences = told.get("sentences")
    whole = sentences is None or sentences["kept"] == sentences["chunks"]
    return bool(told.get("chunks")) and told.get("embedded_share") == 1 and whole


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def offered(url: str, load: Workload, seed: int) -> tuple[Kept, Generator]:
    """The workload, open loop and streamed."""
    target = Target(base_url=url, model=f"forebay/{KB}")
    options = BenchOptions(target=target, workload=load, seed=seed)
    clock = SystemClock()
    kept = Kept()
    books = Books(kept, Health(clock), Live())
    await offer(options, books, clock)
    return kept, books.health.verdict(options.bounds)


def good(one: Finished) -> bool:
    """Answered whole within its deadline, counted from the intended start."""
    took_s = one.finished_at_s - one.at_s
    return one.status == OK and one.deadline_s is not None and took_s <= one.deadline_s


def by_second(requests: Sequence[Finished], seconds: float) -> list[dict[str, float]]:
    """Sent and good of each second, by intended start."""
    found = []
    for second in range(int(seconds)):
        these = [one for one in requests if second <= one.at_s < second + 1]
        found.append({"sent": len(these), "good": sum(map(good, these))})
    return found


def figures(one: Measured, seconds: float) -> dict[str, Any]:
    """A row's figures and raw seconds."""
    found: dict[str, Any] = {"cpu": {which: round(at, 2) for which, at in one.cpu.items()}}
    found["generator"] = {"valid": one.health.valid, "why_not": one.health.why_not}
    for kind in (LIGHT, HEAVY):
        these = [each for each in one.kept.all if each.kind == kind]
        if not these:
            continue
        took = sorted(each.finished_at_s - each.at_s for each in these if each.status == OK)
        refused = sorted(each.finished_at_s - each.at_s for each in these if each.status == REFUSED)
        seen = by_second(these, seconds)
        counted = [
            each["good"] / each["sent"] for each in seen[SECOND - 1 :] if each["sent"] >= FEWEST
        ]
        found[kind] = {
            "sent": len(these),
            "good": sum(map(good, these)),
            "good_share": round(sum(map(good, these)) / len(these), 4),
            "worst_second": round(min(counted), 3) if counted else None,
            "total_p50_s": _at(took, 0.5),
            "total_p99_s": _at(took, 0.99),
            "refused_after_p50_ms": _at(refused, 0.5, 1000),
            "refused_after_p99_ms": _at(refused, 0.99, 1000),
            "statuses": dict(Counter(each.status for each in these)),
            "told": dict(one.kept.told.get(kind, Counter()).most_common()),
            "output_tokens_mean": round(
                sum(each.output_tokens for each in these if good(each))
                / max(1, sum(map(good, these)))
            ),
            "by_second": seen,
        }
    return found


def _at(values: Sequence[float], share: float, unit: float = 1.0) -> float | None:
    if not values:
        return None
    return round(unit * values[min(len(values) - 1, int(share * len(values)))], 3)


def tell(name: str, found: dict[str, Any]) -> None:
    """A row for people."""
    cpu = ", ".join(f"{which} {share:.0%}" for which, share in found["cpu"].items())
    why = "; ".join(found["generator"]["why_not"])
    print(f"\n{name} ({cpu}){' NOT VALID: ' + why if why else ''}")
    for kind in (LIGHT, HEAVY):
        if kind not in found:
            continue
        one = found[kind]
        print(
            f"  {kind}: {one['good']} of {one['sent']} good ({one['good_share']:.1%}), worst "
            f"second {one['worst_second']}, P50 {one['total_p50_s']} s, P99 {one['total_p99_s']} s"
        )
        shares = " ".join(
            f"{each['good'] / each['sent']:.2f}" if each["sent"] else "-"
            for each in one["by_second"]
        )
        print(f"    by second: {shares}")
        for reason, count in one["told"].items():
            print(f"    {count} x {reason[:140]}")
        if one["refused_after_p99_ms"] is not None:
            print(
                f"    refused after {one['refused_after_p50_ms']} ms (P50), "
                f"{one['refused_after_p99_ms']} ms (P99)"
            )


def broken(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The promises that do not hold: light ones as if alone, in every second."""
    alone = rows.get("alone", {}).get(LIGHT, {}).get("good_share", 1.0)
    found = []
    for name, row in rows.items():
        light = row[LIGHT]
        if light["good_share"] < LEAST_OF_ALONE * alone:
            found.append(f"{name}: {light['good_share']:.1%} of the light ones, {alone:.1%} alone")
        worst = light["worst_second"]
        if worst is not None and worst < LEAST_A_SECOND:
            found.append(f"{name}: {worst:.0%} of the light ones in the worst second")
    return found


def main() -> int:
    """Measure, tell, keep; 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--straight", action="store_true", help="without admission")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    rows = {}
    for row in ROWS:
        if asked.row and row.name not in asked.row:
            continue
        one = uvloop.run(measured(row, asked))
        rows[row.name] = figures(one, asked.seconds)
        tell(row.name, rows[row.name])
    faults = broken(rows)
    print("\n" + ("; ".join(faults) or "every promise holds"))
    if not asked.check:
        kept = {
            "scale": asked.scale,
            "admission": not asked.straight,
            "rate_per_s": RATE_PER_S * asked.scale,
            "seconds": asked.seconds,
            "seed": asked.seed,
            "engine": {
                "step_s": STEP_S,
                "sequence_s": SEQUENCE_S / asked.scale,
                "prefill_per_s": PREFILL_PER_S * asked.scale,
                "kv_tokens": int(KV_TOKENS * asked.scale),
                "max_num_seqs": round(MAX_SEQUENCES * asked.scale),
            },
            "machine": describe_machine(),
            "load_average": os.getloadavg(),
            "commit": describe_commit(),
            "rows": rows,
            "faults": faults,
        }
        data = msgspec.json.format(msgspec.json.encode(kept), indent=1)
        out = asked.out or HERE / ("straight.json" if asked.straight else "result.json")
        out.write_bytes(data + b"\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
