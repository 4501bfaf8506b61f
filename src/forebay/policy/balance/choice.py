"""The choice of a replica: least outstanding work, sessions where their prefix is, if not busy.

Work is cost in flight over the replica's weight and the share of its KV memory that is free: other
gateways' requests show there and nowhere else. A session goes to the replica that rendezvous
hashing (Thaler, Ravishankar 1998) gives it, so its prefix is cached there and few sessions move
when replicas come and go; unless that one has more than ``bound`` times the mean work (consistent
hashing with bounded loads, Mirrokni 2018).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

KV_FULL = 0.9
"""Share of KV memory in use from which an engine gets nothing new: what it holds still grows."""

LEAST_FREE = 1.0 - KV_FULL


class ReplicaLoad:
    """What is under way on one replica."""

    __slots__ = (
        "cost",
        "crowded",
        "full",
        "kv_use",
        "most",
        "name",
        "requests",
        "waiting",
        "weight",
    )

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self.weight = weight
        self.requests = 0
        self.cost = 0.0
        self.kv_use: float | None = None
        self.full = False
        self.crowded = False  # others' requests queue there: only for want of another
        self.waiting = 0  # inside the engine, at the last look
        self.most = math.inf  # requests that may be there until the next look

    def took(self, cost: float) -> None:
        """A request of this cost went there."""
        self.requests += 1
        self.cost += cost

    def gave_back(self, cost: float) -> None:
        """It ended."""
        self.requests -= 1
        self.cost = self.cost - cost if self.requests else 0.0

    def show(self, *, waiting: int | None, kv_use: float | None, overdue: int) -> None:
        """What the engine exposes: requests waiting inside it, share of KV memory in use.

        ``overdue`` requests sent from here had no first token at two looks.

        An engine that is about to run out of memory and to throw work away gets nothing more until
        it says otherwise. One that queues inside, where nothing is fair, gets less by what waits
        there, down to half. What waits at one look only came during one step of the engine, or
        during one long prompt: that is no queue. Nor are those, however many, whose first tokens
        come before the next look: answers end in crowds, and so begin those let in for them.
        """
        self.kv_use = kv_use
        self.full = kv_use is not None and kv_use > KV_FULL
        stays = min(self.waiting, waiting or 0)
        stands = stays > max(2, self.requests // 10)
        queued = min(stays, overdue, self.requests // 2) if stands else 0
        self.most = self.requests - queued if queued else math.inf
        self.crowded = stands and not self.requests
        self.waiting = waiting or 0

    def work(self) -> float:
        """Comparable between replicas of one pool."""
        free = 1.0 if self.kv_use is None else max(LEAST_FREE, 1.0 - self.kv_use)
        return (self.cost + 1.0) / (self.weight * free)


def choose(
    loads: Sequence[ReplicaLoad], *, session: str = "", turn: int = 0, bound: float = 1.25
) -> ReplicaLoad:
    """The replica for the next request among ``loads``, which are those fit to take it.

    ``turn`` breaks ties between equals, so that they take turns.
    """
    if not loads:
        raise ValueError("no replica to choose from")
    count = len(loads)
    least = min(range(count), key=lambda at: (loads[at].work(), (at - turn) % count))
    if session and count > 1:
        home = max(loads, key=lambda load: _score(session, load.name))
        mean = sum(load.work() for load in loads) / count
        if home.work() <= bound * mean or home.work() <= loads[least].work():
            return home
    return loads[least]


def _score(session: str, name: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{session}".encode(), digest_size=8).digest()
