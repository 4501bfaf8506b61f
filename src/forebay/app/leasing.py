"""A process's leases of shared knowledge bases and, where it writes, its word to all others.

The rules are in ``forebay.coordination.leases``. Here is what they need around them: renewal at a
third of a lease, bounded calls, the wait of a change, the place of the one writer, and repair of
what the authority forgot or what a writer that died left behind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count

import msgspec

from forebay.coordination.leases import Acknowledging, HeldLeases
from forebay.kernel.clock import Clock
from forebay.kernel.errors import ForebayError, Unavailable
from forebay.kernel.leases import (
    FOREIGN,
    GONE,
    YOUNG,
    Claim,
    Grant,
    LeaseCall,
    LeaseReply,
    Pending,
    Seat,
    VersionAuthority,
)

log = logging.getLogger("forebay.versions")
LEAVE_S = 1.0
FIRST_LOOK_S = 0.002
MOST_BETWEEN_S = 0.02
PATIENT_LEASES = 1.5
"""A process that began less than that ago waits to be the writer: its predecessor's registration,
or an authority's doubt, is over after one."""


class History(msgspec.Struct, frozen=True):
    """The store of a process that writes, as the authority tells it from others.

    ``mark`` of a version, None where the store has none; ``key``: where the authority keeps a kb.
    """

    store: str
    mark: Callable[[str, int], Awaitable[int | None]]
    key: Callable[[str], str]


class LeaseParts(msgspec.Struct, frozen=True):
    """What leases are made of; ``version`` is what this process answers from, None: not open.

    ``history``: None where the process only reads.
    """

    authority: VersionAuthority
    shared: frozenset[str]
    lease_s: float
    version: Callable[[str], int | None]
    clock: Clock
    history: History | None


class VersionLeases:
    """Leases of the ``shared`` kbs; ``behind`` hears that another version is in force."""

    def __init__(self, parts: LeaseParts) -> None:
        self._parts = parts
        self._name = secrets.token_hex(8)
        self._held = HeldLeases()
        self._told: dict[str, int] = {}
        self._done: dict[str, Pending] = {}
        self._settled: dict[str, int] = {}
        self._seats: dict[str, Seat] = {}
        self._calls = count(1)
        self._heard_of: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._patient_until = parts.clock.now() + PATIENT_LEASES * parts.lease_s
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
        claims = await self._claims(names)
        call = LeaseCall(self._name, self._parts.lease_s, claims)
        reply = await self._confirm(names, call)
        if any(map(_outdated, claims, reply.seats)):
            claims = await self._claims(names)
            reply = await self._confirm(names, msgspec.structs.replace(call, claims=claims))
        for kb, grant in zip(names, reply.grants, strict=True):
            version = self._parts.version(kb)
            if version is not None and version < grant.version:
                self.behind()
        for claim, seat, grant in zip(claims, reply.seats, reply.grants, strict=False):
            if not seat.refusal and not self._changing[claim.kb].locked():
                await self._repair(claim.kb, seat, grant)

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

    async def _repair(self, kb: str, seat: Seat, grant: Grant) -> None:
        """Tell an authority that forgot, or that waits for a change of a writer that died.

        A kb that was dropped and made anew, empty, has the number of its end and another mark.
        """
        version = self._parts.version(kb)
        known = grant.version if version is None else max(grant.version, version)
        mark = "" if version is None else await self._mark(kb, known)
        if grant.change or grant.version < known or mark not in ("", seat.mark):
            async with self._changing[kb]:
                done = (Pending(kb, known, grant.change, mark),)
                await self._exchange(LeaseCall(self._name, self._parts.lease_s, done=done))
            self._moved.set()

    # The one writer

    async def _claims(self, names: Iterable[str]) -> tuple[Claim, ...]:
        history = self._parts.history
        if history is None:
            return ()
        claims = []
        for kb in names:
            seat = self._seats.get(kb, Seat(YOUNG))
            held = not seat.refusal
            # Who is known to the authority is not asked for marks; who is not, hears what to name.
            mark = "" if held or seat.version < 0 else await self._mark(kb, seat.version)
            claims.append(Claim(kb, history.store, -1 if held else seat.version, mark, held))
        return tuple(claims)

    async def _mark(self, kb: str, version: int) -> str:
        assert self._parts.history is not None
        try:
            async with asyncio.timeout(self._parts.lease_s / 2):
                mark = await self._parts.history.mark(kb, version)
        except (TimeoutError, ForebayError) as error:
            raise Unavailable("the store does not answer; try again shortly.") from error
        return "" if mark is None else f"{mark & 0xFFFFFFFFFFFFFFFF:016x}"

    def _heard(self, number: int, claim: Claim, seat: Seat) -> None:
        """Keep an answer; what stands in the way of changes is logged when it begins and ends."""
        kb = claim.kb
        if number < self._heard_of.get(kb, 0):
            return  # a later call was answered first
        self._heard_of[kb] = number
        self._seats[kb], self._told[kb] = seat, seat.version
        if seat.refusal == YOUNG or _outdated(claim, seat):
            return  # it is asked again soon
        why = seat.refusal
        if why != FOREIGN and self._parts.clock.now() < self._patient_until:
            why = ""
        if why == self._refused.get(kb, ""):
            return
        self._refused[kb] = why
        if why:
            log.warning("changes of %s are refused: %s", kb, self._reason(kb, why))
        else:
            log.info("changes of %s are taken again", kb)

    def _reason(self, kb: str, why: str) -> str:
        if why == YOUNG:
            return (
                "the authority over its versions may have forgotten its writer, which has "
                "one lease to come back"
            )
        if why != FOREIGN:
            return (
                "another server with a store folder of its own is its writer; send changes there, "
                "or stop that server, or give this one its own coordination.redis_prefix"
            )
        assert self._parts.history is not None
        return (
            "this server's store folder does not hold its last version; start the folder that "
            f"does, or delete the key {self._parts.history.key(kb)} in Redis to go on from this one"
        )

    def _unseated(self, kb: str, what: str) -> Unavailable:
        reason = self._reason(kb, self._seats[kb].refusal)
        return Unavailable(f"this knowledge base is shared and {reason}; {what}.")

    async def _begin(self, kb: str) -> Pending:
        """Announce a change as the writer; ``Unavailable`` when another is it."""
        change = f"{self._name}.{next(self._numbers)}"
        while True:
            claims = await self._claims([kb])
            before = self._parts.version(kb)
            known = max(self._told.get(kb, 0), 0 if before is None else before)
            seat = self._seats.get(kb, Seat(YOUNG))
            mark = seat.mark if seat.version == known else await self._mark(kb, known)
            pending = Pending(kb, known, change, mark)
            call = LeaseCall(self._name, self._parts.lease_s, claims, begun=(pending,))
            [seat] = (await self._exchange(call)).seats
            if not seat.refusal:
                return pending
            if _outdated(claims[0], seat):
                continue
            if seat.refusal == FOREIGN or self._parts.clock.now() >= self._patient_until:
                raise self._unseated(kb, "nothing was changed")
            await asyncio.sleep(self._parts.lease_s / 20)

    async def _exchange(self, call: LeaseCall) -> LeaseReply:
        """One bounded call; whether the authority is there is known from the last of them."""
        number = next(self._calls)
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
        for claim, seat in zip(call.claims, reply.seats, strict=True):
            self._heard(number, claim, seat)
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
            pending = await self._begin(kb)
            over = Acknowledging(self._parts.clock.now(), self._parts.lease_s)
            settling = Settling(self, over, pending)
            try:
                yield settling
            finally:
                after, mark = self._parts.version(kb), ""
                if after is None and before is None:
                    after, mark = pending.version, pending.mark
                elif after is None:  # dropped: a kb made anew begins at this or above
                    after, mark = pending.version + 1, GONE
                settling.done = msgspec.structs.replace(pending, version=after, mark=mark)
                with suppress(Unavailable):
                    await self._say_done(settling.done)

    async def _say_done(self, done: Pending) -> None:
        """Put a version in force, confirm it, and learn who has not."""
        self._done[done.kb] = done
        if not done.mark:
            mark = await self._mark(done.kb, done.version)
            done = self._done[done.kb] = msgspec.structs.replace(done, mark=mark)
        claims = await self._claims([done.kb])
        call = LeaseCall(self._name, self._parts.lease_s, claims, done=(done,), asked=(done.kb,))
        reply = await self._confirm([done.kb], call)
        if not reply.seats[0].refusal and reply.grants[0].version == done.version:
            self._seats[done.kb] = Seat("", done.version, done.mark)
        # What nobody is below may change again beyond the version that is in force.
        settled = min(reply.lowest[0], done.version)
        self._settled[done.kb] = max(settled, self._settled.get(done.kb, 0))

    async def settle(self, done: Pending, over: Acknowledging) -> None:
        """Wait until no process answers from an older version: a lease's length at most.

        ``Unavailable`` when another became the writer before the change was in force.
        """
        clock, wait_s = self._parts.clock, FIRST_LOOK_S
        async with self._settling[done.kb]:
            while not self._seats[done.kb].refusal and not over.may(
                done.version, self._settled.get(done.kb), clock.now()
            ):
                await asyncio.sleep(min(wait_s, max(0.0, over.over_at - clock.now())))
                wait_s = min(wait_s * 1.5, MOST_BETWEEN_S)
                with suppress(Unavailable):
                    # The last of those that were done speaks for the others.
                    await self._say_done(self._done[done.kb])
        if self._seats[done.kb].refusal:
            raise self._unseated(done.kb, "what was changed here is not in force")

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
        if self.away:
            return ("shared knowledge bases take no changes: the authority does not answer",)
        return tuple(
            f"{kb} takes no changes: {self._reason(kb, why)}"
            for kb, why in self._refused.items()
            if why
        )


class Settling:
    """One change between its commit and its acknowledgement."""

    def __init__(self, leases: VersionLeases, over: Acknowledging, pending: Pending) -> None:
        self._leases = leases
        self._over = over
        self.done = pending

    async def settled(self) -> None:
        """See ``forebay.pipeline.writer.Change``."""
        await self._leases.settle(self.done, self._over)


def _outdated(claim: Claim, seat: Seat) -> bool:
    """Whether a claim was refused that named a version no longer in force: claim again."""
    return seat.refusal == FOREIGN and claim.version != seat.version


def _away() -> Unavailable:
    return Unavailable(
        "this knowledge base is shared and the authority over its versions does not answer; "
        "nothing was changed, try again shortly."
    )
