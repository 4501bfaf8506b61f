"""Other threads' stacks are looked at in one place, which no collection of garbage can break."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STACKS = REPOSITORY / "benchmarks/caching/stacks.py"


def test_a_process_survives_being_looked_at() -> None:
    """With ``--collecting`` the same process dies within seconds on CPython 3.11."""
    done = subprocess.run(
        [sys.executable, str(STACKS), "--seconds", "1.5"],
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert told["looks"] and not told["no_frames"]


@pytest.mark.parametrize("folder", ["src", "tests", "tools", "benchmarks"])
def test_nothing_else_looks_at_other_threads(folder: str) -> None:
    word = "sys._current" + "_frames"
    lookers = [path for path in (REPOSITORY / folder).rglob("*.py") if word in path.read_text()]
    assert lookers == ([STACKS] if folder == "benchmarks" else [])
