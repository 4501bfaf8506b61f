"""Reader processes beside the writer: started, restarted when they die, ended together.

Each worker inherits the listening socket and gets its settings as one JSON line on standard
input, which then stays open: a further line is a reload of keys and plans, and when the parent
drains or dies, however it dies, the worker sees the end of file and drains.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from forebay.kernel.clock import Clock

log = logging.getLogger("forebay.workers")
RESTART_AFTER_S = 1.0
MAX_RESTART_AFTER_S = 30.0
HEALTHY_AFTER_S = 60.0
ASK_FIGURES = b"figures\n"
"""The line that asks a worker for its figures; settings begin with a brace."""
VERSIONS = b"versions\n"
"""The line that tells a worker that a new version was announced."""
FORGET = b"forget "
"""Begins the line that tells a worker to forget what it keeps of a kb; none named: of all."""


class WorkerSet:
    """``count`` worker processes on one listening socket.

    ``started`` and ``ended`` hear of every process by its id.
    """

    def __init__(
        self, count: int, listener: socket.socket, settings: bytes, stop_s: float, clock: Clock
    ) -> None:
        self._count = count
        self._listener = listener
        self._settings = settings
        self._stop_s = stop_s
        self._clock = clock
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._draining = False
        self.started: Callable[[int], None] = _nobody
        self.ended: Callable[[int], None] = _nobody

    def process_ids(self) -> tuple[int, ...]:
        """The workers that run now."""
        return tuple(process.pid for process in self._processes.values())

    def reload(self, settings: bytes) -> None:
        """Give every worker new settings, and those that will be started later."""
        self._settings = settings
        for process in self._processes.values():
            _write(process, settings + b"\n")

    def ask_figures(self, process_id: int) -> None:
        """Ask one worker for its figures; it answers over the folder's socket."""
        for process in self._processes.values():
            if process.pid == process_id:
                _write(process, ASK_FIGURES)

    def tell_versions(self) -> None:
        """Let every worker take what was announced before a query has to ask for it.

        Only a hint, so a worker whose pipe is full, as that of a frozen one, is left out.
        """
        for process in self._processes.values():
            pipe = process.stdin
            if pipe is None or pipe.is_closing() or pipe.transport.get_write_buffer_size():
                continue
            pipe.write(VERSIONS)

    def forget(self, kb: str) -> None:
        """Let every worker forget what it keeps of a kb; empty: of all."""
        for process in self._processes.values():
            _write(process, FORGET + kb.encode() + b"\n")

    def drain(self) -> None:
        """Let every worker drain, beside its parent; none is started any more.

        By the end of its input, not by a signal: whoever signals all processes, as a terminal or
        a service manager does, would else have signalled twice, which ends them at once.
        """
        self._draining = True
        for process in self._processes.values():
            _leave(process)

    async def run(self) -> None:
        """Keep the workers running until cancelled, then end them within ``stop_s``."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._keep(number))
        finally:
            await asyncio.shield(self._stop())

    async def _keep(self, number: int) -> None:
        wait_s = RESTART_AFTER_S
        while True:
            started = self._clock.now()
            try:
                process = await self._start()
            except OSError as error:
                # Out of descriptors, of memory, of processes: it may pass, and the others serve.
                log.error("worker %d cannot be started, trying again: %s", number, error)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, MAX_RESTART_AFTER_S)
                continue
            self._processes[number] = process
            if self._draining:
                _leave(process)
            self.started(process.pid)
            status = await process.wait()
            self._processes.pop(number, None)
            self.ended(process.pid)
            if self._draining:
                return
            if self._clock.now() - started >= HEALTHY_AFTER_S:
                wait_s = RESTART_AFTER_S
            log.warning("worker %d ended with status %d; starting another", number, status)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, MAX_RESTART_AFTER_S)

    async def _start(self) -> asyncio.subprocess.Process:
        fd = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "forebay.app.worker",
            str(fd),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(fd,),
        )
        if process.stdin is not None:
            with suppress(ConnectionError):
                process.stdin.write(self._settings + b"\n")
                await process.stdin.drain()
        return process

    async def _stop(self) -> None:
        self.drain()
        processes = list(self._processes.values())
        try:
            async with asyncio.timeout(self._stop_s):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            for process in processes:
                with suppress(ProcessLookupError):
                    process.kill()
            for process in processes:
                await process.wait()


def _nobody(_process_id: int) -> None:
    """Nobody wants to know."""


def _leave(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _write(process: asyncio.subprocess.Process, line: bytes) -> None:
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.write(line)
