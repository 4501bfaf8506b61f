"""What most services do today: send every request on at once, to the next or the idlest replica."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.admitted import admitted
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, Replica, Router

Pick = Callable[[list[Replica]], Replica]


class DirectRouter:
    """The first pool whose caps the request is within, one replica of it, no waiting.

    Refuses what no pool takes (400) and what finds its replica's queue full (503).
    """

    def __init__(self, fleet: Fleet, pick: Callable[[], Pick]) -> None:
        self._fleet = fleet
        # Each pool has a pick of its own, for it may remember.
        self._pools: list[tuple[Pool, Pick]] = [(pool, pick()) for pool in fleet.pools]

    def arrived(self, job: Job, now: float) -> None:
        """Send it or refuse it."""
        found = next((one for one in self._pools if one[0].config.takes(job.plan)), None)
        if found is None:
            self._fleet.refuse(job, "over every pool's caps", code=400, retry_after_s=0.0)
            return
        pool, pick = found
        replica = pick(pool.replicas)
        most = pool.config.max_waiting
        if most is not None and replica.engine.waiting() >= most:
            self._fleet.refuse(job, "queue full")
            return
        self._fleet.send(job, replica)

    def changed(self, job: Job, event: Event, now: float) -> None:
        """Nothing waits here."""

    def woken(self, now: float) -> None:
        """Nothing was asked for."""


def round_robin() -> Pick:
    """One replica after the other."""
    turn = 0

    def pick(replicas: list[Replica]) -> Replica:
        nonlocal turn
        turn = (turn + 1) % len(replicas)
        return replicas[turn - 1]

    return pick


def least_outstanding() -> Pick:
    """The replica with the fewest tokens, in and out, of requests in flight."""
    tokens = attrgetter("outstanding_tokens")

    def pick(replicas: list[Replica]) -> Replica:
        return min(replicas, key=tokens)

    return pick


ROUTERS: dict[str, Callable[[], Pick]] = {
    "least-outstanding": least_outstanding,
    "round-robin": round_robin,
}


ADMISSION = "admission"
"""The server's own admission with its default settings."""


def find_router(name: str) -> Callable[[Fleet], Router]:
    """A router by its name, for ``Fleet``."""
    if name == ADMISSION:
        return admitted()
    pick = ROUTERS.get(name)
    if pick is None:
        known = ", ".join(sorted([ADMISSION, *ROUTERS]))
        raise ConfigError(f"no router {name!r}; there are {known}")
    return lambda fleet: DirectRouter(fleet, pick)
