"""Connections that wait are taken in together, on the loop that servers run on."""

from __future__ import annotations

import asyncio
import errno
import socket
import time

import pytest
import uvloop

from forebay.gateway import listening
from forebay.gateway.listening import AT_ONCE, Listener

WAITING = 2 * AT_ONCE + 10


class Echo(asyncio.Protocol):
    def __init__(self, made: list[Echo]) -> None:
        self.made = made

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def bound() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


def connect(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(count)]


def test_all_that_wait_are_taken_in_within_a_few_turns() -> None:
    async def main() -> None:
        place, made = bound(), list[Echo]()
        port = place.getsockname()[1]
        listener = Listener(place, lambda: Echo(made), 2048)
        clients = connect(port, WAITING)  # the loop does nothing meanwhile
        turns = 0
        while len(made) < WAITING:
            turns += 1
            await asyncio.sleep(0)
            assert turns < 20, len(made)
        clients[-1].sendall(b"x")
        assert await asyncio.to_thread(clients[-1].recv, 1) == b"x"
        nodelay = made[0].transport.get_extra_info("socket")
        assert nodelay.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        listener.close()
        listener.close()
        clients[0].sendall(b"y")
        assert await asyncio.to_thread(clients[0].recv, 1) == b"y", "open ones go on"
        with pytest.raises(ConnectionRefusedError):
            connect(port, 1)
        for client in clients:
            client.close()

    uvloop.run(main())


def test_without_descriptors_it_waits_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(socket.socket):
        failures = 5

        def accept(self) -> tuple[socket.socket, object]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    monkeypatch.setattr(listening, "PAUSE_S", 0.01)

    async def main() -> None:
        made: list[Echo] = []
        place = Full()
        place.bind(("127.0.0.1", 0))
        listener = Listener(place, lambda: Echo(made), 16)
        [client] = connect(place.getsockname()[1], 1)
        began_at = time.monotonic()
        while not made:
            await asyncio.sleep(0.005)
            assert time.monotonic() - began_at < 5
        listener.close()
        client.close()

    uvloop.run(main())
    assert [one.levelname for one in caplog.records if one.name == "forebay.server"] == ["WARNING"]
