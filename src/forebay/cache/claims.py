"""One of many processes makes a value, the others wait for it to appear where all can see it.

Whoever waits does so for a bounded time: a process that died with its claim, and a value that may
not be shared, cost that and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from forebay.cache.versioned import Entry, Found
from forebay.kernel.caching import SharedValues
from forebay.kernel.clock import Deadline

FIRST_LOOK_S = 0.005
LAST_LOOK_S = 0.05
WAIT_SHARE = 0.5
GIVEN_UP = b"given up"
GIVEN_UP_S = 2.0
"""How long it stands, beside the place of a value that was waited for and may not be kept."""


V = TypeVar("V")


class Claims:
    """Claims on values of one kind, by this process; ``patience_s`` bounds every wait."""

    def __init__(self, shared: SharedValues, holder: str, patience_s: float) -> None:
        self._shared = shared
        self._holder = holder
        self._patience_s = patience_s
        self.waited = 0

    async def entry(
        self,
        key: bytes,
        version: int,
        fetch: Callable[[], Awaitable[Found[V]]],
        deadline: Deadline,
    ) -> Entry[V] | None:
        """What another process has made or is making; None: it is this one's to make.

        Versions are claimed apart: a process that is still behind must not hold up the others.
        """
        found = await fetch()
        if found.entry is not None:
            return found.entry
        claim = _claim(key, version)
        # Whoever has it may be dead: what is left of the deadline must do for making it here.
        until = deadline.within(min(self._patience_s, WAIT_SHARE * deadline.remaining()))
        look_s = FIRST_LOOK_S
        while not await self._shared.claim(claim, self._holder, self._patience_s):
            self.waited += 1
            if until.remaining() <= look_s:
                return None
            await asyncio.sleep(look_s)
            look_s = min(look_s * 2, LAST_LOOK_S)
            found = await fetch()
            if found.entry is not None:
                return found.entry
            if await self._shared.get(claim) is not None:
                return None  # whoever was to make it has made something nobody may keep
        return None

    async def give_up(self, key: bytes, version: int) -> None:
        """Tell processes that wait for a value of this version that none will come.

        What stands in the value's place stays: another process may just have put a good one there.
        """
        await self._shared.put(_claim(key, version), GIVEN_UP, GIVEN_UP_S)

    async def release(self, key: bytes, version: int) -> None:
        """This process has made the value, or makes none: nobody has to wait for it any more."""
        await self._shared.release(_claim(key, version), self._holder)


def _claim(key: bytes, version: int) -> bytes:
    """What the claim is called, and, among the values, that it was given up."""
    return key + version.to_bytes(8, "big")
