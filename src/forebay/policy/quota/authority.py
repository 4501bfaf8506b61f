"""A ledger as the authority of other processes: exchanges charge the same buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from forebay.kernel.clock import Clock
from forebay.kernel.quotas import LEASE_SHARE, PRESENCE_S, QuotaCall, QuotaReply, SharedBucket
from forebay.policy.quota.bucket import Limit, TokenBucket
from forebay.policy.quota.ledger import Claim, QuotaLedger


class LedgerAuthority:
    """Lends from a ledger that its own process may go on charging directly.

    ``itself`` is how many processes decide without calling here: 1 where the owner of the ledger
    serves, too, else 0.
    """

    def __init__(self, ledger: QuotaLedger, clock: Clock, itself: int = 0) -> None:
        self._ledger = ledger
        self._clock = clock
        self._itself = itself

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        """See ``QuotaAuthority``."""
        return self.carry_out(call)

    async def close(self) -> None:
        """Nothing is held."""

    def carry_out(self, call: QuotaCall) -> QuotaReply:
        """Do it, without waiting for anything."""
        now = self._clock.now()
        buckets = [self._ledger.bucket(_claim(one), now) for one in call.buckets]
        untaken = []
        for bucket, said in zip(buckets, call.buckets, strict=True):
            untaken.append(max(0.0, said.charge - bucket.payable(now)))
            if said.charge:
                bucket.take(said.charge, now)
        refusals = tuple(_reserve(buckets, wanted, now) for wanted in call.reservations)
        extras = tuple(
            _lend(bucket, said, now) if said.extra else 0.0
            for bucket, said in zip(buckets, call.buckets, strict=True)
        )
        levels = tuple(bucket.level(now) for bucket in buckets)
        book, until = self._ledger.places, now + PRESENCE_S
        places = tuple(
            book.exchange(call.process, call.number, one, now, until) for one in call.places
        )
        present = self._present(call.process, now)
        return QuotaReply(levels, extras, refusals, present, places, tuple(untaken))

    def _present(self, process: str, now: float) -> int:
        if not process:
            return 0
        seen = {name: at for name, at in self._ledger.seen.items() if now - at < PRESENCE_S}
        seen[process] = now
        self._ledger.seen = seen
        return len(seen) + self._itself


def _claim(said: SharedBucket) -> Claim:
    return Claim(said.dimension, said.key, Limit(said.rate_per_s, said.burst))


def _reserve(
    buckets: Sequence[TokenBucket], wanted: Sequence[tuple[int, float]], now: float
) -> tuple[int, float] | None:
    worst, worst_s = -1, 0.0
    for index, amount in wanted:
        wait_s = buckets[index].wait_s(amount, now)
        if wait_s > worst_s:
            worst, worst_s = index, wait_s
    if worst >= 0:
        return worst, worst_s
    for index, amount in wanted:
        buckets[index].take(amount, now)
    return None


def _lend(bucket: TokenBucket, said: SharedBucket, now: float) -> float:
    lent = min(said.extra, bucket.level(now) * LEASE_SHARE)
    if lent < said.unit or not math.isfinite(lent) or lent <= 0:
        return 0.0
    bucket.take(lent, now)
    return lent
