"""What every version authority keeps to; a test class inherits it, fixtures fill it.

``passes`` lets seconds go by for the authority: really, or on its clock. Where they go by really,
a machine that stops for a third of ``lease_s`` fails a test: choose it with that in mind.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import msgspec

from forebay.kernel.leases import (
    EVERYBODY,
    FOREIGN,
    GONE,
    TAKEN,
    YOUNG,
    Claim,
    Grant,
    LeaseCall,
    LeaseReply,
    Pending,
    Seat,
    VersionAuthority,
)

Passes = Callable[[float], Awaitable[None]]


def new_name() -> str:
    """A kb nobody used before, with everything in it that a key may hold."""
    return f"资料/{secrets.token_hex(6)} {{x}}:*\n"


def as_writer(*kbs: str) -> tuple[Claim, ...]:
    """Claims of who was their writer."""
    return tuple(Claim(kb, "store", held=True) for kb in kbs)


class LeaseConformance:
    """Give it the fixtures ``authority`` and ``passes``; every test takes a kb of its own."""

    lease_s = 0.2

    async def known(self, authority: VersionAuthority, passes: Passes, version: int = 5) -> str:
        """A kb at ``version`` that the authority has known for longer than a lease."""
        kb = new_name()
        done = (Pending(kb, version, "first", f"mark {version}"),)
        await authority.exchange(LeaseCall("w", self.lease_s, as_writer(kb), done=done))
        await passes(self.lease_s + 0.01)
        return kb

    async def asks(
        self, authority: VersionAuthority, kb: str, holder: str, confirmed: int
    ) -> Grant:
        """What ``holder`` gets."""
        call = LeaseCall(holder, self.lease_s, confirmed=((kb, confirmed),))
        return (await authority.exchange(call)).grants[0]

    async def lowest(self, authority: VersionAuthority, kb: str) -> int:
        """What nobody is below."""
        return (await authority.exchange(LeaseCall("writer", self.lease_s, asked=(kb,)))).lowest[0]

    async def test_who_confirms_the_version_in_force_gets_a_lease(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        assert await self.asks(authority, kb, "old", 4) == Grant(0.0, 5)
        for version in (5, 6):
            grant = await self.asks(authority, kb, f"h{version}", version)
            assert abs(grant.lasts_s - self.lease_s) < 1e-6 and grant.version == 5
        assert await self.lowest(authority, kb) == 5

    async def test_leases_run_out(self, authority: VersionAuthority, passes: Passes) -> None:
        kb = await self.known(authority, passes)
        assert await self.lowest(authority, kb) == EVERYBODY
        await self.asks(authority, kb, "a", 5)
        await passes(self.lease_s / 2)
        await self.asks(authority, kb, "b", 5)
        assert await self.lowest(authority, kb) == 5
        await passes(self.lease_s * 0.6)
        assert await self.lowest(authority, kb) == 5, "b still holds"
        await passes(self.lease_s * 0.6)
        assert await self.lowest(authority, kb) == EVERYBODY

    async def test_a_change_waits_for_each_holder(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        for holder in ("a", "b"):
            await self.asks(authority, kb, holder, 5)
        await authority.exchange(LeaseCall("w", self.lease_s, begun=(Pending(kb, 5, "c"),)))
        done = LeaseCall("w", self.lease_s, done=(Pending(kb, 6, "c"),), asked=(kb,))
        assert (await authority.exchange(done)).lowest == (5,)
        assert await self.asks(authority, kb, "b", 5) == Grant(0.0, 6)
        assert (await self.asks(authority, kb, "a", 6)).lasts_s > 0
        assert await self.lowest(authority, kb) == 5
        await self.asks(authority, kb, "b", 7)
        assert await self.lowest(authority, kb) == 6

    async def test_leases_end_one_length_after_a_change_was_announced(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        await authority.exchange(LeaseCall("w", self.lease_s, begun=(Pending(kb, 5, "c"),)))
        await passes(self.lease_s * 0.5)
        grant = await self.asks(authority, kb, "a", 5)
        assert 0 < grant.lasts_s <= self.lease_s * 0.51 and grant.change == "c"
        await passes(self.lease_s * 0.6)
        assert await self.asks(authority, kb, "a", 5) == Grant(0.0, 5, "c")
        other = LeaseCall("w", self.lease_s, done=(Pending(kb, 5, "another"),))
        await authority.exchange(other)
        assert await self.asks(authority, kb, "a", 5) == Grant(0.0, 5, "c")
        await authority.exchange(LeaseCall("w", self.lease_s, done=(Pending(kb, 5, "c"),)))
        grant = await self.asks(authority, kb, "a", 5)
        assert grant.lasts_s > self.lease_s * 0.9 and grant.change == ""

    async def test_what_arrives_late_takes_nothing_back(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        await self.asks(authority, kb, "a", 8)
        await self.asks(authority, kb, "a", 6)
        assert await self.lowest(authority, kb) == 8
        done = (Pending(kb, 7, "c"),)
        await authority.exchange(LeaseCall("w", self.lease_s, done=done))
        late = (Pending(kb, 5, "x"),)
        await authority.exchange(LeaseCall("w", self.lease_s, begun=late, done=late))
        assert await self.asks(authority, kb, "b", 6) == Grant(0.0, 7)

    async def test_an_authority_without_memory_grants_nothing_and_vouches_for_nothing(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = new_name()
        assert await self.asks(authority, kb, "a", 5) == Grant(0.0, -1)
        assert await self.lowest(authority, kb) == 0
        begun = (Pending(kb, 5, "c"),)
        await authority.exchange(LeaseCall("w", self.lease_s, as_writer(kb), begun=begun))
        await self.asks(authority, kb, "a", 5)
        assert await self.lowest(authority, kb) == 0
        await passes(self.lease_s + 0.01)
        assert await self.lowest(authority, kb) == EVERYBODY

    async def test_who_leaves_is_not_waited_for(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        await self.asks(authority, kb, "a", 5)
        await self.asks(authority, kb, "b", 6)
        left = LeaseCall("a", self.lease_s, asked=(kb,), leaves=True)
        assert (await authority.exchange(left)).lowest == (6,)

    async def test_one_call_speaks_of_many(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        first = await self.known(authority, passes)
        await self.lowest(authority, first)  # so that it is not forgotten meanwhile
        second = await self.known(authority, passes)
        call = LeaseCall(
            "w",
            self.lease_s,
            claims=as_writer(second, first),
            begun=(Pending(first, 5, "c"),),
            done=(Pending(first, 6, "c"), Pending(second, 9, "d")),
            confirmed=((second, 9), (first, 5)),
            asked=(first, second),
        )
        reply = await authority.exchange(call)
        assert [grant.version for grant in reply.grants] == [9, 6]
        assert [grant.lasts_s > 0 for grant in reply.grants] == [True, False]
        assert reply.lowest == (EVERYBODY, 9)
        assert reply.seats == (Seat("", 5, "mark 5"),) * 2
        assert await authority.exchange(LeaseCall("a", self.lease_s)) == LeaseReply()

    # The one writer

    async def claim(self, authority: VersionAuthority, kb: str, holder: str, *what: object) -> Seat:
        """What becomes of a claim of ``holder``; ``what``: version, its mark, whether it held."""
        claim = msgspec.convert((kb, f"store {holder}", *what), Claim)
        return (await authority.exchange(LeaseCall(holder, self.lease_s, (claim,)))).seats[0]

    async def test_a_kb_has_one_writer_at_a_time(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        assert await self.claim(authority, kb, "a", 5, "mark 5") == Seat("", 5, "mark 5")
        await passes(self.lease_s * 0.6)
        assert (await self.claim(authority, kb, "a")).refusal == "", "who holds it names nothing"
        await passes(self.lease_s * 0.6)
        assert await self.claim(authority, kb, "b", 5, "mark 5") == Seat(TAKEN, 5, "mark 5")
        await passes(self.lease_s * 0.6)
        assert await self.claim(authority, kb, "b", 5, "mark 5") == Seat("", 5, "mark 5")
        assert (await self.claim(authority, kb, "a", 5, "mark 5", True)).refusal == TAKEN
        await authority.exchange(LeaseCall("b", self.lease_s, asked=(kb,), leaves=True))
        assert (await self.claim(authority, kb, "a", 5, "mark 5")).refusal == ""

    async def test_only_a_history_with_the_version_in_force_takes_over(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        for what in ((-1, ""), (4, "mark 4"), (5, "other"), (5, ""), (6, "mark 5")):
            for held in (False, True):
                seat = await self.claim(authority, kb, "b", *what, held)
                assert seat == Seat(FOREIGN, 5, "mark 5")
        assert (await self.claim(authority, kb, "b", 5, "mark 5")).refusal == ""

    async def test_changes_count_from_the_writer_alone(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        for holder in ("w", "b"):
            begun, done = (Pending(kb, 7, "c", "x"),), (Pending(kb, 8, "d", "x"),)
            claims = (Claim(kb, "store", 5, "other"),)
            call = LeaseCall(holder, self.lease_s, claims, begun, done, confirmed=((kb, 8),))
            version = (await authority.exchange(call)).grants[0].version
            assert version == (8 if holder == "w" else 5), "nobody took the place of who ran out"
            kb = await self.known(authority, passes)

    async def test_after_a_drop_the_same_store_goes_on(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        kb = await self.known(authority, passes)
        done = (Pending(kb, 6, "c", GONE),)
        await authority.exchange(LeaseCall("w", self.lease_s, done=done, asked=(kb,), leaves=True))
        assert (await self.claim(authority, kb, "b", 6, GONE)).refusal == FOREIGN
        call = LeaseCall("again", self.lease_s, (Claim(kb, "store"),))
        assert (await authority.exchange(call)).seats[0] == Seat("", 6, GONE)

    async def test_an_authority_without_memory_lets_the_former_writer_go_first(
        self, authority: VersionAuthority, passes: Passes
    ) -> None:
        first, second = new_name(), new_name()
        for kb in (first, second):
            assert await self.claim(authority, kb, "b") == Seat(YOUNG)
        assert (await self.claim(authority, first, "a", -1, "", True)).refusal == ""
        assert (await self.claim(authority, first, "b")).refusal == TAKEN
        await passes(self.lease_s + 0.01)
        assert (await self.claim(authority, second, "b")).refusal == ""
