"""Worker processes that cannot be started."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from forebay.app import workers
from forebay.app.workers import WorkerSet
from forebay.kernel.clock import SystemClock


async def test_a_worker_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, attempts = asyncio.create_subprocess_exec, 0
    made: list[asyncio.subprocess.Process] = []

    async def out_of_descriptors(*_: object, **how: object) -> asyncio.subprocess.Process:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError(24, "Too many open files")
        # It ends with its input, as a worker does.
        made.append(await create(sys.executable, "-c", "import sys; sys.stdin.read()", stdin=-1))
        return made[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", out_of_descriptors)
    monkeypatch.setattr(workers, "RESTART_AFTER_S", 0.01)
    with socket.socket() as listener:
        kept = WorkerSet(1, listener, b"{}", 10.0, SystemClock())
        started = asyncio.Event()
        kept.started = lambda _: started.set()
        running = asyncio.get_running_loop().create_task(kept.run())
        async with asyncio.timeout(10):
            await started.wait()
        assert attempts == 3
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [process.returncode for process in made] == [0]
