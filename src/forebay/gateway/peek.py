"""A look at a request's first message, if it is there already; who has to wait loses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]


class Peek:
    """``receive`` of an ASGI server, with a look ahead that never waits."""

    __slots__ = ("_begun", "_message", "_receive")

    def __init__(self, receive: Callable[[], Coroutine[Any, Any, Message]]) -> None:
        self._receive = receive
        self._message: Message | None = None
        self._begun: _Begun | None = None

    def look(self) -> Message | None:
        """The first message, still to be received; None: it has not come yet."""
        coroutine = self._receive()
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            message: Message = ended.value
            self._message = message
            return message
        self._begun = _Begun(coroutine, waits_for)
        return None

    @property
    def whole(self) -> bool:
        """Whether all of the body has come, in one message that is still to be received."""
        message = self._message
        return message is not None and not message.get("more_body", False)

    async def __call__(self) -> Message:
        """The next message."""
        if self._message is not None:
            message, self._message = self._message, None
            return message
        if self._begun is not None:
            begun, self._begun = self._begun, None
            return await begun
        return await self._receive()

    def close(self) -> None:
        """Nobody will receive what was begun."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None


class _Begun:
    """A coroutine that was run up to its first wait, to be awaited from there (PEP 380)."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Message], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Message]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # a cancellation is the coroutine's to take
                step = self._throw(error)
            else:
                step = self._send(sent)
            if step[0]:
                message: Message = step[1]
                return message
            waits_for = step[1]

    def _send(self, value: Any) -> tuple[bool, Any]:
        try:
            return False, self._coroutine.send(value)
        except StopIteration as ended:
            return True, ended.value

    def _throw(self, error: BaseException) -> tuple[bool, Any]:
        try:
            return False, self._coroutine.throw(error)
        except StopIteration as ended:
            return True, ended.value

    def close(self) -> None:
        """End it where it waits."""
        self._coroutine.close()
