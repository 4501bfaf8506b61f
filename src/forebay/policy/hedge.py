"""A second replica for a request whose first token is late (Dean, Barroso: The Tail at Scale).

Asked after the P95 of the pool's own times to first token, when nobody waits in line, another fit
replica has room, and the retry budget allows: so a twentieth of the requests at most, and none
while the pool is full. Whoever gives the first token keeps the request; the other is cancelled.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.context import HedgeOutcome
from forebay.policy.balance import choose
from forebay.policy.gate import PoolGate, Ticket
from forebay.policy.quantiles import RecentQuantiles


class HedgeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a second replica is asked."""

    enabled: Annotated[
        bool, Meta(description="Ask a second replica when the first token is late.")
    ] = False
    quantile: Annotated[
        float,
        Meta(description="Late is later than this share of first tokens.", ge=0.5, lt=1.0),
    ] = 0.95
    least_requests: Annotated[
        int, Meta(description="First tokens seen before anything counts as late.", ge=1)
    ] = 50
    least_s: Annotated[
        float, Meta(description="Nothing is late before this, in seconds.", ge=0.0)
    ] = 0.05


class Hedger:
    """Second attempts at one gate."""

    def __init__(self, gate: PoolGate, settings: HedgeSettings) -> None:
        self._gate = gate
        self._settings = settings
        self._first_tokens = RecentQuantiles(least=0.001)
        self._outcomes: dict[HedgeOutcome, int] = {}

    def observe(self, first_token_s: float) -> None:
        """A first token came after so long."""
        self._first_tokens.add(first_token_s)

    def after_s(self) -> float | None:
        """When a first token is late; None while that is not known."""
        if self._first_tokens.count < self._settings.least_requests:
            return None
        late_s = self._first_tokens.at(self._settings.quantile)
        return None if late_s is None else max(self._settings.least_s, late_s)

    def begin(self, ticket: Ticket, now: float) -> int | None:
        """The replica to ask as well, which holds the ticket's cost from now on; None: nobody."""
        gate = self._gate
        if ticket.state != "sent" or gate.queue:
            return None
        fit = [
            at
            for at, load in enumerate(gate.loads)
            if at != ticket.replica
            and load.requests < max(1, int(gate.places(at) * (1 - gate.hold)))
            and not load.full
            and gate.health[at].admits(now)
        ]
        left_s = ticket.deadline_at - now
        if not fit or not gate.retries.take(ticket.attempts, remaining_s=left_s, needs_s=0.0):
            return None
        loads = [gate.loads[at] for at in fit]
        second = fit[loads.index(choose(loads))]
        ticket.attempts += 1
        gate.loads[second].took(ticket.cost)
        gate.health[second].began(ticket, now)
        return second

    def ended(self, ticket: Ticket, second: int, outcome: HedgeOutcome, now: float) -> None:
        """The race is over; the ticket is on the replica that goes on."""
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        gave_up = second
        if outcome in ("won", "alone"):
            gave_up, ticket.replica = ticket.replica, second
            self._gate.moved(ticket, second, now)
        self._gate.loads[gave_up].gave_back(ticket.cost)
        failed = outcome in ("failed", "alone")
        self._gate.health[gave_up].ended(ticket, now, ok=False if failed else None)

    def statistics(self) -> dict[str, float]:
        """Second attempts by what came of them."""
        return {f"hedges_{outcome}": count for outcome, count in self._outcomes.items()}
