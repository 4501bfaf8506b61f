"""The avalanche: 200 light requests a second are well; make one in twenty heavy, and all starve.

A third run has the server's own admission before the same engine. ``run.py`` simulates in virtual
time (equal on every machine), writes ``virtual.json``, the raw results ``light.json``,
``heavy5.json`` and ``admission.json``, and the charts in docs/images. ``--real`` does the same
two runs through ``forebay simulate serve`` and ``forebay bench`` in real time and writes
``real.json``; ``--check`` writes nothing and fails when a promise does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import msgspec

from forebay.lab.bench.describe import describe_workload
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.measure.result import Run, RunResult, encode_result, load_result
from forebay.lab.report import charts, rows
from forebay.lab.report.page import svg
from forebay.lab.report.words import Words
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.routers import ADMISSION
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.presets import preset_workload

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "docs" / "images"
PROFILE = "h100/8b/fp16/tp1"
MAX_MODEL_LEN = 16_384
"""The one setting that is not vLLM's default here: a heavy request has 10,000 tokens."""
RATE_PER_S = 200.0
VIRTUAL_S = 120.0
REAL_S = 30.0
SEED = 1
HEALTHY, COLLAPSED = 0.99, 0.10
SHORT_TOKENS = 1_000
"""Inputs up to this go to the pool for short ones, where there is one."""
SHARED = (1, 2, 4, 8, 12, 16)
FOREBAY = (sys.executable, "-c", "from forebay.app.cli import main; main()")
CAPTIONS = {
    "en": ("200 light requests/s", "5 % of them heavy", "the same behind Forebay's admission"),
    "zh": ("每秒 200 个轻请求", "其中 5% 换成重请求", "同样的负载，前面有 Forebay 的准入控制"),
}


def virtual(
    mix: str, replicas: int, *, short_pool: bool = False, router: str = "least-outstanding"
) -> RunResult:
    """One run in virtual time; a short pool has one replica of its own beside ``replicas``."""
    workload = preset_workload(mix, RATE_PER_S, VIRTUAL_S)
    profile = find_profile(PROFILE)
    engine = profile.engine_config(max_model_len=MAX_MODEL_LEN)
    pools = [PoolConfig(engine=engine, name="shared", replicas=replicas)]
    if short_pool:
        short = PoolConfig(engine=engine, name="short", max_input_tokens=SHORT_TOKENS)
        pools.insert(0, short)
    about = Run(
        source="simulation",
        target=f"{replicas + short_pool} x {profile.name}",
        seed=SEED,
        workload=describe_workload(workload),
        fingerprint=workload.fingerprint,
        options={"pools": msgspec.to_builtins(pools), "router": router},
        machine=describe_machine(),
        commit=describe_commit(),
        versions=describe_versions("numpy"),
    )
    steps = profile.step_model()
    options = VirtualOptions(seed=SEED, router=router)
    return simulate(workload, [(pool, steps) for pool in pools], about, options)


def summary(result: RunResult) -> dict[str, Any]:
    """What the tables show of a run."""
    tokens = {kind: found.sent for kind, found in result.by_kind.items()}
    return {
        "target": result.run.target,
        "offered_per_s": round(result.offered_per_s, 2),
        "goodput_share": round(result.total.goodput_share, 4),
        "goodput_per_s": round(result.total.goodput_per_s, 2),
        "good_by_kind": {
            kind: round(found.goodput_share, 4) for kind, found in result.by_kind.items()
        },
        "sent_by_kind": tokens,
        "ttft_p99_s": result.total.ttft.p99_s,
        "total_p50_s": result.total.total.p50_s,
        "total_p99_s": result.total.total.p99_s,
        "statuses": result.total.statuses,
        "generator_valid": result.generator.valid if result.generator else None,
    }


def chart(results: Sequence[RunResult], language: str) -> alt.HConcatChart:
    """What became of the requests, second by second, beside each other."""
    words = Words(language)
    shown = [
        [row for row in rows.status_rows(result, words) if row["at_s"] < VIRTUAL_S]
        for result in results
    ]
    seen = {row["status"]: row["outcome"] for panel in shown for row in panel}
    panels = []
    for panel, caption in zip(shown, CAPTIONS[language], strict=True):
        # All panels know all outcomes, so that they share their colours.
        missing = sorted(seen.keys() - {row["status"] for row in panel})
        absent = [
            {"at_s": 0.0, "status": name, "outcome": seen[name], "per_s": 0.0} for name in missing
        ]
        drawn = charts.status_over_time([*panel, *absent], words)
        panels.append(drawn.properties(width=270, height=200, title=caption))
    beside: alt.HConcatChart = alt.hconcat(*panels).resolve_scale(y="shared", color="shared")
    return beside


def in_real_time(mix: str, folder: Path) -> RunResult:
    """The same load by ``forebay bench`` on ``forebay simulate serve``."""
    served = subprocess.Popen(
        [
            *FOREBAY, "simulate", "serve", "--port", "0", "--profile", PROFILE, "--json",
            "--set", f"max_model_len={MAX_MODEL_LEN}", "--output", "cap",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    out = folder / f"{mix}.json"
    try:
        assert served.stdout is not None
        url = json.loads(served.stdout.readline())["replicas"][0]
        words = ["--mix", mix, "--rate", f"{RATE_PER_S:g}", "--duration", f"{REAL_S:g}"]
        subprocess.run(
            [*FOREBAY, "bench", url, *words, "--seed", str(SEED), "--out", str(out)],
            check=False,  # a result that is not valid says so itself
            timeout=REAL_S + 180,
        )
    finally:
        served.terminate()
        try:
            served.wait(30)
        except subprocess.TimeoutExpired:
            served.kill()
            served.wait()
    return load_result(out)


def write(name: str, value: Any) -> None:
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    (HERE / name).write_bytes(data + b"\n")


def told(name: str, result: RunResult) -> None:
    kinds = ", ".join(f"{kind} {item.goodput_share:.1%}" for kind, item in result.by_kind.items())
    print(f"{name}: {result.total.goodput_share:.2%} good ({kinds})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true", help="run in real time instead")
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    if asked.real:
        with tempfile.TemporaryDirectory() as folder:
            runs = {mix: in_real_time(mix, Path(folder)) for mix in ("light", "heavy5")}
    else:
        runs = {mix: virtual(mix, 1) for mix in ("light", "heavy5")}
        runs["admission"] = virtual("heavy5", 1, router=ADMISSION)
    for name, result in runs.items():
        told(name, result)
    holds = (
        runs["light"].total.goodput_share >= HEALTHY
        and runs["heavy5"].total.goodput_share < COLLAPSED
    )
    if not asked.check:
        record(runs, real=asked.real)
    print("the avalanche is " + ("there" if holds else "NOT there"))
    return 0 if holds else 1


def record(runs: dict[str, RunResult], *, real: bool) -> None:
    """Write what was found."""
    found: dict[str, Any] = {
        "profile": PROFILE,
        "max_model_len": MAX_MODEL_LEN,
        "rate_per_s": RATE_PER_S,
        "seconds": REAL_S if real else VIRTUAL_S,
        "seed": SEED,
        "machine": describe_machine(),
        "commit": describe_commit(),
        "runs": {name: summary(result) for name, result in runs.items()},
    }
    if real:
        write("real.json", found)
        return
    shared: dict[str, Any] = {}
    for replicas in SHARED:
        result = runs["heavy5"] if replicas == 1 else virtual("heavy5", replicas)
        told(f"heavy5 on {replicas} shared replicas", result)
        shared[str(replicas)] = summary(result)
    parted = virtual("heavy5", 1, short_pool=True)
    told("heavy5 on 2 replicas, one of them for short inputs", parted)
    found |= {"heavy5_by_shared_replicas": shared, "heavy5_one_short_one_long": summary(parted)}
    write("virtual.json", found)
    for name, result in runs.items():
        (HERE / f"{name}.json").write_bytes(encode_result(result) + b"\n")
    IMAGES.mkdir(exist_ok=True)
    for language, ending in (("en", ""), ("zh", ".zh-CN")):
        drawn = svg(chart(list(runs.values()), language))
        (IMAGES / f"avalanche{ending}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
