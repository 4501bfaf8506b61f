"""Where and with what a run was made: machine, commit, versions."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

from forebay.lab.measure.result import Machine

_HERE = Path(__file__).resolve().parent


@functools.cache
def describe_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
    )


@functools.cache
def describe_commit() -> str:
    """The commit of the checkout this code runs from, with ``+`` when edited; else empty."""
    head = _git("rev-parse", "--short", "HEAD")
    if not head:
        return ""
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def describe_versions(*distributions: str) -> dict[str, str]:
    """Versions of Forebay and of the named distributions that are installed."""
    found = {}
    for name in ("forebay", *distributions):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_name() -> str:
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    """What git prints about the folder of this file; empty where it is none of git's."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_HERE), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=5.0,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
