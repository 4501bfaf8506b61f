"""Runs the benchmarks, one process each, and prints the machine they ran on.

``python -m benchmarks`` runs all, ``python -m benchmarks store retrieval`` the named topics,
``--list`` says what there is. ``{data}`` is the folder of evaluation data (FOREBAY_SHARED_DATA,
else ../shared/data); ``{cache}`` is a folder outside the repository for what is built once.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Benchmark:
    """One command of a topic; words in braces are filled in when it runs."""

    topic: str
    command: str

    @property
    def script(self) -> Path:
        return ROOT / shlex.split(self.command)[0]

    @property
    def needs_data(self) -> bool:
        return "{data}" in self.command


BENCHMARKS = (
    Benchmark("embedding", "benchmarks/embedding/measure.py --data {data} --cache {cache}/models"),
    Benchmark("store", "benchmarks/store/record.py"),
    Benchmark("query", "benchmarks/query/measure.py --data {data}"),
    Benchmark("retrieval", "benchmarks/retrieval/quality.py --data {data} --cache {cache}"),
    Benchmark("ingest", "benchmarks/ingest/bulk.py --data {data}"),
    Benchmark("ingest", "benchmarks/ingest/vectors.py --data {data}"),
    Benchmark("serving", "benchmarks/serving/lag.py --data {data}"),
    Benchmark("request", "benchmarks/request/measure.py"),
    Benchmark("avalanche", "benchmarks/avalanche/run.py"),
    Benchmark("admission", "benchmarks/admission/quota.py"),
    Benchmark("sweep", "benchmarks/sweep/run.py"),
    Benchmark("mixes", "benchmarks/mixes/run.py --scale 0.25"),
    Benchmark("prove", "benchmarks/prove/run.py"),
    Benchmark("gathering", "benchmarks/gathering/measure.py"),
    Benchmark("ladder", "benchmarks/ladder/cost.py"),
    Benchmark("ladder", "benchmarks/ladder/leg.py --data {data}"),
    Benchmark("bench", "benchmarks/bench/generator.py"),
    Benchmark("simulator", "benchmarks/simulator/serve.py"),
    Benchmark("simulator", "benchmarks/simulator/speed.py --data {data}"),
    Benchmark("simulator", "benchmarks/simulator/speed.py --memory 2000000"),
    Benchmark("simulator", "benchmarks/simulator/shapes.py"),
    Benchmark("simulator", "benchmarks/simulator/truth.py"),
    Benchmark("retrieval", "benchmarks/retrieval/speed.py --data {data} --cache {cache}"),
    Benchmark("answers", "benchmarks/answers/measure.py"),
    Benchmark("answers", "benchmarks/answers/natural.py --data {data} --cache {cache}"),
    Benchmark("caching", "benchmarks/caching/parts.py"),
    Benchmark("caching", "benchmarks/caching/serving.py --data {data} --cache {cache}"),
)


def machine() -> dict[str, object]:
    """What the figures depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or None,
    }


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def folders() -> tuple[Path, Path]:
    """The evaluation data (which may be absent) and the cache."""
    data = Path(os.environ.get("FOREBAY_SHARED_DATA") or ROOT.parent / "shared" / "data")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "forebay-benchmarks"
    cache.mkdir(parents=True, exist_ok=True)
    return data, cache


def run(benchmark: Benchmark, data: Path, cache: Path) -> bool:
    """Run one benchmark; False when it failed. One that lacks its data is left out, aloud."""
    print(f"\n=== {benchmark.topic}: {benchmark.command}", flush=True)
    if not benchmark.script.exists():
        print("left out: no such script")
        return False
    if benchmark.needs_data and not data.is_dir():
        print(f"left out: no evaluation data at {data}; set FOREBAY_SHARED_DATA to its folder")
        return True
    words = [word.format(data=data, cache=cache) for word in shlex.split(benchmark.command)]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
    print(f"=== {benchmark.topic}: exit {done.returncode}, {time.perf_counter() - began:.0f} s")
    return done.returncode == 0


def main(arguments: list[str]) -> int:
    """Run the named topics, or all of them."""
    topics = {benchmark.topic for benchmark in BENCHMARKS}
    if arguments == ["--list"]:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.topic}: {benchmark.command}")
        return 0
    unknown = sorted(set(arguments) - topics)
    if unknown:
        print(f"no benchmark {unknown[0]}; there are {', '.join(sorted(topics))}", file=sys.stderr)
        return 2
    data, cache = folders()
    print(json.dumps({"machine": machine()}))
    wanted = [item for item in BENCHMARKS if not arguments or item.topic in arguments]
    failed = [item.topic for item in wanted if not run(item, data, cache)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
