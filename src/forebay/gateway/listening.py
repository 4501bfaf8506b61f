"""Takes connections in: all that wait, at each turn of the loop.

libuv takes one a turn. On a busy process, whose turns take 50 ms, that is twenty a second: others
wait in the kernel's queue, whose overflow a client notices after one, three, seven or fifteen
seconds, when it tries again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

log = logging.getLogger("forebay.server")

AT_ONCE = 64
"""Taken in one turn: what is open already has its turn, too."""
PAUSE_S = 0.1
"""As many as there is room for are taken after each: a queue of the dead is soon worked off."""
WARN_S = 10.0


class Listener:
    """Makes a protocol for each connection to ``bound``; begun at once, ended by ``close``."""

    def __init__(
        self, bound: socket.socket, make: Callable[[], asyncio.Protocol], backlog: int
    ) -> None:
        self._bound = bound
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._quiet_until = self._loop.time()
        self._closed = False
        bound.setblocking(False)
        bound.listen(backlog)
        self._loop.add_reader(bound, self._take)

    def close(self) -> None:
        """Take no more in; open connections go on. May be called again."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._bound)
        self._bound.close()

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                made, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Out of descriptors or memory: what waits may wait until something was closed.
                if self._loop.time() >= self._quiet_until:
                    self._quiet_until = self._loop.time() + WARN_S
                    log.warning("no connection can be taken in (%s)", error.strerror)
                self._loop.remove_reader(self._bound)
                self._pause = self._loop.call_later(PAUSE_S, self._go_on)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._open(made))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _go_on(self) -> None:
        self._loop.add_reader(self._bound, self._take)

    async def _open(self, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, made)
        except OSError:
            # It went away again.
            made.close()
