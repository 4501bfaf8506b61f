"""One bucket of an authority, as a process that leases from it sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from forebay.policy.quota.bucket import Limit, TokenBucket, Untaken
from forebay.policy.quota.ledger import Claim

_ROUNDING = 1e-9


class AccountBook(Protocol):
    """Who has to know when something moved."""

    def moved(self, account: Account) -> None:
        """The account holds or owes something that the authority has to know some time."""
        ...

    def tell(self) -> None:
        """Something should go to the authority soon."""
        ...


class Account:
    """One bucket from here: what is held of it, what is owed, what was known last."""

    __slots__ = (
        "_book",
        "alone",
        "alone_used",
        "balance",
        "dimension",
        "key",
        "known",
        "known_at",
        "leasing",
        "limit",
        "owed",
        "recent",
        "refused_at",
        "sending",
        "tight",
        "unit",
        "unsure",
        "used_at",
    )

    def __init__(self, claim: Claim, now: float, book: AccountBook) -> None:
        self.dimension, self.key, self.limit = claim.dimension, claim.key, claim.limit
        self._book = book
        self.balance = 0.0  # leased and not reserved
        self.owed = 0.0  # to be charged at the authority; negative: to be given back
        self.sending = 0.0  # the same, on its way there
        self.known, self.known_at = claim.limit.burst, now
        self.unsure: list[tuple[Untaken, float]] = []  # corrections in what is owed
        self.leasing = False  # a lease was asked for and has not come
        self.tight = True  # too little is left to lease from
        self.refused_at = -math.inf  # when it last could not pay
        self.recent = 0.0  # what was used lately, fading with the lease time
        self.unit = 0.0  # about one request
        self.used_at = now
        self.alone: TokenBucket | None = None
        self.alone_used = 0.0

    def level(self, now: float) -> float:
        """What may probably be reserved now; the authority knows better."""
        if self.alone is not None:
            return self.balance + self.alone.level(now)
        return min(self.limit.burst, self._refilled(now) + self.balance - self.owing())

    def payable(self, now: float) -> float:
        """What may be taken until it owes one burst, alone one of its share."""
        bounded = self if self.alone is None else self.alone
        return self.level(now) + bounded.limit.burst

    def take(self, amount: float, now: float, untaken: Untaken | None = None) -> None:
        """Correct what was reserved: pay ``amount`` more, or give back when it is negative.

        ``untaken`` hears what the authority could not take of it.
        """
        if amount > 0:
            before = self.owed
            self._pay(amount, now)
            if untaken is not None and self.owed > before:
                self.unsure.append((untaken, self.owed - before))
        elif self.tight and self.alone is None:
            self.owed += amount
        else:
            self.balance -= amount
        self._book.moved(self)
        if self.owed:
            self._book.tell()

    def spend_alone(self, amount: float, now: float) -> None:
        """Reserve without the authority; the caller has looked at ``alone_level``."""
        self._pay(amount, now)
        self._book.moved(self)

    def alone_level(self, now: float, share: float) -> float:
        """What may be reserved without the authority."""
        if self.alone is None:
            self.alone = TokenBucket(self.limit.scaled(share), now)
            left = min(self.limit.burst, self._refilled(now)) * share - max(0.0, self.owing())
            self.alone.take(self.alone.limit.burst - left, now)
            self.alone_used = 0.0
            self._book.moved(self)
        return self.balance + self.alone.level(now)

    def use(self, amount: float, now: float, lease_s: float) -> None:
        """Note what is asked of this bucket, for the size of leases."""
        self.recent = amount + self.recently(now, lease_s)
        self.unit, self.used_at = amount, now

    def lend(self, amount: float) -> float:
        """Take what the balance has of ``amount``."""
        part = max(0.0, min(self.balance, amount))
        self.balance -= part
        return part

    def recently(self, now: float, lease_s: float) -> float:
        """About what was used within the last lease time."""
        return self.recent * math.exp(min(0.0, (self.used_at - now) / lease_s))

    def resize(self, limit: Limit, now: float, share: float) -> None:
        """Go on under another limit: what was used stays used."""
        self.known += limit.burst - self.limit.burst
        self.limit = limit
        if self.alone is not None:
            self.alone.resize(limit.scaled(share), now)

    def owing(self) -> float:
        """What the authority has yet to hear of."""
        return self.owed + self.sending

    def due(self, now: float) -> float:
        """What the authority is to charge now; the share that was used ends with it."""
        charge, self.owed = self.owed, 0.0
        if self.alone is not None:
            lacking = self.alone.limit.burst - self.alone.level(now)
            charge += max(0.0, min(self.alone_used, lacking))
            self.alone = None
        self.sending += charge
        return charge

    def heard(self, charge: float) -> None:
        """The authority answered to what was due, or never will."""
        self.sending -= charge
        if abs(self.sending) < _ROUNDING:
            self.sending = 0.0

    def told(self) -> list[tuple[Untaken, float]]:
        """The corrections that go with what is due now."""
        unsure, self.unsure = self.unsure, []
        return unsure

    def untaken(self, amount: float, unsure: Sequence[tuple[Untaken, float]]) -> None:
        """The authority could not take ``amount`` of what was due; corrections hear of it."""
        for tell, more in unsure:
            part = min(more, amount)
            amount -= part
            again = tell(part)
            if again:
                self.owed += again
                self.unsure.append((_insist, again))
                self._book.moved(self)

    def _refilled(self, now: float) -> float:
        return self.known + max(0.0, now - self.known_at) * self.limit.rate_per_s

    def _pay(self, amount: float, now: float) -> None:
        held = max(0.0, min(amount, self.balance))
        self.balance -= held
        if amount == held:
            return
        if self.alone is None:
            self.owed += amount - held
        else:
            self.alone.take(amount - held, now)
            self.alone_used += amount - held


def _insist(amount: float) -> float:
    """It has come back to somebody: it is owed until it is taken."""
    return amount
