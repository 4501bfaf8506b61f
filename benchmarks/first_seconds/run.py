"""The first seconds of a load, and a knowledge base that changes beside one: see README.md.

    python benchmarks/first_seconds/run.py cold pulse embedding writes --seeds 1 2 3

Each run prints its figures and is kept in ``result.json`` under ``--label``. To compare two states
of the code, run each with its own ``PYTHONPATH``, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overload"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import between, good, latency, quantile
from served import LATER, Put, load, put_documents, standing, stored, watch, write_documents
from stand import Measured, Stand, offered

from benchmarks.__main__ import folders
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.machine import describe_commit, describe_machine
from forebay.lab.measure.result import OK, REFUSED

HERE = Path(__file__).resolve().parent
Steps = tuple[tuple[float, float], ...]
PUT_FROM_S = 10.0
NOW = "now"
"""The label of this checkout's own code."""
WRITES = 0.6
"""Of the rate: what is asked beside documents that are put."""


class Scene(NamedTuple):
    """What is offered, rates and seconds, and which stretch is judged by which later one."""

    steps: Steps
    judged: tuple[float, float]
    later: tuple[float, float]


def scenes(rate: float) -> dict[str, Scene]:
    """All of them; ``rate`` is that of a cold start, and of the calm before a pulse."""
    calm, pulse = rate, 4 * rate
    return {
        "cold": Scene(((rate, 24.0),), (0.0, 12.0), (14.0, 24.0)),
        "pulse": Scene(((calm, 12.0), (pulse, 15.0), (calm, 6.0)), (12.0, 22.0), (22.0, 27.0)),
        "embedding": Scene(((rate, 24.0),), (0.0, 12.0), (14.0, 24.0)),
        "writes": Scene(((WRITES * rate, 50.0),), (PUT_FROM_S, 50.0), (4.0, PUT_FROM_S)),
    }


def by_second(requests: Sequence[Finished], seconds: int) -> list[dict[str, float]]:
    """What became of what was asked in each second."""
    rows: list[Counter[str]] = [Counter() for _ in range(seconds)]
    for one in requests:
        if one.at_s < seconds:
            row = rows[int(one.at_s)]
            row["asked"] += 1
            row["good"] += good(one)
            row["refused"] += one.status == REFUSED
            row["failed"] += one.status not in (OK, REFUSED)
    return [dict(row) for row in rows]


def figures(scene: Scene, found: Measured, puts: Sequence[Put]) -> dict[str, Any]:
    """Of one run."""
    requests, seconds = found.requests, int(sum(length for _, length in scene.steps))
    rows = by_second(requests, seconds)
    shares = [row["good"] / max(1, row["asked"]) for row in rows]
    first, end = (int(at) for at in scene.later)
    later = sum(shares[first:end]) / (end - first)
    judged = [share / later if later else 0.0 for share in shares[int(scene.judged[0]) :]]
    judged = judged[: int(scene.judged[1] - scene.judged[0])]
    inside = [one for one in requests if scene.judged[0] <= one.at_s < scene.judged[1]]
    return {
        "later_good_share": round(later, 4),
        "first_seconds_of_later": [round(share, 3) for share in judged[:12]],
        "refused_share": round(sum(one.status == REFUSED for one in inside) / len(inside), 5),
        "statuses": dict(Counter(f"{one.status} {one.code or ''}" for one in inside)),
        "judged": latency(requests, "light", between(scene.judged)),
        "later": latency(requests, "light", between(scene.later)),
        "asked_by_second": [row["asked"] for row in rows],
        "good_by_second": [row["good"] for row in rows],
        "puts": len(puts),
        "put_p50_ms": round(1000 * quantile([put.took_s for put in puts], 0.5), 1),
        "put_wrong": sum(put.status >= 300 for put in puts),
        "cpu": {name: round(share, 2) for name, share in found.cpu.items()},
        "valid": found.valid,
        "why_not": list(found.why_not),
    }


async def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One scene from a fresh copy of the store."""
    scene = scenes(options.rate)[name]
    source = await stored(options.data, options.cache)
    with tempfile.TemporaryDirectory(prefix="forebay-first-", dir=options.work) as path:
        folder = Path(path)
        shutil.copytree(source / "store", folder / "store")
        paths = ""
        if name == "embedding":
            write_documents(folder / "later", options.data, (LATER,), options.documents)
            paths = '"later"'
        workload = load(folder, options.data, scene.steps)
        async with standing(folder, paths=paths) as stand:
            puts = asyncio.create_task(_puts(name, stand, options))
            seen = asyncio.create_task(watch(stand.url))
            found = await offered(stand, workload, seed)
            puts.cancel()
            seen.cancel()
            said = figures(scene, found, await puts)
            said["watched"] = _changes(await seen)
            if options.keep is not None:
                shutil.copy(folder / "gateway.log", options.keep)
    return said


def _changes(seen: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """What was told each second: counts as what they grew by, and levels as they are."""
    rows = []
    for before, now in zip([{}, *seen], seen, strict=False):
        row = {}
        for name, value in now.items():
            counted = "_total" in name
            grown = value - before.get(name, 0.0) if counted else value
            if grown:
                row[name.removeprefix("forebay_").replace("_total", "")] = round(grown, 1)
        rows.append(row)
    return rows


async def _puts(name: str, stand: Stand, options: argparse.Namespace) -> list[Put]:
    if name != "writes":
        return []
    try:
        await asyncio.sleep(PUT_FROM_S)
    except asyncio.CancelledError:
        return []
    return await put_documents(stand.url, options.data, options.every)


def main() -> None:
    """Run the scenes that are asked for and keep the results."""
    data, _ = folders()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="+", choices=list(scenes(1.0)))
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--work", type=Path, help="where folders of the runs lie")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--documents", type=int, default=800, help="to be embedded beside a start")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two puts")
    parser.add_argument("--label", default=NOW)
    parser.add_argument("--keep", type=Path, help="where the last server's log is copied to")
    parser.add_argument("--out", type=Path, default=HERE / "result.json")
    options = parser.parse_args()
    for seed in options.seeds:
        for name in options.scenes:
            before = round(os.getloadavg()[0], 1)
            found = uvloop.run(run(name, seed, options))
            row = {
                "scene": name,
                "seed": seed,
                "rate": options.rate,
                "load_before": before,
                **found,
            }
            print(json.dumps({"label": options.label, **row}), flush=True)
            kept = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
            kept["machine"] = describe_machine()
            part = kept.setdefault("labels", {}).setdefault(options.label, {})
            if options.label == NOW:
                part["commit"] = describe_commit()
            part.setdefault("runs", []).append(row)
            options.out.write_text(json.dumps(msgspec.to_builtins(kept)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
