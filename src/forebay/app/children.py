"""Processes of this program, run beside it by ``forebay prove``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from forebay.app.settings import environment
from forebay.kernel.errors import Unavailable

START_S = 60.0
STOP_S = 10.0


class Child:
    """A command of ``forebay`` that runs on."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    async def line(self) -> str:
        """The next line that it prints; ``Unavailable`` when it ends instead, or is silent."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise self.failed()
        return line.decode("utf-8", "replace").strip()

    def check(self) -> None:
        """``Unavailable`` when it has ended."""
        if self._process.returncode is not None:
            raise self.failed()

    def failed(self) -> Unavailable:
        """The error that says what it said last."""
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = said[-1].removeprefix("forebay: ") if said else "it said nothing"
        return Unavailable(f"{self.name} does not run: {why}")

    def cpu_s(self) -> float:
        """CPU seconds used so far, helpers of its own included."""
        try:
            every = [psutil.Process(self._process.pid)]
            every += every[0].children(recursive=True)
            times = [one.cpu_times() for one in every]
        except psutil.NoSuchProcess:
            return 0.0
        return float(sum(each.user + each.system for each in times))

    async def stop(self) -> None:
        """End it: politely, then not."""
        if self._process.returncode is not None:
            return
        try:
            self._process.terminate()
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            if self._process.returncode is None:
                self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running(
    name: str, words: Sequence[str], folder: Path, *, heard: bool = False
) -> AsyncIterator[Child]:
    """A command while the block runs, in ``folder``; settings of this environment do not reach it.

    What it prints goes to a file in ``folder``, but for the lines of one that is ``heard``.
    """
    kept = {key: value for key, value in environment().items() if not key.startswith("FOREBAY_")}
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "forebay.app.tied",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if heard else errors,
            stderr=errors,
            cwd=folder,
            env=kept,
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        await child.stop()
