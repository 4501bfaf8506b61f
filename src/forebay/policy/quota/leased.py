"""Quotas of many processes, as one of them sees them: balances leased from an authority.

A reservation that the balances can pay is decided here. One that they cannot is *asked*: what is
missing is taken from the authority in an exchange, all or none. Where a bucket holds many requests'
worth, an exchange also brings a lease, about what this process used within the last lease time,
so that the next requests need none. Where it holds few, nothing is leased, every reservation is
exact and what it did not use goes back at once.

When the authority does not answer, this process decides alone on a *share* of every limit, which
begins with its share of what was known to be left. What it used is charged later, but never more
than a bucket that refilled meanwhile would lack.

Everything here is numbers and time; ``shared`` carries the calls.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

from forebay.kernel.quotas import (
    LEASE_SHARE,
    PRESENCE_S,
    QuotaCall,
    QuotaReply,
    SharedBucket,
)
from forebay.policy.quota.account import Account
from forebay.policy.quota.ledger import Claim, Refusal, Reservation

MAX_BUCKETS_A_CALL = 256
UNKNOWN_SHARE = 0.25
"""Share of a process that never learned how many there are."""
HOLD_S = 0.025
"""How long a level that the authority told is believed, where it does not suffice."""
CROWDED_S = 0.1
"""How long after a refusal more of them are to be expected."""
ALONE_RETRY_S = 1.0
"""What a request is told that is too large for a share: the authority will be back."""


class Asked:
    """A reservation that needs the authority: what is held of it here already, what came of it."""

    __slots__ = ("accounts", "amount", "held", "left", "result")

    def __init__(self, accounts: Sequence[Account], amount: float, held: Sequence[float]) -> None:
        self.accounts, self.amount, self.held = accounts, amount, held
        self.left = False  # nobody waits for it any more
        self.result: Reservation | Refusal | None = None


class Sent:
    """A call on its way."""

    __slots__ = ("accounts", "asked", "call", "leasing", "unsure")

    def __init__(
        self, call: QuotaCall, asked: Sequence[Asked], accounts: Sequence[Account]
    ) -> None:
        self.call, self.asked, self.accounts = call, asked, accounts
        self.unsure = [account.told() for account in accounts]
        self.leasing = [
            account for account, said in zip(accounts, call.buckets, strict=True) if said.extra
        ]


class LeasedLedger:
    """A ledger over leased balances, at most ``max_buckets`` of them.

    ``share`` is this process's part of every limit while it decides alone, 0 for one divided by
    the processes present; ``told`` is called when something should go to the authority soon.
    """

    def __init__(self, lease_s: float, share: float = 0.0, max_buckets: int = 100_000) -> None:
        self.lease_s = lease_s
        self.processes = 0
        self._fewer_since: float | None = None
        self.told: Callable[[], None] | None = None
        self._share = share
        self._max = max_buckets
        self._accounts: OrderedDict[tuple[str, str], Account] = OrderedDict()
        self._owing: dict[Account, None] = {}
        self._holding: OrderedDict[Account, None] = OrderedDict()
        self._local = self._alone = self._asked = 0
        self._lost = 0.0

    @property
    def share(self) -> float:
        """This process's part of every limit while it decides alone."""
        if self._share:
            return self._share
        return 1.0 / self.processes if self.processes else UNKNOWN_SHARE

    def present(self, _now: float) -> int:
        """Processes that decide on these quotas, as far as is known, this one included."""
        return max(1, self.processes)

    @property
    def owing(self) -> bool:
        """Whether something waits for a call to go to the authority."""
        return bool(self._owing)

    def held(self, claims: Sequence[Claim], amount: float, now: float) -> Reservation | None:
        """Charge the balances if each can pay; None changes nothing."""
        accounts = [self._account(claim, now) for claim in claims]
        for account in accounts:
            if account.balance < amount:
                return None
        for account in accounts:
            account.balance -= amount
            account.use(amount, now, self.lease_s)
        self._local += 1
        return Reservation(accounts, amount)

    def refused(self, claims: Sequence[Claim], amount: float, now: float) -> Refusal | None:
        """What the authority would say, where that is known."""
        for claim in claims:
            account = self._account(claim, now)
            if amount > claim.limit.burst:
                return Refusal(claim.dimension, claim.key, math.inf)
            if account.alone is None and now - account.known_at < HOLD_S:
                missing = amount - account.level(now)
                if missing > 0:
                    self._local += 1
                    account.refused_at = now
                    wait_s = missing / claim.limit.rate_per_s
                    return Refusal(claim.dimension, claim.key, wait_s)
        return None

    def reserve(self, claims: Sequence[Claim], amount: float, now: float) -> Reservation | Refusal:
        """Decide alone, on balances and this process's share."""
        accounts = [self._account(claim, now) for claim in claims]
        share = self.share
        worst: Refusal | None = None
        for account in accounts:
            missing = amount - account.alone_level(now, share)
            if missing > 0:
                wait_s = math.inf
                if amount <= account.limit.burst:
                    wait_s = max(missing / (account.limit.rate_per_s * share), ALONE_RETRY_S)
                if worst is None or wait_s > worst.retry_after_s:
                    worst = Refusal(account.dimension, account.key, wait_s)
        if worst is not None:
            return worst
        for account in accounts:
            account.spend_alone(amount, now)
            account.use(amount, now, self.lease_s)
        self._alone += 1
        return Reservation(accounts, amount)

    def remaining(self, claims: Sequence[Claim], now: float) -> tuple[Claim, float] | None:
        """The claim with the least left, as far as is known here; None without claims."""
        levels = [(claim, self._account(claim, now).level(now)) for claim in claims]
        return min(levels, key=lambda one: one[1], default=None)

    def statistics(self) -> dict[str, float]:
        """Buckets known, decisions by how they were made, tokens lost in calls that failed."""
        return {
            "buckets": len(self._accounts),
            "decided_on_lease": self._local,
            "decided_alone": self._alone,
            "asked": self._asked,
            "lost": self._lost,
        }

    # Exchanges

    def ask(self, claims: Sequence[Claim], amount: float, now: float) -> Asked:
        """Hold what the balances have of ``amount``; the rest is for the authority."""
        accounts = [self._account(claim, now) for claim in claims]
        held = []
        for account in accounts:
            held.append(account.lend(amount))
            account.use(amount, now, self.lease_s)
        return Asked(accounts, amount, held)

    def crowded(self, asked: Asked, now: float) -> bool:
        """Whether more is asked of one of its buckets than comes back."""
        return any(one.tight and now - one.refused_at < CROWDED_S for one in asked.accounts)

    def withdraw(self, asked: Asked, now: float) -> None:
        """Nobody waits for it any more: what is held or will be granted goes back."""
        asked.left = True
        if isinstance(asked.result, Reservation):
            asked.result.settle(0.0, now)

    def unsent(self, asked: Asked) -> None:
        """It goes to no call: what is held goes back to the balances."""
        for account, part in zip(asked.accounts, asked.held, strict=True):
            if part:
                account.balance += part
                self.moved(account)
        asked.held = [0.0] * len(asked.accounts)

    def call(self, batch: Sequence[Asked], now: float, process: str = "") -> Sent:
        """What to send: these reservations, leases for their buckets, and what is owed anyway.

        A call with the name of the ``process`` also gives back what nobody used.
        """
        places: dict[Account, int] = {}
        for asked in batch:
            # What was leased while they waited is theirs before it is anybody's to come.
            asked.held = [
                part + account.lend(asked.amount - part)
                for account, part in zip(asked.accounts, asked.held, strict=True)
            ]
            for account in asked.accounts:
                places.setdefault(account, len(places))
        wanted = tuple(
            tuple(
                (places[account], asked.amount - part)
                for account, part in zip(asked.accounts, asked.held, strict=True)
                if part < asked.amount
            )
            for asked in batch
        )
        lending = len(places)
        rest = MAX_BUCKETS_A_CALL - len(places)
        for account in (*self._due(rest), *(self._idle(now, rest) if process else ())):
            places.setdefault(account, len(places))
        buckets = tuple(
            self._say(account, now, lend=place < lending) for account, place in places.items()
        )
        return Sent(QuotaCall(buckets, wanted, process), batch, tuple(places))

    def farewell(self, now: float) -> Sent:
        """A call that gives every balance back, when a process ends; empty when none is left."""
        for account in [one for one in self._holding if one.balance]:
            account.owed -= account.balance
            account.balance = 0.0
            self._owing[account] = None
        self._holding.clear()
        return self.call((), now)

    def done(self, sent: Sent, reply: QuotaReply, now: float) -> None:
        """The authority carried it out; each reservation gets its result."""
        if reply.processes:
            self.count(reply.processes, now)
        for said, account, level, extra in zip(
            sent.call.buckets, sent.accounts, reply.levels, reply.extras, strict=True
        ):
            account.heard(said.charge)
            account.known, account.known_at = level, now
            account.tight = level * LEASE_SHARE < account.unit
            account.balance += extra
            if extra:
                self.moved(account)
        for account, untaken, unsure in zip(sent.accounts, reply.untaken, sent.unsure, strict=True):
            account.untaken(untaken, unsure)
        for account in sent.leasing:
            account.leasing = False
        self._asked += len(sent.asked)
        for asked, refusal in zip(sent.asked, reply.refusals, strict=True):
            if refusal is None:
                asked.result = Reservation(asked.accounts, asked.amount)
                if asked.left:
                    asked.result.settle(0.0, now)
                continue
            self.unsent(asked)
            index, wait_s = refusal
            account = sent.accounts[index]
            account.refused_at = now
            asked.result = Refusal(account.dimension, account.key, wait_s)

    def count(self, processes: int, now: float) -> None:
        """So many processes are present; fewer are believed only when it stays so.

        After an outage everybody is counted anew: the first to come is not alone.
        """
        if processes >= self.processes:
            self.processes, self._fewer_since = processes, None
        elif self._fewer_since is None:
            self._fewer_since = now
        elif now - self._fewer_since > PRESENCE_S:
            self.processes, self._fewer_since = processes, None

    def failed(self, sent: Sent, *, left: bool = True) -> None:
        """Nobody knows whether it was carried out; not ``left``: it never left this process.

        What was to be charged is charged again, what was to be given back only when nothing left:
        the error is never in favour of more than the limit.
        """
        for account, said, unsure in zip(
            sent.accounts, sent.call.buckets, sent.unsure, strict=True
        ):
            account.heard(said.charge)
            account.unsure += unsure
            if said.charge > 0 or not left:
                account.owed += said.charge
                self.moved(account)
            else:
                self._lost -= said.charge
        for account in sent.leasing:
            account.leasing = False
        for asked in sent.asked:
            self.unsent(asked)

    def moved(self, account: Account) -> None:
        """The account holds or owes something that the authority has to know some time."""
        if account.owed or account.alone is not None:
            self._owing[account] = None
        if account.balance:
            self._holding[account] = None

    def tell(self) -> None:
        """Something should go to the authority soon."""
        if self.told is not None:
            self.told()

    def _say(self, account: Account, now: float, *, lend: bool) -> SharedBucket:
        self._owing.pop(account, None)
        charge = account.due(now)
        idle = now - account.used_at >= self.lease_s
        if idle and account.balance:
            charge -= account.balance
            account.sending -= account.balance
            account.balance = 0.0
        extra, recent = 0.0, account.recently(now, self.lease_s)
        # Twice a request within the lease time, or a lease is not worth its return.
        if lend and not account.leasing and recent >= 2 * account.unit:
            extra = max(0.0, recent - account.balance)
            account.leasing = extra > 0
        rate_per_s, burst = account.limit.rate_per_s, account.limit.burst
        return SharedBucket(
            account.dimension, account.key, rate_per_s, burst, charge, extra, account.unit
        )

    def _due(self, most: int) -> list[Account]:
        """Accounts that owe or decided alone."""
        return [account for account, _ in zip(self._owing, range(max(0, most)), strict=False)]

    def _idle(self, now: float, most: int) -> list[Account]:
        """Accounts whose balance nobody used for a lease time; a bounded look at the oldest."""
        found: list[Account] = []
        look = [one for one, _ in zip(self._holding, range(4 * max(0, most)), strict=False)]
        for account in look:
            if account.balance and now - account.used_at < self.lease_s:
                self._holding.move_to_end(account)
                continue
            del self._holding[account]
            if account.balance:
                found.append(account)
                if len(found) >= most:
                    break
        return found

    def _account(self, claim: Claim, now: float) -> Account:
        key = (claim.dimension, claim.key)
        account = self._accounts.get(key)
        if account is None:
            if len(self._accounts) >= self._max and not self._forget(now):
                # As in a ledger: the bound can be neither burst nor evaded.
                key = (claim.dimension, "")
                account = self._accounts.get(key)
            if account is None:
                named = Claim(claim.dimension, key[1], claim.limit)
                account = self._accounts[key] = Account(named, now, self)
        if account.limit is not claim.limit and account.limit != claim.limit:
            account.resize(claim.limit, now, self.share)
        self._accounts.move_to_end(key)
        return account

    def _forget(self, now: float) -> bool:
        """Drop an account that equals a new one; a bounded look at the longest unused."""
        for key in [key for key, _ in zip(self._accounts, range(16), strict=False)]:
            account = self._accounts[key]
            # The account that many share (without a name) must not make room for itself.
            settled = key[1] and account not in self._owing and account not in self._holding
            if settled and account.level(now) >= account.limit.burst:
                del self._accounts[key]
                return True
            self._accounts.move_to_end(key)
        return False
