"""What every store of shared values keeps to; a test class inherits it, a fixture fills it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from forebay.kernel.caching import SharedValues

LONG_S = 60.0
SHORT_S = 0.05
WAIT_S = 10.0


def new_key() -> bytes:
    """A key nobody used before, with bytes in it that are no text."""
    return b"\0\xff\r\n:{*}" + secrets.token_bytes(12)


async def until(call: Callable[[], Awaitable[object]], expected: object) -> None:
    """Ask again and again; fails when that is not said in time."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if await call() == expected:
                return
            await asyncio.sleep(SHORT_S)


class SharedValuesConformance:
    """Give it a fixture ``shared``; every test takes keys of its own."""

    async def test_what_was_put_is_got_byte_for_byte(self, shared: SharedValues) -> None:
        everything = bytes(range(256)) * 40
        for value in (b"", b"\0", b"\r\n", everything):
            key = new_key()
            assert await shared.get(key) is None
            await shared.put(key, value, LONG_S)
            assert await shared.get(key) == value

    async def test_the_last_value_counts(self, shared: SharedValues) -> None:
        key = new_key()
        for value in (b"one", b"two", b"three"):
            await shared.put(key, value, LONG_S)
        assert await shared.get(key) == b"three"

    async def test_a_value_ends_with_its_life(self, shared: SharedValues) -> None:
        short, long = new_key(), new_key()
        await shared.put(short, b"x", SHORT_S)
        await shared.put(long, b"y", LONG_S)
        # What is on its way to a store begins to live when it arrives there.
        await until(lambda: shared.get(short), None)
        assert await shared.get(long) == b"y"

    async def test_one_holder_has_the_claim_until_its_end(self, shared: SharedValues) -> None:
        held, ended = new_key(), new_key()
        assert await shared.claim(held, "one", LONG_S)
        assert not await shared.claim(held, "two", LONG_S)
        assert await shared.claim(ended, "one", SHORT_S)
        await asyncio.sleep(3 * SHORT_S)
        assert await shared.claim(ended, "two", LONG_S)
        assert not await shared.claim(ended, "one", LONG_S)

    async def test_a_holder_prolongs_its_claim(self, shared: SharedValues) -> None:
        key = new_key()
        assert await shared.claim(key, "one", SHORT_S)
        assert await shared.claim(key, "one", LONG_S)
        await asyncio.sleep(3 * SHORT_S)
        assert not await shared.claim(key, "two", LONG_S)

    async def test_a_claim_that_is_released_is_free_and_only_its_holder_can(
        self, shared: SharedValues
    ) -> None:
        key = new_key()
        assert await shared.claim(key, "one", LONG_S)
        await shared.release(key, "two")
        await asyncio.sleep(SHORT_S)
        assert not await shared.claim(key, "two", LONG_S)
        await shared.release(key, "one")
        await until(lambda: shared.claim(key, "two", LONG_S), True)
        assert not await shared.claim(key, "one", LONG_S)

    async def test_cleared_it_has_no_value(self, shared: SharedValues) -> None:
        keys = [new_key() for _ in range(150)]
        for key in keys:
            await shared.put(key, b"x", LONG_S)
        await asyncio.sleep(SHORT_S)
        await shared.put(keys[0], b"y", LONG_S)
        await shared.clear()
        assert [await shared.get(key) for key in keys] == [None] * len(keys)

    async def test_of_many_at_once_one_has_the_claim(self, shared: SharedValues) -> None:
        key = new_key()
        claimed = await asyncio.gather(*(shared.claim(key, str(n), LONG_S) for n in range(8)))
        assert sum(claimed) == 1

    async def test_claims_and_values_are_apart(self, shared: SharedValues) -> None:
        key = new_key()
        assert await shared.claim(key, "one", LONG_S)
        assert await shared.get(key) is None
        await shared.put(key, b"x", LONG_S)
        assert await shared.claim(key, "one", LONG_S)
        assert await shared.get(key) == b"x"
