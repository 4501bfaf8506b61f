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
            if found.entry is not None or found.verdict == "unreadable":
                # Whoever was to make it has, or has given it up for something nobody may keep.
                return found.entry
        return None

    async def release(self, key: bytes, version: int) -> None:
        """This process has made the value, or makes none: nobody has to wait for it any more."""
        await self._shared.release(_claim(key, version), self._holder)


def _claim(key: bytes, version: int) -> bytes:
    return key + version.to_bytes(8, "big")
