"""The ledger: every dimension of a request (key, user, tenant, line, IP, global) or none.

A request names its claims. ``reserve`` looks at all buckets first and charges them only when each
can pay, so that a refusal by one leaves the others untouched. What was reserved is corrected when
the prompt is known and settled by what was used; both are safe to call for ever: a settled
reservation does nothing more.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from forebay.kernel.quotas import PRESENCE_S
from forebay.policy.quota.bucket import Limit, TokenBucket, Untaken
from forebay.policy.quota.places import PlaceBook


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One bucket a request is charged to: ``dimension`` (``tenant`` …), whose, and its limit."""

    dimension: str
    key: str
    limit: Limit


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The dimension that cannot pay; ``retry_after_s`` is infinite when it never could."""

    dimension: str
    key: str
    retry_after_s: float

    @property
    def never(self) -> bool:
        """Whether the amount is over the whole burst: waiting does not help."""
        return math.isinf(self.retry_after_s)


class Chargeable(Protocol):
    """A bucket as a reservation sees it."""

    limit: Limit

    def level(self, now: float) -> float:
        """What may be reserved now; negative in debt."""
        ...

    def payable(self, now: float) -> float:
        """What may be taken until its debt is as deep as it gets."""
        ...

    def take(self, amount: float, now: float, _untaken: Untaken | None = None) -> None:
        """Lower the level; a negative ``amount`` gives back."""
        ...


class Reservation:
    """What one request holds until it is settled."""

    __slots__ = ("_held", "amount", "buckets", "open")

    def __init__(self, buckets: Sequence[Chargeable], amount: float) -> None:
        self.buckets = buckets
        self.amount = amount
        self.open = True
        self._held = [amount] * len(buckets)

    def correct(self, amount: float, now: float) -> None:
        """Hold ``amount`` instead, once it is known better; may go into debt."""
        if not self.open or amount == self.amount:
            return
        for at, bucket in enumerate(self.buckets):
            more = amount - self._held[at]
            if more > 0:
                # Debt ends at one burst: what cannot be held must not come back in the end.
                more = min(more, max(0.0, bucket.payable(now)))
            self._held[at] += more
            bucket.take(more, now, partial(self._lessen, at))
        self.amount = amount

    def _lessen(self, at: int, amount: float) -> float:
        """See ``Untaken``: nobody paid it, so it must not come back, or not stay so if it has."""
        back = 0.0 if self.open else min(amount, max(0.0, self._held[at] - self.amount))
        self._held[at] -= amount if self.open else back
        return back

    def settle(self, used: float, now: float) -> None:
        """Pay ``used`` and end; the rest goes back, what is missing becomes debt."""
        if not self.open:
            return
        self.open = False
        for held, bucket in zip(self._held, self.buckets, strict=True):
            if used != held:
                bucket.take(used - held, now)
        self.amount = used


class Quotas(Protocol):
    """Where reservations are made: a ledger of this process alone, or one leased from others."""

    def reserve(self, claims: Sequence[Claim], amount: float, now: float) -> Reservation | Refusal:
        """Charge ``amount`` to every claim, or to none and say which refused for how long."""
        ...

    def remaining(self, claims: Sequence[Claim], now: float) -> tuple[Claim, float] | None:
        """The claim with the least left and what that is; None without claims."""
        ...

    def statistics(self) -> dict[str, float]:
        """Figures."""
        ...


def largest(claims: Sequence[Claim]) -> float:
    """The largest amount that could ever be reserved: the smallest burst."""
    return min((claim.limit.burst for claim in claims), default=math.inf)


class QuotaLedger:
    """Buckets by dimension and key, at most ``max_buckets`` of them.

    A full bucket equals a new one and is forgotten first. When none is full any more, keys not
    seen before share one bucket of their dimension: the bound can be neither burst nor evaded.
    """

    def __init__(self, max_buckets: int = 100_000) -> None:
        self._max = max_buckets
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()
        self.seen: dict[str, float] = {}  # other processes that charge it, and when they did
        self.places = PlaceBook()

    def present(self, now: float) -> int:
        """Processes that decide on these quotas at present, the ledger's own included."""
        return 1 + sum(now - at < PRESENCE_S for at in self.seen.values())

    def reserve(self, claims: Sequence[Claim], amount: float, now: float) -> Reservation | Refusal:
        """Charge ``amount`` to every claim, or to none and say which refused for how long."""
        buckets = tuple(self.bucket(claim, now) for claim in claims)
        worst: Refusal | None = None
        for claim, bucket in zip(claims, buckets, strict=True):
            wait_s = bucket.wait_s(amount, now)
            if wait_s > 0 and (worst is None or wait_s > worst.retry_after_s):
                worst = Refusal(claim.dimension, claim.key, wait_s)
        if worst is not None:
            return worst
        for bucket in buckets:
            bucket.take(amount, now)
        return Reservation(buckets, amount)

    def remaining(self, claims: Sequence[Claim], now: float) -> tuple[Claim, float] | None:
        """The claim with the least left and what that is; None without claims."""
        levels = [(claim, self.bucket(claim, now).level(now)) for claim in claims]
        return min(levels, key=lambda one: one[1], default=None)

    def statistics(self) -> dict[str, float]:
        """Buckets held."""
        return {"buckets": len(self._buckets)}

    def bucket(self, claim: Claim, now: float) -> TokenBucket:
        """The bucket a claim is charged to; it is made, or resized to the claim's limit."""
        key = (claim.dimension, claim.key)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._max and not self._forget(now):
                key = (claim.dimension, "")
                bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(claim.limit, now)
        elif bucket.limit is not claim.limit and bucket.limit != claim.limit:
            bucket.resize(claim.limit, now)
        self._buckets.move_to_end(key)
        return bucket

    def _forget(self, now: float) -> bool:
        """Drop a full bucket among the longest unused; a bounded look keeps this cheap."""
        for key in list(_first(self._buckets, 16)):
            bucket = self._buckets[key]
            # The bucket that many share (without a name) must not make room for itself.
            if key[1] and bucket.level(now) >= bucket.limit.burst:
                del self._buckets[key]
                return True
            # It is in use or in debt: look at others next time.
            self._buckets.move_to_end(key)
        return False


def _first(
    buckets: OrderedDict[tuple[str, str], TokenBucket], count: int
) -> Sequence[tuple[str, str]]:
    return [key for key, _ in zip(buckets, range(count), strict=False)]
