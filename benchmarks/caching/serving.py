"""The cache tiers in a whole server: what an answer hit costs, and what Zipf's law leaves to do.

    python benchmarks/caching/serving.py --data ../shared/data [--quick] [--part hits ...]

One machine of two cores carries the server, its simulated engines and the generator, each a process
of its own. Parts: ``hits`` (answers that are kept, beside a trivial answer), ``memory`` (what full
tiers hold beside their bounds), ``zipf`` and ``zipf-answers`` (Zipf(1.0) over 20,000 questions,
without and with kept answers; ``zipf-answers-2``: by two processes), ``thirty`` (a workload whose
ideal hit rate is 30 %). The first run builds a store of 100,000 chunks: minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overload"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus
import held
import hits
from asked import Asked, Span, repeating, zipf
from measured import measured
from server import Stand, standing

from benchmarks.__main__ import folders, machine

HERE = Path(__file__).resolve().parent
PARTS = ("hits", "memory", "zipf", "zipf-answers", "zipf-answers-2", "thirty")
FULL = (Span("cold", 400, 60), Span("warm", 400, 30), Span("600", 600, 12), Span("800", 800, 12))
QUICK = (Span("cold", 400, 20), Span("warm", 400, 8), Span("800", 800, 5))
THIRTY = (Span("beginning", 50, 20), Span("steady", 50, 25))
THIRTY_QUICK = (Span("beginning", 50, 6), Span("steady", 50, 8))


async def memory() -> dict[str, Any]:
    """Part ``memory``: a process for each tier, and one more in which allocations are traced."""
    found: dict[str, Any] = {}
    for tier in held.TIERS:
        for more in ((), ("traced",)):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(HERE / "held.py"), tier, *more),
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
            found.setdefault(tier, {}).update(json.loads(said))
    return found


async def served(
    folder: Path, options: argparse.Namespace, asked: Asked, *, answers: bool, workers: int = 1
) -> dict[str, Any]:
    """One workload against one server over a copy of the store, which begins with no cache."""
    shutil.copytree(options.store, folder / "store")
    async with AsyncExitStack() as stack:
        stand: Stand = await stack.enter_async_context(
            standing(folder, answers=answers, workers=workers)
        )
        return await measured(stand, asked, options.seed)


async def part(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part in a folder of its own."""
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="forebay-caching-", dir=options.work) as path:
        folder = Path(path)
        if name == "hits":
            found = await hits.measure(folder, quick=options.quick)
        elif name == "memory":
            found = await memory()
        elif name == "thirty":
            spans = THIRTY_QUICK if options.quick else THIRTY
            asked = repeating(folder, options.fresh, spans, options.seed)
            found = await served(folder, options, asked, answers=False)
        else:
            asked = zipf(folder, options.questions, QUICK if options.quick else FULL)
            workers = 2 if name == "zipf-answers-2" else 1
            answers = name != "zipf"
            found = await served(folder, options, asked, answers=answers, workers=workers)
    return {"load_before": load, "load_after": round(os.getloadavg()[0], 1), **found}


def main() -> None:
    """Run the parts that are asked for and keep the result."""
    data, _ = folders()
    cache = Path.home() / ".cache/forebay-bench"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--work", type=Path, help="where folders of the runs lie")
    parser.add_argument("--out", type=Path, default=HERE / "serving.json")
    options = parser.parse_args()
    wanted = options.part or (["hits", "zipf-answers"] if options.quick else list(PARTS))
    if not set(wanted) <= {"hits", "memory"}:
        options.store = corpus.store(options.data, options.cache, options.chunks)
        options.questions = corpus.questions(options.data, options.cache)
        options.fresh = corpus.fresh(options.data, options.cache)
    found: dict[str, Any] = {
        "machine": machine(),
        "seed": options.seed,
        "quick": options.quick,
        "chunks": options.chunks,
        "parts": {},
    }
    for name in wanted:
        found["parts"][name] = uvloop.run(part(name, options))
        print(json.dumps({name: found["parts"][name]}, indent=1), flush=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
