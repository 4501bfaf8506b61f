"""``python -m forebay.lab.mixes --seeds 0-39``: judge the admission's defaults on random mixes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from forebay.lab.mixes.mix import random_mix
from forebay.lab.mixes.rows import rows
from forebay.lab.mixes.sweep import Report, sweep
from forebay.lab.mixes.text import details, line, summary, workload_file


def main(words: Sequence[str] | None = None) -> int:
    """Print a line a mix and a summary; 1 when a mix fails."""
    parser = argparse.ArgumentParser(prog="python -m forebay.lab.mixes", description=__doc__)
    parser.add_argument("--seeds", default="0-39", help="such as 0-39 or 3,7,12-14")
    parser.add_argument("--rows", action="store_true", help="the fixed mixes in place of random")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cache", type=Path, help="folder of what no gate decides")
    parser.add_argument("--json", type=Path, help="write all verdicts to this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="kinds and refusals")
    parser.add_argument("--print-mix", action="store_true", help="failing mixes as workload files")
    given = parser.parse_args(words)
    reports: list[Report] = []
    mixes = rows() if given.rows else [random_mix(seed) for seed in seeds_of(given.seeds)]
    for report in sweep(mixes, given.jobs, given.cache):
        reports.append(report)
        _say(line(report))
        if given.verbose:
            _say(details(report))
        if given.print_mix and not report.verdict.passed:
            _say(workload_file(report))
    _say(summary(reports))
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports), indent=1) + b"\n")
    return 0 if all(one.verdict.passed for one in reports) else 1


def seeds_of(text: str) -> list[int]:
    """``3,7,12-14`` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
