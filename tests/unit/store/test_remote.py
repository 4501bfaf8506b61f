"""The folder's socket: results, events and errors cross it; whoever leaves cancels."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from forebay.kernel import errors
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.documents import CommitReceipt
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineRefused,
    ForebayError,
    InvalidRequest,
    NotFound,
    Overloaded,
    RateLimited,
    StoreError,
    StoreFull,
    Unavailable,
)
from forebay.store.remote import (
    ADDRESS_FILE,
    SOCKET_FILE,
    Emit,
    Handler,
    RemoteSettings,
    WriterClient,
    WriterServer,
    socket_path,
)

RECEIPT = CommitReceipt("手册", 7, (("a", "indexed"),), embedded=True)


async def echo(payload: object, emit: Emit) -> object:
    return payload


async def commit(payload: object, emit: Emit) -> object:
    for number in range(3):
        await emit({"done": number})
    return RECEIPT


def failing(error: Exception) -> Handler:
    async def fail(payload: object, emit: Emit) -> object:
        raise error

    return fail


class Waiting:
    """A handler that waits until it is cancelled, and says so."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, payload: object, emit: Emit) -> object:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return None


@asynccontextmanager
async def serving(
    folder: Path, handlers: Mapping[str, Handler], settings: RemoteSettings | None = None
) -> AsyncIterator[WriterServer]:
    server = WriterServer(folder, handlers, settings)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def soon(seconds: float = 10) -> Deadline:
    return Deadline.after(seconds, SystemClock())


async def test_results_and_events_arrive_in_order(tmp_path: Path) -> None:
    events: list[object] = []
    async with serving(tmp_path, {"commit": commit, "echo": echo}):
        client = WriterClient(tmp_path)
        result = await client.call("commit", None, deadline=soon(), on_event=events.append)
        payload = {"text": "手册", "data": b"\0" * 3_000_000, "none": None, "n": [1, 2.5]}
        assert await client.call("echo", payload, deadline=soon()) == payload
    assert msgspec.convert(result, CommitReceipt) == RECEIPT
    assert events == [{"done": 0}, {"done": 1}, {"done": 2}]


async def test_many_calls_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, {"echo": echo}):
        client = WriterClient(tmp_path)
        calls = [client.call("echo", n, deadline=soon()) for n in range(50)]
        assert await asyncio.gather(*calls) == list(range(50))


ERRORS: list[ForebayError] = [
    StoreFull("the disk is full."),
    InvalidRequest("no.", param="kb", code="special"),
    RateLimited("slow down.", retry_after_s=3.5),
    Unavailable("not now.", retry_after_s=2.0),
    EngineRefused("no.", status=413),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_errors_are_raised_again_as_they_were(tmp_path: Path, error: ForebayError) -> None:
    async with serving(tmp_path, {"fail": failing(error)}):
        with pytest.raises(type(error)) as raised:
            await WriterClient(tmp_path).call("fail", None, deadline=soon())
    again = raised.value
    assert type(again) is type(error)
    assert vars(again) == vars(error)


async def test_every_kernel_error_crosses(tmp_path: Path) -> None:
    def tree(kind: type[ForebayError]) -> list[type[ForebayError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in tree(child))]

    extra: dict[str, object] = {"retry_after_s": 1.0, "status": 400}
    # It names a part of one process, which is nothing to another.
    kept_inside = errors.PartFailed
    for kind in tree(ForebayError):
        if kind.__module__ != errors.__name__ or kind is kept_inside:
            continue
        needed = {name: extra[name] for name in extra if name in kind.__init__.__annotations__}
        error = kind("a sentence.", **needed)  # type: ignore[arg-type]
        async with serving(tmp_path, {"fail": failing(error)}):
            with pytest.raises(kind, match="a sentence") as raised:
                await WriterClient(tmp_path).call("fail", None, deadline=soon())
        assert (raised.type, raised.value.code) == (kind, kind.code)


async def test_a_part_that_failed_is_unavailable_elsewhere(tmp_path: Path) -> None:
    async with serving(tmp_path, {"fail": failing(errors.PartFailed("words", "slow"))}):
        with pytest.raises(Unavailable, match="does not serve") as raised:
            await WriterClient(tmp_path).call("fail", None, deadline=soon())
    assert raised.type is Unavailable


class PrivateError(StoreFull):
    """A class the other side does not know."""


async def test_an_unknown_class_is_raised_as_the_nearest_known(tmp_path: Path) -> None:
    async with serving(tmp_path, {"fail": failing(PrivateError("full."))}):
        with pytest.raises(StoreFull) as raised:
            await WriterClient(tmp_path).call("fail", None, deadline=soon())
    assert raised.type is StoreFull


async def test_a_fault_is_logged_and_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = {"fail": failing(ValueError("secret /path")), "slow": failing(OSError("disk"))}
    async with serving(tmp_path, handlers):
        for operation in handlers:
            with pytest.raises(StoreError) as raised:
                await WriterClient(tmp_path).call(operation, None, deadline=soon())
            assert "secret" not in raised.value.message
    assert "secret" in caplog.text


async def test_an_unknown_operation(tmp_path: Path) -> None:
    async with serving(tmp_path, {}):
        with pytest.raises(NotFound):
            await WriterClient(tmp_path).call("commit", None, deadline=soon())


async def test_a_client_that_leaves_cancels_its_handler(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, {"wait": waiting}) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(WriterClient(tmp_path).call("wait", None, deadline=soon()))
            await asyncio.wait_for(waiting.started.wait(), 5)
            call.cancel()
        await asyncio.wait_for(waiting.cancelled.wait(), 5)
        async with asyncio.timeout(5):
            while server.statistics()["calls"]:
                await asyncio.sleep(0.001)


async def test_a_deadline_ends_the_call_on_both_sides(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, {"wait": waiting}):
        with pytest.raises(DeadlineExceeded):
            await WriterClient(tmp_path).call("wait", None, deadline=soon(0.1))
        await asyncio.wait_for(waiting.cancelled.wait(), 5)


async def test_the_server_bounds_a_call_too(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, {"wait": waiting}, RemoteSettings(max_call_s=0.05)):
        with pytest.raises(DeadlineExceeded, match="did not finish"):
            await WriterClient(tmp_path).call("wait", None, deadline=soon())
    assert waiting.cancelled.is_set()


async def test_a_writer_that_closes_tells_its_clients(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, {"wait": waiting}) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(
                _error(WriterClient(tmp_path).call("wait", None, deadline=soon()))
            )
            await asyncio.wait_for(waiting.started.wait(), 5)
            await server.close()
        assert isinstance(call.result(), Unavailable)
    assert waiting.cancelled.is_set()
    assert not (tmp_path / SOCKET_FILE).exists()
    assert isinstance(
        await _error(WriterClient(tmp_path).call("echo", None, deadline=soon())), Unavailable
    )


async def _error(call: object) -> BaseException | None:
    try:
        await call  # type: ignore[misc]
    except ForebayError as error:
        return error
    return None


async def test_calls_are_bounded(tmp_path: Path) -> None:
    waiting = Waiting()
    settings = RemoteSettings(max_connections=1)
    async with serving(tmp_path, {"wait": waiting, "echo": echo}, settings):
        client = WriterClient(tmp_path)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.call("wait", None, deadline=soon()))
            await asyncio.wait_for(waiting.started.wait(), 5)
            with pytest.raises(Overloaded):
                await client.call("echo", 1, deadline=soon())
            call.cancel()
        await asyncio.wait_for(waiting.cancelled.wait(), 5)
        async with asyncio.timeout(5):
            while await _error(client.call("echo", 1, deadline=soon())):
                await asyncio.sleep(0.001)


async def test_messages_are_bounded_on_both_sides(tmp_path: Path) -> None:
    async def big(payload: object, emit: Emit) -> object:
        return b"x" * 5000

    small = RemoteSettings(max_frame_bytes=2048)
    async with serving(tmp_path, {"big": big, "echo": echo}, small):
        with pytest.raises(InvalidRequest, match="over the bound"):
            await WriterClient(tmp_path, small).call("echo", b"x" * 5000, deadline=soon())
        with pytest.raises(InvalidRequest, match="over the bound"):
            await WriterClient(tmp_path).call("echo", b"x" * 5000, deadline=soon())
        with pytest.raises(InvalidRequest, match="over the bound"):
            await WriterClient(tmp_path).call("big", None, deadline=soon())


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x02\xc1\xc1",
        b"\0\0\0\x01\x90",
        b"\0\0\xff\xff" + b"\x91" * 0xFFFF,
        b"\0\0\0\x10half",
        b"",
    ],
    ids=["http", "not msgpack", "empty list", "deep", "cut", "nothing"],
)
async def test_foreign_bytes_harm_nothing(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path, {"echo": echo}):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_FILE))
        writer.write(data)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer == b"" or b"InvalidRequest" in answer
        writer.close()
        assert await WriterClient(tmp_path).call("echo", 1, deadline=soon()) == 1


async def test_a_client_that_says_nothing_is_let_go(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, RemoteSettings(request_timeout_s=0.05)):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_FILE))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_a_client_that_does_not_read_is_let_go(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def flood(payload: object, emit: Emit) -> object:
        try:
            while True:
                await emit(b"x" * 100_000)
        finally:
            ended.set()

    async with serving(tmp_path, {"flood": flood}, RemoteSettings(send_timeout_s=0.1)):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / SOCKET_FILE))
            body = msgspec.msgpack.encode([1, "flood", 60.0, None])
            deaf.sendall(len(body).to_bytes(4, "big") + body)
            await asyncio.wait_for(ended.wait(), 5)


async def test_another_protocol_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, {"echo": echo}):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_FILE))
        body = msgspec.msgpack.encode([99, "echo", 1.0, None])
        writer.write(len(body).to_bytes(4, "big") + body)
        assert b"run the same Forebay" in await asyncio.wait_for(reader.read(), 5)
        writer.close()


async def test_the_socket_is_private_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / SOCKET_FILE))
    assert isinstance(
        await _error(WriterClient(tmp_path).call("echo", 1, deadline=soon())), Unavailable
    )
    async with serving(tmp_path, {"echo": echo}):
        assert stat.S_IMODE((tmp_path / SOCKET_FILE).stat().st_mode) == 0o600
        assert await WriterClient(tmp_path).call("echo", 1, deadline=soon()) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("很长" * 20) / ("d" * 100)
    folder.mkdir(parents=True)
    async with serving(folder, {"echo": echo}) as server:
        path = server.path
        assert path is not None
        assert path == socket_path(folder) != folder / SOCKET_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await WriterClient(folder).call("echo", 1, deadline=soon()) == 1
    assert not path.parent.exists()
    assert not (folder / ADDRESS_FILE).exists()


async def test_a_killed_writers_short_path_is_cleaned_up(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    first = WriterServer(folder, {"echo": echo})
    await first.start()
    left = first.path
    assert left is not None
    async with serving(folder, {"echo": echo}) as second:  # as after a kill: nobody closed
        assert second.path != left
        assert not left.parent.exists()
        assert await WriterClient(folder).call("echo", 1, deadline=soon()) == 1
    await first.close()


@pytest.mark.parametrize("make", [lambda folder: folder / "none"])
async def test_no_folder_no_writer(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    assert isinstance(
        await _error(WriterClient(make(tmp_path)).call("echo", 1, deadline=soon())), Unavailable
    )
    with pytest.raises(StoreError):
        await WriterServer(make(tmp_path), {}).start()
