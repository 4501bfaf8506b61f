"""Leases of versions as decisions over numbers and time: the authority's side and a holder's.

The rules, and what each is for:

1. A lease is granted only to who confirms the version in force or a later one. So once a change is
   in force, leases of older versions only run out.
2. A change is announced before it is committed, and from then until it is done leases end at most
   one length after the announcement. So a writer that loses the authority in between knows when
   the last lease of the old version is over.
3. A holder counts from the moment it asked, and a little fast; the authority counts from the
   moment it granted. So the holder stops first, whatever the call took.
4. An authority that began to know of a kb less than one length ago may have forgotten leases: it
   tells nobody that none is held. One that was told no version yet grants none.
5. What a holder confirmed and how long it holds only grow: a call that arrives late, after one
   that was sent later, takes nothing back.
6. Changes count from the registered writer alone. Another takes its place when the registration
   has run out or was given up, and then only with the version in force in its own history: of two
   folders that go different ways one at most is ever heard.
"""

from __future__ import annotations

from forebay.kernel.leases import (
    CLOCK_RATE,
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
)


class HeldLeases:
    """What one process holds, on its own clock."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, int]] = {}

    def granted(self, kb: str, confirmed: int, grant: Grant, asked_at: float) -> None:
        """Take a reply to what was asked at ``asked_at``; a refusal leaves what is held."""
        if grant.lasts_s > 0:
            until = asked_at + grant.lasts_s * (1 - CLOCK_RATE)
            before, known = self._held.get(kb, (until, confirmed))
            self._held[kb] = max(before, until), max(known, confirmed)

    def holds(self, kb: str, version: int, now: float) -> bool:
        """Whether a query that begins now may use what is shared for ``version``."""
        held = self._held.get(kb)
        return held is not None and now < held[0] and version >= held[1]

    def clear(self) -> None:
        """Hold nothing any more."""
        self._held.clear()


class Acknowledging:
    """When a change that was announced may be acknowledged, on the writer's clock.

    ``answered_at``: when the authority had answered the announcement, so before the commit.
    """

    def __init__(self, answered_at: float, lease_s: float) -> None:
        self.over_at = answered_at + lease_s * (1 + CLOCK_RATE)
        """The last lease of an older version is over then, whatever became of the authority."""

    def may(self, version: int, lowest: int | None, now: float) -> bool:
        """Whether nobody uses an older version any more than ``version``.

        ``lowest`` is what the authority answered to a call that said, too, that the change is done
        (else a lease of the old version may still follow); None: it did not answer.
        """
        return now >= self.over_at or (lowest is not None and lowest >= version)


class _Kb:
    def __init__(self, now: float) -> None:
        self.known_since = now
        self.version = -1
        self.mark = ""
        self.writer = ""
        self.writer_until = now
        self.store = ""
        self.change = ""
        self.change_at = 0.0
        self.rows: dict[str, tuple[float, int]] = {}


class LeaseTable:
    """The authority's side; the script for Redis does the same, and doubts its clock besides."""

    def __init__(self) -> None:
        self._kbs: dict[str, _Kb] = {}

    def carry_out(self, call: LeaseCall, now: float) -> LeaseReply:
        """See ``VersionAuthority.exchange``; ``now`` never goes back."""
        seats = [self._claim(self._of(claim.kb, now), claim, call, now) for claim in call.claims]
        for pending in call.begun:
            kb = self._of(pending.kb, now)
            if kb.writer == call.holder:
                self._begin(kb, pending, now)
        for pending in call.done:
            kb = self._of(pending.kb, now)
            if kb.writer == call.holder:
                self._raise(kb, pending)
                if kb.change == pending.change:
                    kb.change = ""
        grants = [
            self._grant(self._of(name, now), call, version, now) for name, version in call.confirmed
        ]
        lowest = [self._lowest(self._of(name, now), call, now) for name in call.asked]
        return LeaseReply(tuple(grants), tuple(lowest), tuple(seats))

    def _of(self, name: str, now: float) -> _Kb:
        return self._kbs.setdefault(name, _Kb(now))

    def _claim(self, kb: _Kb, claim: Claim, call: LeaseCall, now: float) -> Seat:
        refusal = ""
        if kb.writer != call.holder:
            refusal = self._refusal(kb, claim, call.lease_s, now)
        if not refusal:
            kb.writer, kb.store = call.holder, claim.store
            kb.writer_until = max(kb.writer_until, now + call.lease_s)
        return Seat(refusal, kb.version, kb.mark)

    def _refusal(self, kb: _Kb, claim: Claim, lease_s: float, now: float) -> str:
        if kb.writer and now <= kb.writer_until:
            return TAKEN
        if not kb.mark:
            return YOUNG if not claim.held and now - kb.known_since <= lease_s else ""
        if kb.mark == GONE:
            return "" if claim.store == kb.store else FOREIGN
        return "" if (claim.version, claim.mark) == (kb.version, kb.mark) else FOREIGN

    def _raise(self, kb: _Kb, pending: Pending) -> None:
        if pending.version > kb.version or (pending.version == kb.version and pending.mark):
            kb.version, kb.mark = pending.version, pending.mark

    def _begin(self, kb: _Kb, pending: Pending, now: float) -> None:
        self._raise(kb, pending)
        kb.change, kb.change_at = pending.change, now

    def _grant(self, kb: _Kb, call: LeaseCall, confirmed: int, now: float) -> Grant:
        until = now + call.lease_s
        if kb.change:
            until = min(until, kb.change_at + call.lease_s)
        if kb.version < 0 or confirmed < kb.version or until <= now:
            return Grant(0.0, kb.version, kb.change)
        before, known = kb.rows.get(call.holder, (until, confirmed))
        kb.rows[call.holder] = max(before, until), max(known, confirmed)
        return Grant(until - now, kb.version, kb.change)

    def _lowest(self, kb: _Kb, call: LeaseCall, now: float) -> int:
        if call.leaves:
            kb.rows.pop(call.holder, None)
            if kb.writer == call.holder:
                kb.writer = ""
        kb.rows = {name: row for name, row in kb.rows.items() if now <= row[0]}
        if now - kb.known_since <= call.lease_s:
            return 0
        return min((confirmed for _, confirmed in kb.rows.values()), default=EVERYBODY)
