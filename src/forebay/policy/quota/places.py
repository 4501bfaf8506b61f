"""Places of tenants at work: how many of their requests all processes may have in work at once.

Each process says how many it holds, again and again; what it does not say for ``PRESENCE_S`` is
free for others. So whatever a process took with it when it died comes back within that time, and
whatever a keeper lost is known again after a beat.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.quotas import LEASE_SHARE, QuotaCall, QuotaReply, WorkPlaces

MAX_TENANTS_A_CALL = 256
MAX_WAITING = 1024
GATHER_S = 0.02
"""How long a place that is free again waits for others to be told with."""


class Placing(Protocol):
    """Where a request gets its place at work."""

    async def enter(self, tenant: str, most: int) -> bool:
        """Take one of ``most`` places, unless all are taken."""
        ...

    def leave(self, tenant: str) -> None:
        """Give one back."""
        ...


class _Held(msgspec.Struct, gc=False):
    held: int
    number: int
    until: float


class PlaceBook:
    """Who holds how many places of whom, as their keeper knows it."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, _Held]] = {}

    def exchange(
        self, process: str, number: int, said: WorkPlaces, now: float, until: float
    ) -> tuple[int, int]:
        """See ``WorkPlaces``; what the process holds is its own ``until`` then."""
        all_held = {
            name: one for name, one in self._tenants.get(said.key, {}).items() if one.until > now
        }
        before = all_held.pop(process, None)
        free = max(0, said.most - said.held - sum(one.held for one in all_held.values()))
        if before is not None and before.number >= number:
            return 0, 0
        given = min(said.wanted, free)
        given += min(said.extra, math.floor((free - given) * LEASE_SHARE))
        all_held[process] = _Held(said.held + given, number, until)
        self._tenants[said.key] = all_held
        return given, free - given


class KeptPlaces:
    """Places for the process that keeps the book itself; see ``Placing``."""

    def __init__(self, book: PlaceBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._number = 0
        self._using: dict[str, int] = {}

    async def enter(self, tenant: str, most: int) -> bool:
        """See ``Placing``."""
        return self._say(tenant, most, 1) > 0

    def leave(self, tenant: str) -> None:
        """See ``Placing``."""
        self._using[tenant] -= 1
        self._say(tenant, 0, 0)
        if not self._using[tenant]:
            del self._using[tenant]

    def _say(self, tenant: str, most: int, wanted: int) -> int:
        self._number += 1
        using = self._using.get(tenant, 0)
        said = WorkPlaces(tenant, most, using, wanted)
        given, _ = self._book.exchange("", self._number, said, self._clock.now(), math.inf)
        if given:
            self._using[tenant] = using + given
        return given


class _Tenant:
    __slots__ = ("idle", "most", "owed", "spare", "tight", "using", "waiting")

    def __init__(self) -> None:
        self.most = self.using = 0
        self.spare = 0  # held for requests to come
        self.idle = 0  # the fewest spare ones since the last beat
        self.tight = True  # too few are left to hold any spare
        self.owed = False  # the keeper has yet to hear how many are held
        self.waiting: list[asyncio.Future[bool | None]] = []


class Carrier(Protocol):
    """The way to the keeper; ``alone``: it does not answer at present."""

    alone: bool

    async def carry(self, call: QuotaCall) -> QuotaReply | None:
        """Exchange a call; None where that failed."""
        ...

    def present(self) -> int:
        """Processes that share the places, as far as is known."""
        ...


class SharedPlaces:
    """Places that a keeper elsewhere gives, while ``run`` is under way; see ``Placing``.

    One call is under way at a time, so that what is said of held places is never older than what
    was said before. While the keeper does not answer, a process has its part of the places.
    """

    def __init__(self, carrier: Carrier, process: str, timeout_s: float) -> None:
        self._carrier = carrier
        self._process = process
        self._timeout_s = timeout_s
        self._number = 0
        self._tenants: dict[str, _Tenant] = {}
        self._due = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None

    async def enter(self, tenant: str, most: int) -> bool:
        """See ``Placing``."""
        one = self._tenants.setdefault(tenant, _Tenant())
        one.most = most
        if one.spare:
            one.spare -= 1
            one.using += 1
            one.idle = min(one.idle, one.spare)
            return True
        if self._carrier.alone or len(one.waiting) >= MAX_WAITING:
            return self._enter_alone(one)
        waiting: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        one.waiting.append(waiting)
        self._due.set()
        got = None
        try:
            async with asyncio.timeout(self._timeout_s):
                got = await waiting
        except TimeoutError:
            # The answer may have come in the very same moment.
            got = None if waiting.cancelled() else waiting.result()
        except BaseException:
            if not waiting.cancelled() and waiting.result():
                self.leave(tenant)
            raise
        return self._enter_alone(one) if got is None else got

    def leave(self, tenant: str) -> None:
        """See ``Placing``."""
        one = self._tenants[tenant]
        one.using -= 1
        if one.tight:
            self._owe(one)
        else:
            one.spare += 1

    async def run(self) -> None:
        """Carry calls until cancelled."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._send()
        finally:
            if self._gathering is not None:
                self._gathering.cancel()

    def beat(self) -> None:
        """Say again what is held, less what nobody used since the last time."""
        for one in self._tenants.values():
            one.spare -= one.idle
            one.idle = one.spare
            one.owed = True
        if self._tenants:
            self._due.set()

    async def farewell(self) -> None:
        """Give all that is spare back, when the process ends."""
        for one in self._tenants.values():
            one.spare, one.owed = 0, True
        while self._tenants and not self._carrier.alone:
            before = len(self._tenants)
            await self._send()
            if len(self._tenants) == before:
                return

    def _enter_alone(self, one: _Tenant) -> bool:
        if one.using >= max(1, one.most // self._carrier.present()):
            return False
        one.using += 1
        self._owe(one)
        return True

    def _owe(self, one: _Tenant) -> None:
        one.owed = True
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self._due.set()

    async def _send(self) -> None:
        due = [(name, one) for name, one in self._tenants.items() if one.owed or one.waiting]
        if len(due) > MAX_TENANTS_A_CALL:
            due = due[:MAX_TENANTS_A_CALL]
            self._due.set()
        asked, said = [], []
        for name, one in due:
            wanted = [waiting for waiting in one.waiting if not waiting.done()]
            one.waiting, one.owed = [], False
            asked.append(wanted)
            held, extra = one.using + one.spare, one.using if wanted else 0
            said.append(WorkPlaces(name, one.most, held, len(wanted), extra))
        if not due:
            return
        self._number += 1
        call = QuotaCall(process=self._process, places=tuple(said), number=self._number)
        reply = None
        try:
            reply = await self._carrier.carry(call)
        finally:
            for at, (name, one) in enumerate(due):
                self._heard(one, asked[at], None if reply is None else reply.places[at])
                if not (one.using or one.spare or one.waiting or one.owed):
                    del self._tenants[name]

    def _heard(
        self, one: _Tenant, asked: list[asyncio.Future[bool | None]], got: tuple[int, int] | None
    ) -> None:
        """Give what came to who waits for it; None: nobody knows, it is said again."""
        given, left = got or (0, 0)
        one.owed = one.owed or got is None
        one.tight = left * LEASE_SHARE < 1
        for waiting in asked:
            if waiting.done():
                continue
            if given:
                given -= 1
                one.using += 1
                waiting.set_result(True)
            else:
                waiting.set_result(None if got is None else False)
        one.spare += given
        if one.tight and one.spare:
            one.spare = 0
            self._owe(one)
