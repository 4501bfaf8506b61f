"""A waiting line in front of limited local work, every decision in the open.

For work of one size inside this process, as retrieval is: no replicas, no tokens, no lanes. Like
``gate``, a synchronous state machine of numbers and time: a ticket arrives, waits or is refused;
when there is room it is let in; it reports its end. Each call may let in or refuse others:
``let_in`` and ``refused`` return them and must be read after every call.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.context import Priority
from forebay.policy.limit import AdaptiveLimit, LimitSettings
from forebay.policy.queue import FairQueue, QueueSettings, Waiting
from forebay.policy.shed import DelayShedder, DrainRate, ShedSettings

LEAST_S = 0.001
"""What any work takes: who has less left is refused at once."""
SURELY = 0.5
"""Share of the usual unloaded time that any work takes: some is answered by a cache."""
LEAST_RETRY_S, MOST_RETRY_S = 1.0, 60.0


class LineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of a line and of the work behind it."""

    max_waiting: Annotated[int, Meta(description="Requests that may wait at once.", ge=0)] = 512
    limit: LimitSettings = LimitSettings()
    shed: ShedSettings = ShedSettings()


class LineTicket:
    """One request at a line, and in the end what became of it.

    ``state`` is new, waiting, at_work, refused or done; ``reason`` is set where it is refused.
    """

    __slots__ = (
        "began_at", "deadline_at", "place", "priority", "reason", "retry_after_s", "state",
        "tenant", "weight",
    )  # fmt: skip

    def __init__(
        self,
        *,
        deadline_at: float,
        tenant: str = "default",
        priority: Priority = "normal",
        weight: float = 1.0,
    ) -> None:
        self.deadline_at = deadline_at
        self.tenant = tenant
        self.priority = priority
        self.weight = weight
        self.began_at = 0.0
        self.place: Waiting[LineTicket] | None = None
        self.reason = ""
        self.retry_after_s = 0.0
        self.state = "new"


class WaitingLine:
    """See the module. Each ticket counts as one; ``finish`` follows ``arrive``, however it ends."""

    def __init__(self, settings: LineSettings) -> None:
        self.queue: FairQueue[LineTicket] = FairQueue(
            QueueSettings(max_waiting=settings.max_waiting)
        )
        self.limit = AdaptiveLimit(settings.limit)
        self.drain = DrainRate()
        self.at_work = 0
        self._shedder = DelayShedder(settings.shed)
        self._let_in: list[LineTicket] = []
        self._refused: list[LineTicket] = []

    def arrive(self, ticket: LineTicket, now: float) -> None:
        """Let it in, let it wait, or refuse it at the door."""
        reason = self._door(ticket, now)
        if reason is not None:
            self._refuse(ticket, reason)
            return
        if self.free() and not self.queue:
            self._begin(ticket, now)
            return
        place = Waiting(
            ticket,
            tenant=ticket.tenant,
            priority=ticket.priority,
            cost=1.0,
            deadline_at=ticket.deadline_at,
        )
        ticket.place, ticket.state = place, "waiting"
        for other in self.queue.push(place, now, ticket.weight):
            self._refuse(other.item, "queue_full")
        self._shedder.occupied(now, len(self.queue))
        self._dispatch(now)

    def finish(self, ticket: LineTicket, now: float, *, ok: bool | None) -> None:
        """It is over: it worked (True), it failed (False), or it says nothing (None).

        In line it just leaves.
        """
        if ticket.state == "waiting":
            assert ticket.place is not None
            self.queue.remove(ticket.place)
        elif ticket.state == "at_work":
            at_work, took_s = self.at_work, now - ticket.began_at
            self.at_work -= 1
            self.drain.done(1.0, now)
            # One that was cut by its deadline took so long at the least.
            if ok is not None or now >= ticket.deadline_at:
                bound_s = ticket.deadline_at - ticket.began_at
                self.limit.observe(
                    took_s, at_work, ok=ok is not False, cut=ok is None, bound=bound_s
                )
        if ticket.state != "refused":
            ticket.state = "done"
        self._dispatch(now)

    def free(self) -> int:
        """Places that nobody holds."""
        return max(0, self.limit.limit - self.at_work)

    # What the caller must carry out.

    def let_in(self) -> list[LineTicket]:
        """Those that may begin since the last look."""
        found, self._let_in = self._let_in, []
        return found

    def refused(self) -> list[LineTicket]:
        """Those refused since the last look; ``reason`` and ``retry_after_s`` say why and when."""
        found, self._refused = self._refused, []
        return found

    def statistics(self) -> dict[str, float]:
        """Queue, limit and work."""
        return {
            **{f"queue_{name}": value for name, value in self.queue.statistics().items()},
            **self.limit.statistics(),
            "in_flight": self.at_work,
            "rate": self.drain.rate() or 0.0,
        }

    def _door(self, ticket: LineTicket, now: float) -> str | None:
        left_s = ticket.deadline_at - now
        if left_s < LEAST_S:
            return "deadline"
        if not self.at_work and not self.queue:
            # A forecast that refuses is put to the test: nobody stands behind it.
            return None
        ahead = 0.0 if self.free() and not self.queue else self._ahead(ticket)
        wait_s = self.drain.wait_s(ahead) or 0.0
        if wait_s + self._takes_s() > left_s:
            return "deadline"
        # While the limit is looked for, a line says nothing about what the work behind it takes.
        most_s = self._shedder.most_wait_s(
            now, excused=self.limit.searching, sure=self.limit.calm_known, waiting=len(self.queue)
        )
        return "queue_delay" if wait_s > most_s else None

    def _ahead(self, ticket: LineTicket) -> float:
        return self.queue.cost_ahead(
            ticket.tenant, ticket.priority, ticket.deadline_at, ticket.weight
        )

    def _takes_s(self) -> float:
        return max(LEAST_S, SURELY * self.limit.unloaded)

    def _refuse(self, ticket: LineTicket, reason: str) -> None:
        ticket.state, ticket.reason = "refused", reason
        wait_s = self.drain.wait_s(self.queue.cost) or 0.0
        ticket.retry_after_s = min(MOST_RETRY_S, max(LEAST_RETRY_S, wait_s))
        self._refused.append(ticket)

    def _begin(self, ticket: LineTicket, now: float) -> None:
        ticket.state, ticket.began_at = "at_work", now
        self.at_work += 1
        self._let_in.append(ticket)

    def _dispatch(self, now: float) -> None:
        while self.free() and (place := self.queue.pop()) is not None:
            ticket = place.item
            if now + self._takes_s() >= ticket.deadline_at:
                # Better nothing than what nobody waits for any more.
                self._refuse(ticket, "deadline")
            elif self._shedder.sheds(now - place.queued_at, now, len(self.queue)):
                self._refuse(ticket, "queue_delay")
            else:
                self._begin(ticket, now)
        self._shedder.emptied(now, len(self.queue))
        self.drain.at(now, busy=bool(self.queue))
