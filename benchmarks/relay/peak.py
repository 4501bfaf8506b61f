"""The peak on two cores: generator, engine double and server beside one another.

Run from the repository's root:
python benchmarks/relay/peak.py --source ../main/src --source src [--rate 545 --rate 650 --rate 800]

``engine.py`` writes answers of 8 tokens, 4 ms apart; ``forebay bench`` asks the handbook's
questions at even distances, streamed, good within 2 s. What was found before may be used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "request")]

import measure as whole  # noqa: E402  a whole request's processes
import psutil  # noqa: E402

CASE = whole.Case("peak", (), "none", True, 8, 0, 0, kept=True)


def bench(port: int, rate: float, seconds: float) -> dict[str, Any]:
    """One run of ``forebay bench``."""
    command = [
        *(*whole.FOREBAY, "bench", "run", f"http://127.0.0.1:{port}", "--json"),
        *("--queries", str(whole.QUESTIONS), "--output-tokens", "8", "--deadline", "2"),
        *("--rate", str(rate), "--duration", str(seconds), "--arrivals", "constant"),
    ]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=whole.ENV, check=False)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def measured(source: Path, rates: list[float], seconds: float) -> list[dict[str, Any]]:
    """Each rate for one server."""
    found = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = whole.free_port()
        command = [sys.executable, str(ROOT / "benchmarks" / "request" / "engine.py")]
        command += ["--port", str(engine), "--interval-ms", "4"]
        child = stack.enter_context(
            whole.process(command, folder / "engine.log", stdout=subprocess.DEVNULL)
        )
        whole.wait_for(f"http://127.0.0.1:{engine}/health", child)
        port, pid = stack.enter_context(whole.served(CASE, source.resolve(), engine))
        bench(port, 200, 5)
        server = psutil.Process(pid)
        for rate in rates:
            before = whole.cpu_s(server)
            told = bench(port, rate, seconds)
            total = told["total"]
            spent = whole.cpu_s(server) - before
            row = {
                "source": whole.commit_of(source),
                "rate": rate,
                "load": round(os.getloadavg()[0], 1),
                "cpu_s": round(spent, 2),
                "cpu_ms_an_answer": round(spent / max(1, total["ok"]) * 1e3, 3),
                **{name: total[name] for name in ("sent", "ok", "good")},
                "statuses": total["statuses"],
                "ttft_p50_ms": round(total["ttft"]["p50_s"] * 1e3),
                "ttft_p99_ms": round(total["ttft"]["p99_s"] * 1e3),
                "why_no_result": told["generator"]["why_not"],
            }
            found.append(row)
    return found


def main() -> None:
    """Measure by turns and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, action="append", required=True)
    parser.add_argument("--rate", type=float, action="append")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("peak.json"))
    options = parser.parse_args()
    rows = []
    for source in options.source:
        for row in measured(source, options.rate or [545, 650, 800], options.seconds):
            rows.append(row)
            print(json.dumps(row), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
