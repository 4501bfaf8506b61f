"""What the pages show runs: every marked block, in order, against a served handbook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import unused_ports
from tools.snippets import language_blocks, marked_blocks

ROOT = Path(__file__).resolve().parents[2]
FOREBAY = (sys.executable, "-c", "from forebay.app.cli import main; main()")
READY_S = 90.0
BLOCK_S = 240.0
README_SHELL = ("curl", "cli")
SIMULATED = "127.0.0.1:8500"
"""Where the pages let simulated engines listen; each block starts its own."""
NOT_VALID = "NOT VALID: "
"""What a load test says, with status 1, when this machine was too busy for it: as documented."""


def guides() -> list[Path]:
    """English guides; a repository test holds that the Chinese ones show the same code."""
    return sorted(p for p in (ROOT / "docs" / "guides").glob("*.md") if "zh-CN" not in p.name)


def snippets() -> Iterator[tuple[str, str, str]]:
    """Every block to run: where it stands, sh or python, its text."""
    readme = marked_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    for name in README_SHELL:
        yield f"README.md {name}", "sh", readme[name]
    yield "README.md openai", "python", readme["openai"]
    for page in guides():
        for block in language_blocks(page.read_text(encoding="utf-8")):
            if block.name != "toml":
                yield f"{page.name}:{block.line}", block.name, block.text


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def served(port: int, environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """``forebay serve`` of this repository's own configuration, on another port and store."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*FOREBAY, "serve"], cwd=ROOT, env=environment, stdout=stream, stderr=stream
        )
    try:
        end = time.monotonic() + READY_S
        while not ready(port):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not all(map(shutil.which, ("curl", "iconv", "bash"))), reason="curl, iconv or bash is missing"
)
def test_every_marked_block_runs(tmp_path: Path) -> None:
    port = unused_ports()
    command = tmp_path / "forebay"
    command.write_text(f'#!/bin/sh\nexec "{FOREBAY[0]}" -c "{FOREBAY[2]}" "$@"\n')
    command.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "FOREBAY_STORE__PATH": str(tmp_path / "store"),
        "FOREBAY_SERVER__PORT": str(port),
        "TMPDIR": str(scratch),
    }
    failures = []
    with served(port, environment, tmp_path / "serve.log"):
        for where, kind, shown in snippets():
            text = shown.replace("127.0.0.1:8400", f"127.0.0.1:{port}")
            text = text.replace(".venv/bin/forebay", str(command))
            if SIMULATED in text:
                text = text.replace("8500", str(unused_ports(2)))
            interpreter = ["bash", "-euo", "pipefail"] if kind == "sh" else [sys.executable]
            ran = subprocess.run(
                [*interpreter, "-c", text],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BLOCK_S,
                check=False,
            )
            refused = any(line.startswith('{"error') for line in ran.stdout.splitlines())
            failed = ran.returncode != 0 and NOT_VALID not in ran.stderr
            if failed or refused or not ran.stdout.strip():
                told = f"{ran.stdout[-800:]}\n{ran.stderr[-800:]}"
                failures.append(f"{where}: status {ran.returncode}\n{told}")
    assert not failures, "\n".join(failures)
