"""Runs tests again and again on a machine that stumbles, to find those that pass by luck.

``python -m tools.shake tests/unit/policy --rounds 5``: every round has another hash seed, and at
random moments, the same ones for the same ``--seed``, the tests and all processes they started
stand still together for a while, as on a machine that is busy with something else. Time goes on
meanwhile. Prints how many rounds each test failed in; the status is 1 where one did. What follows
``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import psutil

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def living(root: psutil.Process) -> list[psutil.Process]:
    """The process and all below it that are not already stopped, parents first."""
    try:
        everyone = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    found = []
    for one in everyone:
        try:
            if one.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def each(processes: list[psutil.Process], action: str) -> None:
    """Suspend or resume those that are still there."""
    for one in processes:
        try:
            getattr(one, action)()
        except psutil.NoSuchProcess:
            continue


def stumble(running: subprocess.Popen[bytes], chance: Random, stop_s: float, go_s: float) -> None:
    """Stop and go until the process ended: each time for as long as ``chance`` says, in seconds.

    Tests stop processes too; what is stopped already is left to them. Whoever runs the tests is
    stopped first and goes on last, so that none of theirs comes between.
    """
    root = psutil.Process(running.pid)
    while running.poll() is None:
        try:
            running.wait(chance.expovariate(1 / go_s))
        except subprocess.TimeoutExpired:
            each([root], "suspend")
            stopped = living(root)
            each(stopped, "suspend")
            try:
                # Pareto of mean 3: most stops are short, one in a hundred is seven times the mean.
                running.wait(min(chance.paretovariate(1.5) / 3, 20) * stop_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                each([*reversed(stopped), root], "resume")


def round_of(words: list[str], hash_seed: int, chance: Random, stop_s: float, go_s: float) -> str:
    """What pytest said in one round."""
    command = ["env", f"PYTHONHASHSEED={hash_seed}", sys.executable, "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", *words]
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        with said.open("wb") as stream:
            running = subprocess.Popen(command, stdout=stream, stderr=stream)
            if stop_s:
                stumble(running, chance, stop_s, go_s)
            status = running.wait()
        text = said.read_text("utf-8", "replace")
    if status not in (0, 1):
        raise SystemExit(f"pytest ended with status {status}:\n{text}")
    return text


def main(arguments: list[str]) -> int:
    """Run the rounds and tell what failed."""
    parser = argparse.ArgumentParser(prog="shake", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("tests", nargs="+", help="files, folders or single tests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the stops and the hash seeds")
    parser.add_argument("--stop-s", type=float, default=0.1, help="mean of a stop; 0: none")
    parser.add_argument("--go-s", type=float, default=0.05, help="mean between two stops")
    own, more = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, more = arguments[:at], arguments[at + 1 :]
    options = parser.parse_args(own)
    failed: Counter[str] = Counter()
    for number in range(options.rounds):
        chance = Random(options.seed + number)  # noqa: S311 - no secrets
        words = [*options.tests, *more]
        hash_seed = chance.randrange(2**32)
        text = round_of(words, hash_seed, chance, options.stop_s, options.go_s)
        found = set(_FAILED.findall(text))
        failed.update(found)
        print(f"round {number}, hash seed {hash_seed}: {text.rstrip().splitlines()[-1]}")
        if found:
            print(text)
        sys.stdout.flush()
    for name, times in failed.most_common():
        print(f"{times} of {options.rounds}: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
