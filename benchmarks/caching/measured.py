"""One workload against a server: latency, hit rates beside the ideal, CPU by thread and stage."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from asked import Asked
from figures import quantile
from server import Stand, model, page
from stand import Kept

from forebay.kernel.clock import SystemClock
from forebay.lab.bench.desk import Books
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.offer import LEAD_S, offer
from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Target
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import OK, REFUSED

_STAGE = re.compile(r'^forebay_stage_seconds_(sum|count)\{stage="([^"]+)"\} (\S+)', re.MULTILINE)
_TIER = re.compile(r'^forebay_cache_(bytes|entries)\{tier="([^"]+)"\} (\S+)', re.MULTILINE)
_EVENT = re.compile(
    r'^forebay_cache_events_total\{event="([^"]+)",tier="([^"]+)"\} (\S+)', re.MULTILINE
)
_DIGITS = re.compile(r"\d[\d.]*|req-[0-9a-f]+")
SHOWN_PARTS = 16
SHOWN_CHARACTERS = 300


async def measured(stand: Stand, asked: Asked, seed: int) -> dict[str, Any]:
    """Offer the load once and tell what each of its stretches was like."""
    options = BenchOptions(
        target=Target(base_url=stand.url, model=model()),
        workload=asked.workload,
        seed=seed,
        bounds=GeneratorBounds(max_connections=8_192),
    )
    clock = SystemClock()
    recorder = Kept(RecorderOptions(batch_rows=1_024))
    books = Books(recorder, Health(clock), Live())
    looks: list[dict[str, Any]] = []
    began_at = time.monotonic() + LEAD_S
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(_looks(stand, asked, began_at, looks))
        await offer(options, books, clock)
        await looking
    health = books.health.verdict(options.bounds)
    lines = [json.loads(line) for line in stand.watch.read_text().splitlines()]
    ideal = asked.ideal(seed)
    spans = {}
    for number, (name, (first, end)) in enumerate(asked.within().items()):
        chosen = [one for one in recorder.all if first <= one.at_s < end]
        spans[name] = {
            "rate": asked.spans[number].rate,
            **_latency(chosen, end - first),
            "ideal": ideal[name],
            "spared": _spared(chosen),
            **_cpu(lines, began_at + first, began_at + end, len(chosen)),
            **_between(looks[number], looks[number + 1]),
        }
    return {
        "spans": spans,
        "tiers": looks[-1]["tiers"],
        "events": looks[-1]["events"],
        "server_log": _told(stand.watch.with_name("server.log")),
        "generator": {
            "valid": health.valid,
            "why_not": list(health.why_not),
            "cpu_share": round(health.cpu_share, 3),
        },
    }


def _told(log: Path) -> dict[str, int]:
    """What the server's log tells, numbers taken out, and how often; errors by what was raised."""
    found = Counter[str]()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            # What is no record of the log is a fault handler's or the interpreter's own word.
            found[line[:SHOWN_CHARACTERS]] += 1
            continue
        raised = said.get("exception", "").strip().rsplit("\n", 1)[-1]
        words = f"{said['level']} {said['logger']}: {raised or said['message']}"
        found[_DIGITS.sub("#", words)[:SHOWN_CHARACTERS]] += 1
    return dict(found.most_common(SHOWN_PARTS))


def _latency(chosen: Sequence[Finished], seconds: float) -> dict[str, Any]:
    """From each request's intended start, as its user sees it."""
    light = [one for one in chosen if one.kind == "light"]
    ttft = sorted(
        one.first_at_s - one.at_s
        for one in light
        if one.status == OK and one.first_at_s is not None
    )
    status = Counter(one.status for one in chosen)
    codes = Counter(one.code for one in chosen if one.status not in (OK, REFUSED))
    return {
        "asked": len(chosen),
        "asked_per_s": round(len(chosen) / seconds, 1),
        "status": dict(status),
        "codes": {str(code): count for code, count in sorted(codes.items())},
        "light_ttft_ms": {
            f"p{share * 100:g}": round(quantile(ttft, share) * 1000, 1)
            for share in (0.5, 0.95, 0.99)
        },
        "rungs": dict(Counter(one.rung for one in chosen if one.status == OK)),
    }


def _spared(chosen: Sequence[Finished]) -> dict[str, float]:
    """Shares of the answered requests that needed no work of a kind."""
    answered = [one for one in chosen if one.status == OK]
    light = [one for one in answered if one.kind == "light"]
    if not light:
        return {}

    def share(of: Sequence[Finished], *words: str) -> float:
        return round(sum(any(word in one.cache for word in words) for one in of) / len(of), 4)

    return {
        "retrieval": share(answered, "retrieval=hit", "answer=hit"),
        "answer_of_light": share(light, "answer=hit"),
        "retrieval_missed": share(answered, "retrieval=miss"),
        "embedding_missed": share(answered, "embedding=miss"),
    }


def _cpu(lines: Sequence[dict[str, Any]], first: float, end: float, asked: int) -> dict[str, Any]:
    """CPU of the server by thread, and where its loop was found, a request."""
    inside = [line for line in lines if first <= line["at"] <= end]
    if len(inside) < 2 or not asked:
        return {}
    before, after = inside[0], inside[-1]
    passed = after["at"] - before["at"]
    requests = asked * passed / (end - first)
    used = after["process_s"] - before["process_s"]
    threads = {
        name: round((after["threads_s"][name] - before["threads_s"].get(name, 0.0)) / passed, 3)
        for name in after["threads_s"]
    }
    found = Counter(after["loop"])
    found.subtract(before["loop"])
    total = max(1, sum(found.values()))
    return {
        "server_cpu_ms_a_request": round(used / requests * 1000, 3),
        "server_cores": round(used / passed, 3),
        "server_threads_cores": {name: share for name, share in threads.items() if share >= 0.002},
        "loop_found_in": {
            name: round(count / total, 3) for name, count in found.most_common(SHOWN_PARTS)
        },
        "server_resident_mb": round(after["resident"] / 1e6),
    }


async def _looks(stand: Stand, asked: Asked, began_at: float, looks: list[dict[str, Any]]) -> None:
    """The server's own figures and the engines' CPU at the borders of the stretches.

    A server that is asked more than it can do answers late: what it counts is then told of a
    stretch that ends later, with the time at which it did.
    """
    looks.append(await asyncio.to_thread(_look, stand, began_at))
    for _, end in asked.within().values():
        await asyncio.sleep(max(0.0, began_at + end - time.monotonic()))
        looks.append(await asyncio.to_thread(_look, stand, began_at))


def _look(stand: Stand, began_at: float) -> dict[str, Any]:
    _, text = page(stand.port, "/metrics")
    stages: dict[str, dict[str, float]] = {}
    for what, stage, value in _STAGE.findall(text):
        stages.setdefault(stage, {})[what] = float(value)
    tiers: dict[str, dict[str, float]] = {}
    for what, tier, value in _TIER.findall(text):
        tiers.setdefault(tier, {})[what] = float(value)
    events = {f"{tier}.{event}": float(value) for event, tier, value in _EVENT.findall(text)}
    events = {name: value for name, value in events.items() if value}
    engines = sum(child.cpu_s() for child in stand.engines)
    generator = time.process_time()
    others = sum(_cpu_s(child) for child in stand.server.children(recursive=True))
    return {
        "at_s": time.monotonic() - began_at,
        "stages": stages,
        "tiers": tiers,
        "events": events,
        "cpu": (engines, generator, others),
    }


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process so far; none when it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Stages by the server's own record (time on the clock, not CPU), the other processes' CPU."""
    stages = {}
    seconds = after["at_s"] - before["at_s"]
    for name, now in after["stages"].items():
        was = before["stages"].get(name, {"sum": 0.0, "count": 0.0})
        count = now["count"] - was["count"]
        if count:
            mean_ms = (now["sum"] - was["sum"]) / count * 1000
            stages[name] = {"count": int(count), "mean_ms": round(mean_ms, 2)}
    engines, generator, others = (
        round((now - was) / seconds, 3)
        for was, now in zip(before["cpu"], after["cpu"], strict=True)
    )
    return {
        "looked_at_s": round(after["at_s"], 1),
        "stages": stages,
        "engines_cores": engines,
        "generator_cores": generator,
        "other_workers_cores": others,
    }


def request_file(path: Path, kb: str, question: str, *, stream: bool) -> Path:
    """One chat request as bytes on the wire."""
    body: dict[str, Any] = {
        "model": f"forebay/{kb}",
        "messages": [{"role": "user", "content": question}],
    }
    if stream:
        body["stream"] = True
    data = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    path.write_bytes(head.encode() + data)
    return path
