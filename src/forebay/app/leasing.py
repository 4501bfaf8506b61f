"""A process's leases of shared knowledge bases and, where it writes, its word to all others.

The rules are in ``forebay.coordination.leases``. Here is what they need around them: renewal at a
third of a lease, bounded calls, the wait of a change, and repair of what the authority forgot or
what a writer that died left behind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count

import msgspec

from forebay.coordination.leases import Acknowledging, HeldLeases
from forebay.kernel.clock import Clock
from forebay.kernel.errors import Unavailable
from forebay.kernel.leases import Grant, LeaseCall, LeaseReply, Pending, VersionAuthority

log = logging.getLogger("forebay.versions")
LEAVE_S = 1.0
FIRST_LOOK_S = 0.002
MOST_BETWEEN_S = 0.02


class LeaseParts(msgspec.Struct, frozen=True):
    """What leases are made of; ``version`` is what this process answers from, None: not open."""

    authority: VersionAuthority
    shared: frozenset[str]
    lease_s: float
    version: Callable[[str], int | None]
    clock: Clock
    writes: bool


class VersionLeases:
    """Leases of the ``shared`` kbs; ``behind`` hears that another version is in force."""

    def __init__(self, parts: LeaseParts) -> None:
        self._parts = parts
        self._name = secrets.token_hex(8)
        self._held = HeldLeases()
        self._told: dict[str, int] = {}
        self._done: dict[str, Pending] = {}
        self._settled: dict[str, int] = {}
        self._changing = {kb: asyncio.Lock() for kb in parts.shared}
        self._settling = {kb: asyncio.Lock() for kb in parts.shared}
        self._numbers = count(1)
        self._moved = asyncio.Event()
        self.away = False
        self.behind: Callable[[], None] = lambda: None

    def leased(self, kb: str, version: int) -> bool:
        """Whether what processes share may be used for ``version`` now."""
        if kb not in self._parts.shared:
            return True
        return self._held.holds(kb, version, self._parts.clock.now())

    def moved(self) -> None:
        """This process answers from another version: confirm that soon."""
        self._moved.set()

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            self._moved.clear()
            with suppress(Unavailable):
                await self.renew()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._parts.lease_s / 3):
                    await self._moved.wait()

    async def renew(self) -> None:
        """Confirm what this process answers from; ``Unavailable`` without the authority."""
        names = sorted(self._parts.shared)
        grants = await self._confirm(names, LeaseCall(self._name, self._parts.lease_s))
        for kb, grant in zip(names, grants.grants, strict=True):
            version = self._parts.version(kb)
            if version is not None and version < grant.version:
                self.behind()
            if self._parts.writes and not self._changing[kb].locked():
                await self._repair(kb, version, grant)

    async def _confirm(self, names: Iterable[str], call: LeaseCall) -> LeaseReply:
        # Who has no index of a kb answers from none, so it confirms whatever is in force.
        versions = [(kb, self._parts.version(kb)) for kb in names]
        confirmed = tuple(
            (kb, self._told.get(kb, 0) if version is None else version) for kb, version in versions
        )
        asked_at = self._parts.clock.now()
        reply = await self._exchange(msgspec.structs.replace(call, confirmed=confirmed))
        for (kb, version), grant in zip(confirmed, reply.grants, strict=True):
            self._told[kb] = grant.version
            self._held.granted(kb, version, grant, asked_at)
        return reply

    async def _repair(self, kb: str, version: int | None, grant: Grant) -> None:
        """Tell an authority that forgot, or that waits for a change of a writer that died."""
        known = max(grant.version, 0 if version is None else version)
        if grant.change or (version is not None and grant.version < version):
            async with self._changing[kb]:
                done = (Pending(kb, known, grant.change),)
                await self._exchange(LeaseCall(self._name, self._parts.lease_s, done=done))
            self._moved.set()

    async def _exchange(self, call: LeaseCall) -> LeaseReply:
        """One bounded call; whether the authority is there is known from the last of them."""
        try:
            async with asyncio.timeout(self._parts.lease_s / 2):
                reply = await self._parts.authority.exchange(call)
        except (TimeoutError, Unavailable) as error:
            if not self.away:
                self.away = True
                why = "it takes too long" if isinstance(error, TimeoutError) else error.__cause__
                log.warning("the authority over shared versions does not answer: %s", why or error)
            raise _away() from error
        if self.away:
            self.away = False
            log.info("the authority over shared versions answers again")
        return reply

    # Changes

    @asynccontextmanager
    async def changing(self, kb: str) -> AsyncIterator[Settling | None]:
        """A change of ``kb`` is committed and shown within; ``Unavailable`` before it is begun.

        Yields what to await before it is acknowledged; None where only this folder's processes
        answer from the kb: they know at once.
        """
        if kb not in self._parts.shared:
            yield None
            return
        async with self._changing[kb]:
            if self.away:
                raise _away()
            before = self._parts.version(kb)
            known = max(self._told.get(kb, 0), 0 if before is None else before)
            pending = Pending(kb, known, f"{self._name}.{next(self._numbers)}")
            await self._exchange(LeaseCall(self._name, self._parts.lease_s, begun=(pending,)))
            over = Acknowledging(self._parts.clock.now(), self._parts.lease_s)
            settling = Settling(self, over, pending)
            try:
                yield settling
            finally:
                after = self._parts.version(kb)
                if after is None:  # dropped: a kb made anew begins above this
                    after = known if before is None else known + 1
                settling.done = msgspec.structs.replace(pending, version=after)
                with suppress(Unavailable):
                    await self._say_done(settling.done)

    async def _say_done(self, done: Pending) -> None:
        """Put a version in force, confirm it, and learn who has not."""
        self._done[done.kb] = done
        call = LeaseCall(self._name, self._parts.lease_s, done=(done,), asked=(done.kb,))
        reply = await self._confirm([done.kb], call)
        # What nobody is below may change again beyond the version that is in force.
        settled = min(reply.lowest[0], done.version)
        self._settled[done.kb] = max(settled, self._settled.get(done.kb, 0))

    async def settle(self, done: Pending, over: Acknowledging) -> None:
        """Wait until no process answers from an older version: a lease's length at most."""
        clock, wait_s = self._parts.clock, FIRST_LOOK_S
        async with self._settling[done.kb]:
            while not over.may(done.version, self._settled.get(done.kb), clock.now()):
                await asyncio.sleep(min(wait_s, max(0.0, over.over_at - clock.now())))
                wait_s = min(wait_s * 1.5, MOST_BETWEEN_S)
                with suppress(Unavailable):
                    # The last of those that were done speaks for the others.
                    await self._say_done(self._done[done.kb])

    async def leave(self) -> None:
        """Have nobody wait for this process; it uses nothing that is shared any more."""
        self._held.clear()
        call = LeaseCall(
            self._name, self._parts.lease_s, asked=tuple(self._parts.shared), leaves=True
        )
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(LEAVE_S):
                await self._exchange(call)

    def shortcomings(self) -> tuple[str, ...]:
        """What works at less than its best, in sentences."""
        if not self.away:
            return ()
        return ("shared knowledge bases take no changes: the authority does not answer",)


class Settling:
    """One change between its commit and its acknowledgement."""

    def __init__(self, leases: VersionLeases, over: Acknowledging, pending: Pending) -> None:
        self._leases = leases
        self._over = over
        self.done = pending

    async def settled(self) -> None:
        """See ``forebay.pipeline.writer.Change``."""
        await self._leases.settle(self.done, self._over)


def _away() -> Unavailable:
    return Unavailable(
        "this knowledge base is shared and the authority over its versions does not answer; "
        "nothing was changed, try again shortly."
    )
