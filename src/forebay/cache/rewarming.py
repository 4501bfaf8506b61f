"""What is asked often and was touched by a change is searched again before somebody asks (F2.9).

Only in time that nobody else wants: one search at a time, of the lowest priority, begun only while
no other is under way and the loop is on time, so many a second, and followed by a rest that keeps
it below its share. What is touched again and again while there is no such time is searched once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from forebay.cache.versioned import Found
from forebay.kernel.caching import Served
from forebay.kernel.clock import Clock
from forebay.kernel.context import Principal
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import SearchRequest

log = logging.getLogger("forebay.rewarming")
OFTEN = 2
"""So many hits make a search one that is asked often."""
LOOK_S = 0.25
LATE_S = 0.02
"""A loop that is later than this is busy."""
SLICE = 16
"""Entries that are judged before others may go on; each takes fractions of a millisecond."""


class RewarmingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Background searches for what changes touched."""

    enabled: Annotated[
        bool,
        Meta(
            description="Search again in the background, while there is nothing else to do, what "
            "is asked often and was touched by a change."
        ),
    ] = False
    per_s: Annotated[
        float, Meta(description="Searches in the background per second at most.", gt=0.0)
    ] = 5.0
    share: Annotated[
        float,
        Meta(
            description="Share of one search at a time that the background may use; the rest of "
            "the time it rests.",
            gt=0.0,
            le=1.0,
        ),
    ] = 0.1
    most: Annotated[
        int, Meta(description="Searches that are remembered as asked often.", ge=1, le=10_000)
    ] = 256


class _Asked(NamedTuple):
    principal: Principal
    request: SearchRequest
    hits: int


class RewarmingParts(msgspec.Struct, frozen=True):
    """What the background works with; ``current`` None: this process is behind, look later.

    ``seen`` judges without counting, ``idle`` says whether nobody searches or waits.
    """

    current: Callable[[str], Served | None]
    seen: Callable[[bytes, Served], Found[Any]]
    search: Callable[[Principal, SearchRequest], Awaitable[object]]
    idle: Callable[[], bool]
    clock: Clock
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class Rewarmer:
    """Remembers who asked what often, and asks it again; confined to one event loop."""

    def __init__(self, parts: RewarmingParts, settings: RewarmingSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._asked: OrderedDict[bytes, _Asked] = OrderedDict()
        self._looked: dict[str, int] = {}
        self._made = self._failed = 0

    def hit(self, key: bytes, principal: Principal, request: SearchRequest) -> None:
        """An entry answered."""
        before = self._asked.pop(key, None)
        self._asked[key] = _Asked(principal, request, 1 if before is None else before.hits + 1)
        if len(self._asked) > self._settings.most:
            self._asked.popitem(last=False)

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._free()
            for kb in {one.request.kb for one in self._asked.values()}:
                await self._follow(kb)

    def statistics(self) -> dict[str, int]:
        """Searches made again, and those that failed."""
        return {"rewarmed": self._made, "rewarming_failed": self._failed}

    async def _free(self) -> None:
        """Wait until nobody searches and the loop has nothing to do."""
        while True:
            slept_at = self._parts.clock.now()
            await self._parts.sleep(LOOK_S)
            late_s = self._parts.clock.now() - slept_at - LOOK_S
            if late_s <= LATE_S and self._parts.idle():
                return

    async def _follow(self, kb: str) -> None:
        served = self._parts.current(kb)
        if served is None or self._looked.get(kb, 0) >= served.version:
            return
        touched = await self._touched(kb, served)
        if touched is None:
            return
        self._looked[kb] = served.version
        for key in touched:
            await self._free()
            # Somebody may have asked meanwhile, and a later change is looked at later.
            now, asked = self._parts.current(kb), self._asked.get(key)
            if now is None or asked is None or self._parts.seen(key, now).verdict != "touched":
                continue
            await self._again(asked)

    async def _touched(self, kb: str, served: Served) -> list[bytes] | None:
        """Keys of what is asked often and holds no more, the hottest first; None: look later."""
        often = [
            (asked.hits, key)
            for key, asked in self._asked.items()
            if asked.hits >= OFTEN and asked.request.kb == kb
        ]
        often.sort(reverse=True)
        touched = []
        for number, (_, key) in enumerate(often, 1):
            verdict = self._parts.seen(key, served).verdict
            if verdict == "behind":
                return None
            if verdict == "touched":
                touched.append(key)
            if number % SLICE == 0:
                await self._parts.sleep(0)
        return touched

    async def _again(self, asked: _Asked) -> None:
        clock, settings = self._parts.clock, self._settings
        began_at = clock.now()
        try:
            await self._parts.search(asked.principal, asked.request)
            self._made += 1
        except (ForebayError, TimeoutError):  # nobody waits for it
            self._failed += 1
        except Exception:  # whatever fails here, the service goes on
            self._failed += 1
            log.exception("a search in the background failed")
        took_s = clock.now() - began_at
        rest_s = took_s * (1.0 / settings.share - 1.0)
        await self._parts.sleep(max(rest_s, 1.0 / settings.per_s - took_s))
