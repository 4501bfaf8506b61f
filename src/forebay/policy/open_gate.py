"""A gate that stands open: everybody goes through at once, to the least busy replica."""

from __future__ import annotations

from forebay.policy.gate import PoolGate, Ticket
from forebay.policy.tail import TailChange


class OpenGate(PoolGate):
    """For comparison, and for those who have other means: nothing waits, nothing is refused.

    What remains is the choice of a replica, and that one which hangs or fails is left alone while
    another one is fit.
    """

    def progress(self, ticket: Ticket, tokens: int, now: float) -> None:
        """A sign of life; nothing is learned from it."""
        if ticket.state == "sent":
            self.health[ticket.replica].alive(ticket, now)
            if ticket.first_token_at is None:
                ticket.first_token_at = now

    def judge(self, now: float) -> TailChange | None:
        """Whatever the tail is like, nothing follows."""
        return None

    def _door(self, ticket: Ticket, now: float) -> str | None:
        return None

    def _fit(self, ticket: Ticket, now: float) -> list[int]:
        every = range(len(self.loads))
        return [at for at in every if self.health[at].admits(now)] or list(every)

    def _learn(self, ticket: Ticket, now: float, in_flight: int, ok: bool | None) -> None:
        return
