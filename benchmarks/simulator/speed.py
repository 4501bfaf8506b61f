"""How fast the simulator is in virtual time, and how much memory a long run takes.

Five shapes on eight replicas: an even one (500 tokens in, 128 out) and the Azure conversation trace
of 2023, each at 80 % of what the fleet can serve and at twice that with clients that give up after
20 s, and the `rag` preset, whose prompts share blocks, at 80 %. What the fleet can serve is the
rate of answers of a run that offers far too much. Seconds are of this process's processor, not of
a clock on the wall:

- `engine_and_routing`: requests made before, nothing recorded
- `whole`: requests drawn and every end recorded too, as `forebay simulate run` does it

Run: python benchmarks/simulator/speed.py --data FOLDER [--requests 30000] [--repeat 3]
     python benchmarks/simulator/speed.py --memory 2000000    (of the even shape at 80 %)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder
from forebay.lab.measure.result import Run
from forebay.lab.sim.fleet import Fleet, Job, Pool, PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.routers import find_router
from forebay.lab.sim.run import VirtualDrive
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.presets import preset_kinds
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.traces import TraceArrivals

ROOT = Path(__file__).resolve().parent.parent.parent
SEED = 20261129
PROFILE = "h100/8b"
REPLICAS = 8
ROUTER = "least-outstanding"
PATIENCE_S = 20.0
LOADS = {"80 %": 0.8, "200 %": 2.0}

Shape = Callable[[float, int], Workload]


class Counter:
    """A recorder that only counts answers given whole."""

    def __init__(self) -> None:
        self.ok = 0

    def record(self, finished: Finished) -> None:
        self.ok += finished.status == "ok"


def even(deadline_s: float | None) -> Shape:
    kind = Kind(name="even", input_tokens=500, output_tokens=128, deadline_s=deadline_s)

    def shape(rate: float, count: int) -> Workload:
        arrivals = PoissonArrivals(rate=rate, count=count)
        return Workload(WorkloadSpec(name="even", arrivals=arrivals, kinds=(kind,)))

    return shape


def azure(data: Path, deadline_s: float | None) -> Shape:
    """The trace over and over, with its own ups and downs, its mean rate scaled to ``rate``."""
    file = data / "traces" / "azure_2023_conversation.csv"
    mean_rate = 19_366 / 3_500.0
    kind = Kind(name="azure", deadline_s=deadline_s)

    def shape(rate: float, count: int) -> Workload:
        arrivals = TraceArrivals(
            file=str(file), loop=True, time_scale=mean_rate / rate, count=count
        )
        return Workload(WorkloadSpec(name="azure", arrivals=arrivals, kinds=(kind,)))

    return shape


def rag(rate: float, count: int) -> Workload:
    arrivals = PoissonArrivals(rate=rate, count=count)
    kinds = tuple(msgspec.structs.replace(kind, deadline_s=None) for kind in preset_kinds("rag"))
    return Workload(WorkloadSpec(name="rag", arrivals=arrivals, kinds=kinds))


def drive(requests: Iterable[PlannedRequest], recorder: Any) -> VirtualDrive:
    """All requests through a new fleet."""
    profile = find_profile(PROFILE)
    config = PoolConfig(engine=profile.engine_config(), replicas=REPLICAS)

    def fleet(ended: Callable[[Job], None]) -> Fleet:
        return Fleet([Pool(config, profile.step_model())], find_router(ROUTER), ended)

    made = VirtualDrive(fleet, recorder)
    made.open_loop(requests)
    return made


def capacity(shape: Shape) -> float:
    """Answers a second when all requests come at once."""
    count = 20_000
    made = drive(shape(1e5, count).requests(SEED), Counter())
    return count / made.fleet.now


def timed(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(shape: Shape, rate: float, count: int, repeat: int) -> dict[str, Any]:
    """Requests a second of processor time, each repetition by itself."""
    found: dict[str, Any] = {"rate_per_s": round(rate, 1)}
    planned = list(shape(rate, count).requests(SEED))
    counter = Counter()
    made = drive(planned, counter)
    found["ok_share"] = round(counter.ok / count, 4)
    figures = [replica.engine.statistics() for replica in made.fleet.pools[0].replicas]
    found["preemptions"] = sum(one.preemptions for one in figures)
    queries = sum(one.prefix_query_tokens for one in figures)
    hits = sum(one.prefix_hit_tokens for one in figures)
    found["prefix_hit_share"] = round(hits / queries, 3) if queries else 0.0
    found["engine_and_routing"] = [
        round(count / timed(lambda: drive(planned, Counter()))) for _ in range(repeat)
    ]
    found["whole"] = [
        round(count / timed(lambda: recorded(shape(rate, count).requests(SEED))))
        for _ in range(repeat)
    ]
    return found


def recorded(requests: Iterable[PlannedRequest]) -> None:
    recorder = Recorder()
    drive(requests, recorder)
    recorder.result(Run(source="simulation"))


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Every shape at every load."""
    shapes: dict[str, tuple[Callable[[float | None], Shape], dict[str, float]]] = {
        "even": (even, LOADS),
        "azure conversation": (lambda limit: azure(options.data, limit), LOADS),
        "rag preset": (lambda limit: rag, {"80 %": 0.8}),
    }
    found: dict[str, Any] = {}
    for name, (made, loads) in shapes.items():
        most = capacity(made(None))
        for label, load in loads.items():
            shape = made(PATIENCE_S if load > 1 else None)
            found[f"{name}, {label}"] = measure(
                shape, load * most, options.requests, options.repeat
            )
    return {"shapes": found}


def memory(count: int) -> dict[str, Any]:
    """Resident memory over a long run of the even shape."""
    shape = even(None)
    rate = 0.8 * capacity(shape)
    process = psutil.Process()
    seen: list[tuple[int, float]] = []

    def watched(requests: Iterator[PlannedRequest]) -> Iterator[PlannedRequest]:
        for number, request in enumerate(requests):
            if number % max(1, count // 20) == 0:
                seen.append((number, round(process.memory_info().rss / 2**20, 1)))
            yield request

    seconds = timed(lambda: recorded(watched(shape(rate, count).requests(SEED))))
    seen.append((count, round(process.memory_info().rss / 2**20, 1)))
    return {
        "requests": count,
        "rss_mib": seen,
        "cpu_s": round(seconds, 1),
        "requests_per_cpu_s": round(count / seconds),
    }


def main() -> None:
    """Print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--requests", type=int, default=30_000)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--memory", type=int, default=0)
    options = arguments.parse_args()
    if not options.memory and options.data is None:
        arguments.error("--data is needed for the trace")
    found = memory(options.memory) if options.memory else speed(options)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found["profile"] = f"{REPLICAS} x {find_profile(PROFILE).name}"
    found["seed"] = SEED
    found["commit"] = commit.stdout.strip()
    machine = f"{platform.platform()}, Python {platform.python_version()}"
    found["machine"] = f"{machine}, {os.cpu_count()} cores, load {os.getloadavg()}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
