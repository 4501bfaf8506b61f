"""Standard input that ends only once everything it asked has been answered.

The protocol's own loop cancels running calls when its input ends; a script that pipes its
requests in would never see the last answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any


class Unanswered:
    """Requests that were read and have no answer yet, by their ids."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._ids: set[str | int] = set()
        self._none = asyncio.Event()
        self._none.set()

    def asked(self, message: Any) -> None:
        """Note what the client sent: a request, or that it no longer wants one's answer."""
        if getattr(message, "method", None) == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))
        elif hasattr(message, "method") and hasattr(message, "id"):
            self._ids.add(message.id)
            self._none.clear()

    def answered(self, message: Any) -> None:
        """Note what the server wrote; its own requests are no answers."""
        if not hasattr(message, "method"):
            self._settle(getattr(message, "id", None))

    async def settled(self) -> None:
        """Wait until nothing is open, at most as long as an answer may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                await self._none.wait()

    def _settle(self, request_id: str | int | None) -> None:
        if request_id is not None:
            self._ids.discard(request_id)
        if not self._ids:
            self._none.set()


class _Stream:
    """A stream of the protocol that is closed as the one inside is."""

    def __init__(self, inner: Any, unanswered: Unanswered) -> None:
        self._inner = inner
        self._unanswered = unanswered

    async def aclose(self) -> None:
        """Close the stream inside."""
        await self._inner.aclose()

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        ended: bool | None = await self._inner.__aexit__(kind, error, trace)
        return ended


class Requests(_Stream):
    """What the client sends; its end waits for the answers."""

    @property
    def last_context(self) -> Any:
        """The context variables of the last message's sender."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        """The next message; at the end the inner stream's own error."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return await self._inner.receive()

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await anext(self._inner)
        except StopAsyncIteration:
            await self._unanswered.settled()
            raise
        self._unanswered.asked(getattr(item, "message", None))
        return item


class Answers(_Stream):
    """What the server writes."""

    async def send(self, item: Any, /) -> None:
        """Write a message, then note that it is written."""
        try:
            await self._inner.send(item)
        finally:
            self._unanswered.answered(getattr(item, "message", None))
