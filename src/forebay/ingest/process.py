"""One worker process, seen from the event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import msgspec

from forebay.ingest.frames import (
    LENGTH,
    Document,
    Part,
    Refused,
    Reply,
    Sentences,
    Setup,
    Spans,
    chunks_of,
)
from forebay.kernel.documents import ChunkDraft, Extracted
from forebay.kernel.errors import UnsupportedDocument

_BUFFER_BYTES = 1 << 20
_WRITE_BYTES = 1 << 18
_MAX_FRAME_BYTES = 1 << 30
_DECODER: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
_EXIT_S = 5.0
Answer = tuple[Extracted, tuple[ChunkDraft, ...], tuple[tuple[int, int], ...]]
"""A file's text, its chunks, and the sentences whose likeness is asked for."""


class WorkerDied(Exception):
    """The process ended before it answered; ``cpu`` when the kernel's CPU limit ended it."""

    def __init__(self, *, cpu: bool) -> None:
        super().__init__("worker died")
        self.cpu = cpu


class Worker:
    """A started process with its pipes.

    ``spent``: memory is high, replace it when it is free. ``too_big``: the watchdog ended it.
    ``exiting``: it said that it ends.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.spent = False
        self.too_big = False
        self.exiting = False

    @classmethod
    async def start(cls, python: str, setup: Setup) -> Worker:
        """Start a process that serves ``setup``; it ends when its standard input closes."""
        process = await asyncio.create_subprocess_exec(
            python,
            "-P",
            "-m",
            "forebay.ingest.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_BUFFER_BYTES,
            start_new_session=True,
            # Nothing of this process's environment, which may hold keys, goes to the parsers.
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
        )
        worker = cls(process)
        try:
            await worker.send(msgspec.msgpack.encode(setup))
        except WorkerDied:
            # Found out, and answered, by whoever sends the first batch.
            return worker
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def send(self, data: bytes) -> None:
        """Write a frame; raise ``WorkerDied`` when nobody reads it."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(LENGTH.pack(len(data)))
            view = memoryview(data)
            for start in range(0, len(view), _WRITE_BYTES):
                stdin.write(view[start : start + _WRITE_BYTES])
                await stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise WorkerDied(cpu=await self._died_of_cpu()) from error

    async def receive(self) -> Answer | UnsupportedDocument:
        """Read the answer for one file; frames are small enough for the loop to take one each."""
        first = await self._frame()
        if isinstance(first, Refused):
            self.exiting = first.exits
            return UnsupportedDocument(first.message, code=first.code)
        assert isinstance(first, Document)
        extracted = first.extracted
        if first.parts:
            text = "".join([await self._part() for _ in range(first.parts)])
            extracted = msgspec.structs.replace(extracted, text=text)
        text = extracted.text
        chunks: list[ChunkDraft] = []
        sentences: list[tuple[int, int]] = []
        while True:
            frame = await self._frame()
            if isinstance(frame, Sentences):
                sentences.extend(frame.spans)
                continue
            assert isinstance(frame, Spans)
            chunks.extend(chunks_of(frame.spans, text, len(chunks)))
            if frame.last:
                return extracted, tuple(chunks), tuple(sentences)
            # A whole answer may be buffered already: let others run between frames.
            await asyncio.sleep(0)

    async def _part(self) -> str:
        part = await self._frame()
        assert isinstance(part, Part)
        await asyncio.sleep(0)
        return part.text

    async def _frame(self) -> Reply:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            (size,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
            if size > _MAX_FRAME_BYTES:
                raise WorkerDied(cpu=False)
            return _DECODER.decode(await stdout.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            raise WorkerDied(cpu=await self._died_of_cpu()) from error

    async def _died_of_cpu(self) -> bool:
        try:
            async with asyncio.timeout(_EXIT_S):
                code = await self._process.wait()
        except TimeoutError:
            return False
        return code == -signal.SIGXCPU

    def signal(self) -> None:
        """Kill without waiting."""
        if self.alive:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    async def kill(self) -> None:
        """Kill and reap, also when the caller is being cancelled."""
        self.signal()
        stdin: Any = self._process.stdin
        if stdin is not None:
            stdin.close()
        # SIGKILL cannot be refused, so this wait is short; shielded to leave no zombie behind.
        await asyncio.shield(self._process.wait())
