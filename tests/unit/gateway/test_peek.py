"""A look ahead takes nothing from whoever receives after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.gateway.peek import Peek


class Source:
    """What a server would hand over: messages as they are fed."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.cancelled = 0

    def feed(self, text: bytes) -> None:
        self.messages.append({"body": text})
        self.arrived.set()

    async def receive(self) -> dict[str, Any]:
        try:
            while not self.messages:
                self.arrived.clear()
                await self.arrived.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.messages.pop(0)


async def test_what_is_there_is_seen_and_still_received() -> None:
    source = Source()
    source.feed(b"one")
    source.feed(b"two")
    peek = Peek(source.receive)
    assert peek.look() == {"body": b"one"}
    assert [await peek(), await peek()] == [{"body": b"one"}, {"body": b"two"}]
    peek.close()


async def test_what_comes_later_is_waited_for_where_the_look_left_off() -> None:
    source = Source()
    peek = Peek(source.receive)
    assert peek.look() is None
    asyncio.get_running_loop().call_later(0.01, source.feed, b"late")
    async with asyncio.timeout(5):
        assert await peek() == {"body": b"late"}
    source.feed(b"next")
    assert await peek() == {"body": b"next"}


async def test_it_may_have_come_between_the_look_and_the_wait() -> None:
    source = Source()
    peek = Peek(source.receive)
    assert peek.look() is None
    source.feed(b"x")
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await peek() == {"body": b"x"}


async def test_a_wait_that_is_cancelled_reaches_the_server() -> None:
    source = Source()
    peek = Peek(source.receive)
    assert peek.look() is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await peek()
    assert source.cancelled == 1
    source.feed(b"y")
    assert await peek() == {"body": b"y"}


async def test_an_error_of_the_server_is_raised_where_it_is_received() -> None:
    async def broken() -> dict[str, Any]:
        await asyncio.sleep(0)
        raise ConnectionResetError

    peek = Peek(broken)
    assert peek.look() is None
    with pytest.raises(ConnectionResetError):
        await peek()


async def test_what_was_begun_and_nobody_wants_is_ended() -> None:
    source = Source()
    peek = Peek(source.receive)
    assert peek.look() is None
    peek.close()
    peek.close()
    source.feed(b"z")
    assert await peek() == {"body": b"z"}
