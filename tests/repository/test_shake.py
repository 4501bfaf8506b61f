"""The tool that lets tests stumble."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tools.shake import stumble

STEPS = """
import time
longest, at = 0.0, time.monotonic()
for _ in range(60):
    time.sleep(0.01)
    longest, at = max(longest, time.monotonic() - at), time.monotonic()
print(longest)
"""


def test_a_process_stands_still_again_and_again_and_ends_by_itself() -> None:
    with subprocess.Popen([sys.executable, "-c", STEPS], stdout=subprocess.PIPE) as running:
        stumble(running, Random(1), stop_s=0.15, go_s=0.05)
        said, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert float(said) >= 0.05, "a third of the mean at least"
