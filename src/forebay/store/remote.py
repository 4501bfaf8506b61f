"""The folder's local socket: other processes hand their work to the one that writes.

One connection is one call. The client sends one request frame, the server any number of event
frames and then one result or error frame. A frame is a big-endian length of four bytes and as
many bytes of msgpack. Kernel errors cross as class name and fields and are raised again as the
same class. A client that leaves cancels its handler.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forebay.kernel import errors
from forebay.kernel.clock import Clock, Deadline, SystemClock
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineRefused,
    ForebayError,
    InvalidRequest,
    NotFound,
    Overloaded,
    PartFailed,
    RateLimited,
    StoreError,
    Unavailable,
    first_error,
)

log = logging.getLogger("forebay.store")

PROTOCOL = 1
SOCKET_FILE = "writer.sock"
ADDRESS_FILE = "writer.addr"
# sun_path holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
MAX_SOCKET_PATH_BYTES = 103
_LENGTH_BYTES = 4

Emit = Callable[[object], Awaitable[None]]
Handler = Callable[[Any, Emit], Awaitable[object]]
"""Gets the request's payload as plain values (``msgspec.convert`` types them) and a way to send
events; returns the result. Events and results are anything msgspec encodes."""


class RemoteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the folder's socket."""

    max_frame_bytes: Annotated[
        int, Meta(description="Longest message either side accepts.", ge=1024, le=1 << 31)
    ] = 320 << 20
    max_connections: Annotated[
        int, Meta(description="Calls under way at once; more are refused.", ge=1)
    ] = 64
    connect_timeout_s: Annotated[
        float, Meta(description="Longest wait for the writer to accept a call.", gt=0)
    ] = 5.0
    request_timeout_s: Annotated[
        float, Meta(description="Longest time a client may take to send its request.", gt=0)
    ] = 30.0
    send_timeout_s: Annotated[
        float, Meta(description="Longest wait for a client that does not read.", gt=0)
    ] = 30.0
    max_call_s: Annotated[
        float, Meta(description="Longest time of one call, whatever the client asks for.", gt=0)
    ] = 24 * 3600.0


class _Request(msgspec.Struct, frozen=True, array_like=True):
    protocol: int
    operation: str
    timeout_s: float
    payload: Any


class _Event(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    value: Any


class _Result(msgspec.Struct, frozen=True, array_like=True, tag="result"):
    value: Any


class _Failure(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    kind: str
    message: str
    code: str
    param: str | None
    retry_after_s: float | None
    status: int | None


_Reply = _Event | _Result | _Failure


def _failure(error: ForebayError) -> _Failure:
    kind = next(
        each
        for each in type(error).__mro__
        if each.__module__ == errors.__name__ and each is not PartFailed
    )
    return _Failure(
        kind.__name__,
        error.message,
        error.code,
        error.param,
        getattr(error, "retry_after_s", None),
        getattr(error, "status", None),
    )


def _raised(failure: _Failure) -> ForebayError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, ForebayError)):
        kind = StoreError  # a newer writer's class: its sentence still counts
    retry_after_s = failure.retry_after_s or 1.0
    code = None if failure.code == kind.code else failure.code
    error: ForebayError
    if issubclass(kind, RateLimited | Overloaded):
        error = kind(failure.message, retry_after_s=retry_after_s, code=code)
    elif issubclass(kind, EngineRefused):
        error = kind(failure.message, status=failure.status or 500, code=code)
    else:
        error = kind(failure.message, code=code)
    error.param = failure.param
    return error


async def _read_frame(reader: asyncio.StreamReader, max_bytes: int) -> bytes:
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if length > max_bytes:
        raise InvalidRequest(f"a message of {length} bytes is over the bound of {max_bytes}.")
    return await reader.readexactly(length)


def _frame(message: object, max_bytes: int) -> bytes:
    body = msgspec.msgpack.encode(message)
    if len(body) > max_bytes:
        raise InvalidRequest(f"a message of {len(body)} bytes is over the bound of {max_bytes}.")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


# Where the socket is


def socket_path(folder: Path) -> Path:
    """Where the writer of ``folder`` listens, if there is one."""
    with suppress(OSError):
        return Path((folder / ADDRESS_FILE).read_text().strip())
    return folder / SOCKET_FILE


def _prepare_path(folder: Path) -> Path:
    """A path to bind to, with what a killed writer left removed. Only the lock holder may call."""
    _remove_socket(folder)
    path = folder / SOCKET_FILE
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    short = Path(tempfile.mkdtemp(prefix="forebay-")) / SOCKET_FILE
    if len(os.fsencode(short)) > MAX_SOCKET_PATH_BYTES:
        short = Path(tempfile.mkdtemp(prefix="forebay-", dir="/tmp")) / SOCKET_FILE
    part = folder / (ADDRESS_FILE + ".part")
    part.write_text(str(short))
    part.replace(folder / ADDRESS_FILE)
    return short


def _remove_socket(folder: Path) -> None:
    path = socket_path(folder)
    path.unlink(missing_ok=True)
    if path.parent != folder and path.parent.name.startswith("forebay-"):
        with suppress(OSError):
            path.parent.rmdir()
    (folder / ADDRESS_FILE).unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(OSError):  # on Linux the file is made with this mode, so never too open
            os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class WriterServer:
    """Answers calls on the folder's socket; only the holder of the writer lock may start one."""

    def __init__(
        self,
        folder: Path,
        handlers: Mapping[str, Handler],
        settings: RemoteSettings | None = None,
    ) -> None:
        self._folder = folder
        self._handlers = dict(handlers)
        self._settings = settings or RemoteSettings()
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.path: Path | None = None

    async def start(self) -> None:
        """Listen; whatever a killed writer left of its socket is replaced."""
        try:
            self.path = await asyncio.to_thread(_prepare_path, self._folder)
            listener = _listen(self.path)
        except OSError as error:
            raise StoreError(
                f"the store's socket cannot be made: {error.strerror or 'unknown error'}."
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def close(self) -> None:
        """Stop listening and cancel what is under way."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.to_thread(_remove_socket, self._folder)

    def statistics(self) -> dict[str, int]:
        """Calls under way."""
        return {"calls": len(self._calls)}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            log.debug("a client of the store's socket left before its answer")
        finally:
            self._calls.discard(call)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._calls) > self._settings.max_connections:
                raise Overloaded("too many calls to the writer are under way.")
            async with asyncio.timeout(self._settings.request_timeout_s):
                data = await _read_frame(reader, self._settings.max_frame_bytes)
            result = await self._run(_decode(data), reader, writer)
            frame = _frame(_Result(result), self._settings.max_frame_bytes)
        except ForebayError as error:
            frame = _frame(_failure(error), self._settings.max_frame_bytes)
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception:  # a fault of a handler ends its call, not the writer
            log.exception("a call on the store's socket failed")
            fault = StoreError("the writer process failed; its log says why.")
            frame = _frame(_failure(fault), self._settings.max_frame_bytes)
        await self._send(writer, frame)

    async def _run(
        self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> object:
        handler = self._handlers.get(request.operation)
        if handler is None:
            raise NotFound(f"the writer knows no operation {request.operation!r}.")

        async def emit(value: object) -> None:
            await self._send(writer, _frame(_Event(value), self._settings.max_frame_bytes))

        late = DeadlineExceeded("the writer did not finish in time.")
        work = handler(request.payload, emit)
        limit_s = min(request.timeout_s, self._settings.max_call_s)
        return await _unless_gone(work, reader, limit_s, late)

    async def _send(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(frame)
        async with asyncio.timeout(self._settings.send_timeout_s):
            await writer.drain()


def _decode(data: bytes) -> _Request:
    try:
        request = msgspec.msgpack.decode(data, type=_Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest("the request is not a message of this protocol.") from error
    if request.protocol != PROTOCOL:
        raise InvalidRequest(
            f"the writer speaks protocol {PROTOCOL}, this process {request.protocol}; "
            "run the same Forebay on both sides."
        )
    return request


class _ClientGone(Exception):
    """The client closed its side, or said more than one request."""


async def _unless_gone(
    work: Awaitable[object],
    reader: asyncio.StreamReader,
    limit_s: float,
    late: DeadlineExceeded,
) -> object:
    """The handler's result; a client that leaves or a limit that passes cancels it."""

    async def watch() -> None:
        await reader.read(1)
        raise _ClientGone

    async def run() -> object:
        try:
            return await work
        finally:
            watcher.cancel()

    failed: BaseException | None = None
    try:
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            worker = group.create_task(run())
    except TimeoutError:
        raise late from None
    except BaseExceptionGroup as errors:
        # Not ``except*``: early 3.11 wraps what is raised inside it into a group again.
        failed = first_error(errors)
        if not isinstance(failed, ForebayError | TimeoutError | _ClientGone):
            raise  # a fault of the handler: its caller logs it whole
    if isinstance(failed, _ClientGone):
        raise ConnectionResetError
    if isinstance(failed, TimeoutError):
        raise late
    if failed is not None:
        raise failed
    return worker.result()


class WriterClient:
    """Calls the process that writes to a folder."""

    def __init__(
        self, folder: Path, settings: RemoteSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._folder = folder
        self._settings = settings or RemoteSettings()
        self._clock = clock or SystemClock()

    async def call(
        self,
        operation: str,
        payload: object,
        *,
        deadline: Deadline,
        on_event: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the operation's result as plain values; events go to ``on_event`` as they come.

        Raises what the handler raised, ``Unavailable`` when no writer answers or it goes away in
        the middle, ``DeadlineExceeded``. Cancelling the call cancels the handler.
        """
        reader, writer = await self._connect(deadline)
        try:
            async with asyncio.timeout(deadline.remaining()):
                request = _Request(PROTOCOL, operation, deadline.remaining(), payload)
                writer.write(_frame(request, self._settings.max_frame_bytes))
                await writer.drain()
                return await self._replies(reader, on_event)
        except TimeoutError:
            raise DeadlineExceeded("the writer did not answer in time.") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Unavailable("the process that writes to this store went away.") from error
        finally:
            writer.close()

    async def _connect(
        self, deadline: Deadline
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        wait_s = deadline.within(self._settings.connect_timeout_s).remaining()
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.open_unix_connection(str(socket_path(self._folder)))
        except TimeoutError:
            raise DeadlineExceeded("the writer did not accept the call in time.") from None
        except OSError as error:
            raise Unavailable("no process that writes to this store answers.") from error

    async def _replies(
        self, reader: asyncio.StreamReader, on_event: Callable[[Any], None] | None
    ) -> Any:
        while True:
            data = await _read_frame(reader, self._settings.max_frame_bytes)
            reply = msgspec.msgpack.decode(data, type=_Reply)
            if isinstance(reply, _Result):
                return reply.value
            if isinstance(reply, _Failure):
                raise _raised(reply)
            if on_event is not None:
                on_event(reply.value)
