"""Overload in real time and, beside it, on the virtual clock: see README.md.

``pulse`` is the exam of F1.13 at a quarter of its rates, beside a limiter of requests a second,
``full`` the whole of it, in real time before quicker engines;
``ladder`` offers 1 to 10 times what the engine can do; ``prompt`` sends prompts of 2 MB into light
traffic; ``refused`` reads in the gateway's log how long it takes to refuse.
``--part virtual`` predicts (and finds the limiter's rate), ``--part real`` measures,
``--part limiter`` measures the exam behind that limiter; each writes into the scene's JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from figures import (
    between,
    by_kind,
    by_second,
    finishing,
    goodput,
    latency,
    quantile,
    refusals,
    written,
)
from stand import GATEWAY_LOG, KB, EnginePool, Measured, Stand, offered, standing
from traffic import Built, Limited, light, load, mixed, steps
from virtual import predicted

from forebay.app.proof_traffic import write_corpus
from forebay.lab.measure.machine import describe_commit, describe_machine
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.plan import Workload
from forebay.policy.admission import PoolAdmission
from forebay.policy.gate import GateSettings
from forebay.policy.shed import ShedSettings

HERE = Path(__file__).resolve().parent
ADDED_TOKENS = 301
"""What the gateway puts around a question here, measured as the difference of the means."""
CALM, PULSE = 50.0, 200.0
FULL = 4
SPEED = 4.0
"""How much quicker than the pulse needs the double of ``full`` is, in real time."""
CALM_S, PULSE_S, AFTER_S = 25.0, 15.0, 10.0
WARM_S = 12.0
PATIENT = ShedSettings(target_s=5.0, interval_s=5.0, max_wait_s=30.0)
EXAM = (
    EnginePool(name="short", max_input_tokens=5_000, max_output_tokens=1_024),
    EnginePool(
        name="long",
        replicas=2,
        admission=PoolAdmission(gate=GateSettings(shed=PATIENT)),
    ),
)
ONE = (EnginePool(name="engine", profile="a100/8b/fp16/tp1"),)
CAPACITY = 60.0
"""About what that engine answers in time, sent straight on (``knee`` measures it)."""
FACTORS = (1, 2, 3, 5, 10)
STEP_S = 30.0
CALM_RATE = 0.75
REFUSED_FACTORS, REFUSED_S = (5, 10), 15.0
LIGHT_S, PROMPT_S, PROMPTS_EVERY_S, PROMPT_BYTES = 100.0, 10.0, 1.0, 2_000_000


def exam(folder: Path, times: float = 1.0) -> Workload:
    """Calm, pulse, calm; at so many times the rates."""
    parts = ((CALM, CALM_S), (PULSE, PULSE_S), (CALM, AFTER_S))
    return load(folder, steps(*((times * rate, length) for rate, length in parts)), mixed())


def ladder(folder: Path) -> Workload:
    """Once to ten times the capacity, then calm again."""
    calm = CALM_RATE * CAPACITY
    parts = [(factor * CAPACITY, STEP_S) for factor in FACTORS]
    return load(folder, steps((calm, WARM_S), *parts, (calm, STEP_S)), light())


def knee(folder: Path, kinds: Any, pools: Sequence[EnginePool], rates: Sequence[float]) -> float:
    """The most good answers a second that requests sent straight on get, at any rate."""
    best = 0.0
    for rate in rates:
        asked = load(folder, PoissonArrivals(rate=rate, duration_s=60.0), kinds)
        found = predicted(Built(asked, ADDED_TOKENS), pools, 1, admission=False)
        best = max(best, goodput(found.requests, 10.0, 60.0))
    return best


def exam_figures(found: Measured) -> dict[str, Any]:
    """Of one run of the exam."""
    end_s = CALM_S + PULSE_S
    inside = (CALM_S + 1.0, end_s)
    everywhere = between((WARM_S, CALM_S), inside, (end_s, end_s + AFTER_S))
    return {
        "good_per_s": {
            "calm": round(goodput(found.requests, WARM_S, CALM_S), 2),
            "pulse": round(goodput(found.requests, *inside), 2),
            "after": round(goodput(found.requests, end_s + 1.0, end_s + AFTER_S), 2),
        },
        "good_output_tokens_per_s_in_pulse": round(written(found.requests, *inside), 1),
        "light_outside_first_second": latency(found.requests, "light", everywhere),
        "light_in_pulse": latency(found.requests, "light", between(inside)),
        "light_in_whole_pulse": latency(found.requests, "light", between((CALM_S, end_s))),
        "light_good_by_second": by_second(found.requests, "light", int(end_s + AFTER_S)),
        "in_pulse": by_kind(found.requests, between(inside)),
        "all": by_kind(found.requests, everywhere),
        "refusals_in_pulse": refusals(found.requests, between(inside)),
        **_health(found),
    }


def ladder_figures(found: Measured) -> dict[str, Any]:
    """Of one run of the ladder."""
    rows: list[dict[str, Any]] = []
    begins_s = WARM_S
    for factor in FACTORS:
        end_s = begins_s + STEP_S
        rows.append(
            {
                "offered_per_s": factor * CAPACITY,
                # The step's first second still answers what the one before it let in.
                "good_per_s": round(finishing(found.requests, begins_s + 1.0, end_s), 2),
                "light": latency(found.requests, "light", between((begins_s, end_s))),
                **refusals(found.requests, between((begins_s, end_s))),
            }
        )
        begins_s = end_s
    best = max(row["good_per_s"] for row in rows)
    over = [row for row in rows if row["offered_per_s"] > CAPACITY]
    asked = [one for one in found.requests if begins_s + 2.0 <= one.at_s < begins_s + STEP_S]
    return {
        "steps": rows,
        "least_over_peak": round(min(row["good_per_s"] for row in over) / best, 4),
        "first_2_s_after": by_kind(found.requests, between((begins_s, begins_s + 2.0))),
        "later": by_kind(asked, between((begins_s, begins_s + STEP_S))),
        **_health(found),
    }


def _health(found: Measured) -> dict[str, Any]:
    cpu = {name: round(share, 3) for name, share in found.cpu.items()}
    lateness = found.result.generator
    late_ms = None if lateness is None else round(1000 * lateness.lateness.p99_s, 2)
    return {
        "cpu": cpu,
        "sent_late_p99_ms": late_ms,
        "valid": found.valid,
        "why_not": list(found.why_not),
    }


async def real(
    folder: Path,
    workload: Workload,
    pools: Sequence[EnginePool],
    seed: int,
    *,
    admission: bool = True,
) -> Measured:
    """A run with fresh processes, after a second of light load that opens connections."""
    async with standing(folder, pools, admission=admission) as stand:
        found = await offered(stand, workload, seed)
    (folder / "forebay.toml").unlink()
    return found


async def pulse(folder: Path, seed: int, part: str) -> dict[str, Any]:
    """The exam through admission and through a limiter of requests a second."""
    asked = exam(folder)
    if part == "real":
        return exam_figures(await real(folder, asked, EXAM, seed))
    if part == "limiter":
        limited = Limited(asked, _kept("pulse", seed, "virtual")["limited_per_s"])
        return exam_figures(await real(folder, limited, EXAM, seed, admission=False))
    mine = exam_figures(predicted(Built(asked, ADDED_TOKENS), EXAM, seed))
    rate = _equal_limit(asked, mine["light_outside_first_second"]["p99_s"], seed)
    plain = predicted(Built(Limited(asked, rate), ADDED_TOKENS), EXAM, seed, admission=False)
    rates = [70.0, 80.0, 90.0, 100.0, 110.0, 120.0]
    return {
        "straight_on_at_best_per_s": round(knee(folder, mixed(), EXAM, rates), 2),
        "admission": mine,
        "limited_per_s": rate,
        "limiter": exam_figures(plain),
    }


def _equal_limit(asked: Workload, p99_s: float, seed: int) -> float:
    """The highest rate at which the plain limiter's light P99 is no worse."""
    best = CALM / 2
    for rate in range(int(CALM / 2), int(PULSE) + 1, 5):
        found = predicted(Built(Limited(asked, rate), ADDED_TOKENS), EXAM, seed, admission=False)
        figures = exam_figures(found)
        if figures["light_outside_first_second"]["p99_s"] > p99_s:
            break
        best = float(rate)
    return best


async def full(folder: Path, seed: int, part: str) -> dict[str, Any]:
    """The exam at its own rates, 200 and 800 a second, with four times the engines.

    In real time a double of one replica a pool that is as much quicker: two cores carry it, too.
    """
    if part == "limiter":
        return {}
    if part == "real":
        quick = tuple(msgspec.structs.replace(pool, speed=SPEED * FULL) for pool in EXAM)
        return exam_figures(await real(folder, exam(folder, FULL), quick, seed))
    four = tuple(msgspec.structs.replace(pool, replicas=FULL * pool.replicas) for pool in EXAM)
    found = predicted(Built(exam(folder, FULL), ADDED_TOKENS), four, seed)
    rates = [FULL * rate for rate in (75.0, 80.0, 85.0, 90.0, 95.0, 100.0, 110.0)]
    return {
        "straight_on_at_best_per_s": round(knee(folder, mixed(), four, rates), 2),
        "admission": exam_figures(found),
    }


async def climb(folder: Path, seed: int, part: str) -> dict[str, Any]:
    """Once to ten times the capacity."""
    asked = ladder(folder)
    if part == "real":
        return ladder_figures(await real(folder, asked, ONE, seed))
    rates = [50.0, 55.0, 60.0, 65.0, 70.0]
    return {
        "straight_on_at_best_per_s": round(knee(folder, light(), ONE, rates), 2),
        **ladder_figures(predicted(Built(asked, ADDED_TOKENS), ONE, seed)),
    }


async def prompt(folder: Path, seed: int, part: str) -> dict[str, Any]:
    """Light calls alone, then with a prompt of 2 MB each second; nothing to predict."""
    if part != "real":
        return {}
    pools = (EnginePool(name="engine"),)
    alike = mixed()[:1]  # all of one length: that of the longest would hide what moves
    asked = load(folder, PoissonArrivals(rate=LIGHT_S, duration_s=PROMPT_S), alike)
    async with standing(folder, pools) as stand:
        await offered(stand, asked, seed + 100)
        alone = await offered(stand, asked, seed)
        async with asyncio.TaskGroup() as group:
            big = group.create_task(_prompts(stand, int(PROMPT_S) - 1))
            looks = group.create_task(_looks(stand, PROMPT_S - 1.0))
            beside = await offered(stand, asked, seed)
    (folder / "forebay.toml").unlink()
    window = between((1.0, PROMPT_S))
    before, after = (latency(one.requests, "light", window) for one in (alone, beside))
    return {
        "alone": {**before, **_health(alone)},
        "beside": {**after, **_health(beside)},
        "p99_moved_ms": round(1000 * (after["p99_s"] - before["p99_s"]), 1),
        "p50_moved_ms": round(1000 * (after["p50_s"] - before["p50_s"]), 1),
        "prompts": big.result(),
        "healthz_ms": looks.result(),
    }


async def _prompts(stand: Stand, count: int) -> dict[str, Any]:
    body = msgspec.json.encode(
        {
            "model": f"forebay/{KB}",
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "x" * PROMPT_BYTES}],
        }
    )
    statuses, took = [], []
    async with aiohttp.ClientSession() as session:
        for _ in range(count):
            began_at = time.perf_counter()
            async with session.post(
                f"{stand.url}/v1/chat/completions",
                data=body,
                headers={"content-type": "application/json"},
            ) as answer:
                await answer.read()
                statuses.append(answer.status)
            took.append(time.perf_counter() - began_at)
            await asyncio.sleep(max(0.0, PROMPTS_EVERY_S - took[-1]))
    return {"statuses": statuses, "p50_s": quantile(took, 0.5), "max_s": max(took)}


async def _looks(stand: Stand, seconds: float) -> dict[str, float]:
    took = []
    until = time.perf_counter() + seconds
    async with aiohttp.ClientSession() as session:
        while time.perf_counter() < until:
            began_at = time.perf_counter()
            async with session.get(f"{stand.url}/healthz") as answer:
                await answer.read()
            took.append(1000 * (time.perf_counter() - began_at))
            await asyncio.sleep(0.02)
    return {"looks": len(took), "p50": quantile(took, 0.5), "max": max(took)}


async def refused(folder: Path, seed: int, part: str) -> dict[str, Any]:
    """How long the gateway takes to refuse, by its own log; nothing to predict."""
    if part != "real":
        return {}
    calm = CALM_RATE * CAPACITY
    over = [(factor * CAPACITY, REFUSED_S) for factor in REFUSED_FACTORS]
    asked = load(folder, steps((calm, WARM_S), *over), light())
    async with standing(folder, ONE, log=True) as stand:
        found = await offered(stand, asked, seed)
    (folder / "forebay.toml").unlink()
    took = [1000 * each for each in _refusals_logged(folder / GATEWAY_LOG)]
    over_s = (WARM_S, WARM_S + len(over) * REFUSED_S)
    return {
        "by_the_gateway_ms": {
            "refused": len(took),
            "p50": round(quantile(took, 0.5), 3),
            "p99": round(quantile(took, 0.99), 3),
            "over_5": sum(each > 5.0 for each in took),
        },
        "by_the_client": refusals(found.requests, between(over_s)),
        **_health(found),
    }


def _refusals_logged(log: Path) -> Iterator[float]:
    """Seconds of each request that the gateway refused."""
    for line in log.read_bytes().splitlines():
        said = json.loads(line) if line.startswith(b"{") else {}
        if said.get("status") in {429, 503}:
            yield said["duration_ms"] / 1000


SCENES = {"pulse": pulse, "full": full, "ladder": climb, "prompt": prompt, "refused": refused}


def _stored(scene: str) -> dict[str, Any]:
    path = HERE / f"{scene}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _kept(scene: str, seed: int, part: str) -> dict[str, Any]:
    """What an earlier call wrote."""
    found: dict[str, Any] = _stored(scene)["runs"][str(seed)][part]
    return found


def _keep(scene: str, seed: int, part: str, found: dict[str, Any]) -> None:
    kept = _stored(scene)
    about = {"machine": describe_machine(), "commit": describe_commit()}
    kept.setdefault("runs", {}).setdefault(str(seed), {})[part] = {**about, **found}
    data = msgspec.json.format(msgspec.json.encode(kept), indent=2)
    (HERE / f"{scene}.json").write_bytes(data + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", choices=SCENES, nargs="+")
    parser.add_argument("--part", choices=("virtual", "real", "limiter"), default="virtual")
    parser.add_argument("--seeds", default="1,2,3")
    asked = parser.parse_args()
    for scene in asked.scenes:
        for seed in map(int, asked.seeds.split(",")):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                write_corpus(folder)
                found = uvloop.run(SCENES[scene](folder, seed, asked.part))
            _keep(scene, seed, asked.part, found)
            print(scene, seed, asked.part, json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
