"""The cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = CPU_MAX) -> int:
    """Cores that this process may use: those it may run on, within its control group's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = max(1, cores or 1)
    try:
        granted, period = quota.read_text("ascii").split()
        return min(cores, max(1, math.ceil(int(granted) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        # No control group of version 2 (a Mac), or "max": no quota.
        return cores
