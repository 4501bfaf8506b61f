"""uvicorn's HTTP protocol with what faults and departures need of a connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "forebay.connection"
_MAX_HEADER_BYTES = 65_536
_UNREAD_S = 60.0
_RESET = struct.pack("ii", 1, 0)  # linger on, for no time: closing sends RST


class Connection(Protocol):
    """What an exchange sees of its connection."""

    def watch(self, leave: Callable[[], None] | None) -> None:
        """Call ``leave`` when the client closes the connection."""
        ...

    def cut(self) -> None:
        """Close it after what was written, though the answer is not whole."""
        ...


class SimulatedConnection(HttpToolsProtocol):
    """Tells at once when its client leaves; resets new connections while ``resets`` says so.

    A client that sends nothing, or reads nothing of what is written, is dropped after a while.
    """

    resets: Callable[[int], bool]
    _leave: Callable[[], None] | None = None
    _lost = False
    _header_bytes = 0
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or reset it."""
        super().connection_made(transport)
        if type(self).resets(self.port):
            found = transport.get_extra_info("socket")
            if found is not None:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        # uvicorn's own timer for idle connections starts only after a first answer.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    @property
    def port(self) -> int:
        """The local port."""
        return self.server[1] or 0 if self.server is not None else 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever watches."""
        leave, self._leave = self._leave, None
        self._lost = True
        self._unset_keepalive_if_required()
        self._forget_unread()
        super().connection_lost(exc)
        if leave is not None:
            leave()

    def on_message_begin(self) -> None:
        """Give the request its connection."""
        super().on_message_begin()
        self._header_bytes = 0
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Bound what headers may take."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise ValueError("the request's headers are too large")
        super().on_header(name, value)

    def pause_writing(self) -> None:
        """Give a client that does not read a while."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._forget_unread()
        super().resume_writing()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def watch(self, leave: Callable[[], None] | None) -> None:
        """Call ``leave`` when the client closes the connection, now when it already has."""
        if leave is not None and self._lost:
            leave()
            return
        self._leave = leave

    def cut(self) -> None:
        """Close the connection after what was written."""
        self.transport.close()
