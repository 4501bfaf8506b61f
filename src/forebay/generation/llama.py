"""A local GGUF model through llama.cpp (extra ``llama``).

llama.cpp's own loop batches the slots; each request has a thread of this generator's pool that
waits in native code with the interpreter lock free. Tokens cross to the event loop through a
bounded bridge; closing the iterator stops generation at the next token.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from forebay.generation.completion import CompletionReader, EngineUsage, completion_body
from forebay.generation.settings import LlamaSettings
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    ConfigError,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    Unavailable,
)
from forebay.kernel.stages import Finished, GenerationRequest, TextDelta

T = TypeVar("T")

_BRIDGE_ITEMS = 64
_MAX_CHUNK_BYTES = 1 << 20
_TOO_LONG = "exceed_context_size_error"


class _Server(Protocol):
    def handle_chat_completions(self, body: str, callback: Callable[[Any], bool]) -> object: ...


class _Ended(msgspec.Struct, frozen=True):
    """The thread is through; ``failed`` when native code raised."""

    failed: bool


class _ErrorType(msgspec.Struct):
    type: str | None = None


class _ErrorChunk(msgspec.Struct):
    error: _ErrorType | None = None


class _Bridge:
    """Chunks from a thread to the loop, at most 64 on the way; closing it stops the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[bytes | _Ended] = deque()
        self._room = threading.Condition()
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, item: bytes | _Ended) -> bool:
        """From the thread: hand over, waiting for room; True when nobody wants more."""
        with self._room:
            while len(self._items) >= _BRIDGE_ITEMS and not self._closed:
                self._room.wait()
            if self._closed:
                return True
            self._items.append(item)
        self._wake()
        return False

    async def get(self) -> list[bytes | _Ended]:
        """On the loop: everything that has arrived, at least one item."""
        await self._arrived.wait()
        with self._room:
            items = list(self._items)
            self._items.clear()
            self._arrived.clear()
            self._room.notify_all()
        return items

    def close(self) -> None:
        """On the loop: take nothing more; the thread stops at its next token."""
        with self._room:
            self._closed = True
            self._items.clear()
            self._room.notify_all()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            # The loop has ended, and with it everyone who could read.
            self._closed = True


class LlamaGenerator:
    """One loaded model; made by ``load``, ended by ``close``."""

    def __init__(self, settings: LlamaSettings, server: _Server, pool: ThreadPoolExecutor) -> None:
        self._settings = settings
        self._server: _Server | None = server
        self._pool = pool
        self._free = asyncio.Semaphore(settings.slots)
        self._in_work = 0
        self._bridges: set[_Bridge] = set()
        self._model = Path(settings.model_path).stem

    @classmethod
    async def load(cls, settings: LlamaSettings) -> LlamaGenerator:
        """Load the model in a thread; ``ConfigError`` without the extra, the file or a model."""
        path = Path(settings.model_path)
        if not settings.model_path or not await asyncio.to_thread(path.is_file):
            named = f", not {path}" if settings.model_path else ""
            raise ConfigError(
                f"generation.llama.model_path must name a GGUF file{named}.",
                param="generation.llama.model_path",
            )
        pool = ThreadPoolExecutor(max_workers=settings.slots, thread_name_prefix="llama")
        try:
            server = await asyncio.get_running_loop().run_in_executor(pool, _load, settings)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return cls(settings, server, pool)

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """Yield text as it is generated, then ``Finished`` with the model's own counts.

        ``Overloaded`` when too many wait for a slot, ``ContextTooLong`` when the prompt does not
        fit a slot, ``DeadlineExceeded`` also while waiting.
        """
        settings = self._settings
        if self._server is None:
            raise Unavailable("The local model is being unloaded.")
        if self._in_work >= settings.slots + settings.max_waiting:
            raise Overloaded("Too many answers wait for the local model; try again shortly.")
        self._in_work += 1
        try:
            bridge = await self._start(ctx, request)
        except BaseException:
            self._in_work -= 1
            raise
        reader = CompletionReader(_MAX_CHUNK_BYTES)
        try:
            ended = False
            while not ended:
                items = await _in_time(ctx, bridge.get())
                text, ended = _read(items, reader)
                if text:
                    yield TextDelta(text)
        finally:
            self._bridges.discard(bridge)
            bridge.close()
        if reader.reason is None:
            raise EngineError("The local model's answer broke off.")
        usage = reader.usage or EngineUsage()
        yield Finished(
            reason=reader.reason,
            prompt_tokens=int(usage.prompt_tokens or request.prompt_tokens),
            completion_tokens=int(usage.completion_tokens or 0),
            model=self._model,
        )

    async def close(self) -> None:
        """Stop what is generated, end the threads, unload the model."""
        self._server = None
        for bridge in tuple(self._bridges):
            bridge.close()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def statistics(self) -> dict[str, int]:
        """Requests in work, waiting ones included, and the number of slots."""
        return {"in_work": self._in_work, "slots": self._settings.slots}

    async def _start(self, ctx: RequestContext, request: GenerationRequest) -> _Bridge:
        """Wait for a slot and put a thread to work; the slot is free when the thread has ended."""
        await _in_time(ctx, self._free.acquire())
        server = self._server
        if server is None:
            self._free.release()
            raise Unavailable("The local model is being unloaded.")
        bridge = _Bridge(asyncio.get_running_loop())
        body = completion_body(request, max_output_tokens=self._settings.max_output_tokens).decode()
        work = asyncio.get_running_loop().run_in_executor(self._pool, _work, server, body, bridge)
        self._bridges.add(bridge)
        work.add_done_callback(self._slot_free)
        return bridge

    def _slot_free(self, work: asyncio.Future[None]) -> None:
        self._in_work -= 1
        self._free.release()
        if not work.cancelled():
            work.exception()


def _work(server: _Server, body: str, bridge: _Bridge) -> None:
    """In the thread: generate until the end, or until the bridge is closed."""
    failed = True
    try:
        server.handle_chat_completions(body, lambda chunk: bridge.put(_bytes(chunk)))
        failed = False
    finally:
        bridge.put(_Ended(failed))


def _bytes(chunk: object) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else msgspec.json.encode(chunk)


def _read(items: list[bytes | _Ended], reader: CompletionReader) -> tuple[str, bool]:
    """The text of what has arrived, and whether it was the end."""
    pieces: list[str] = []
    for item in items:
        if isinstance(item, _Ended):
            if item.failed:
                raise EngineError("The local model failed.")
            return "".join(pieces), True
        if b'"error"' in item and _error_type(item) == _TOO_LONG:
            raise ContextTooLong("The prompt is longer than the local model's window.")
        reader.chunk(item, pieces)
    return "".join(pieces), False


def _error_type(item: bytes) -> str | None:
    try:
        error = msgspec.json.decode(item, type=_ErrorChunk).error
    except msgspec.DecodeError:
        return None
    return error.type if error is not None else None


async def _in_time(ctx: RequestContext, waiting: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(ctx.deadline.remaining()):
            return await waiting
    except TimeoutError as error:
        raise DeadlineExceeded(
            "The request's deadline passed while the local model worked."
        ) from error


def _load(settings: LlamaSettings) -> _Server:
    try:
        import xllamacpp
    except ImportError as error:
        raise ConfigError(
            "generation.backend llama needs the extra: make setup-llama, or "
            "pip install 'forebay[llama]'.",
            param="generation.backend",
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = settings.model_path
    params.n_ctx = settings.context_tokens * settings.slots
    params.n_parallel = settings.slots
    params.n_gpu_layers = settings.gpu_layers
    # A core is left to the event loop: threads that spin on a busy core halve everyone's speed.
    params.cpuparams.n_threads = settings.threads or max(1, (os.cpu_count() or 2) - 1)
    params.verbosity = -1
    # The engine opens a loopback port of its own, which nothing here uses: a key nobody has.
    params.api_keys = [secrets.token_urlsafe(32)]
    try:
        server: _Server = xllamacpp.Server(params)
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(
            "generation.llama.model_path is not a model that can be loaded.",
            param="generation.llama.model_path",
        ) from error
    return server
