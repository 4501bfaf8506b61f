"""A bulkhead around retrieval: bounded work, a bounded line, shedding when the line stands.

Searches take milliseconds, so a line that stands is an overload; but ten people at a machine with
two cores make one of a quarter of a second that never empties, and none of them is to be refused.
Searches for an answer were admitted before and go first; those of /v1/search follow.
"""

from __future__ import annotations

from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings
from forebay.policy.shed import ShedSettings
from forebay.policy.waiting import Waiters

RETRIEVAL_GATE = GateSettings(
    queue=QueueSettings(max_waiting=512),
    limit=LimitSettings(initial=8, least=2, most=64, tolerance=4.0),
    shed=ShedSettings(target_s=0.5, interval_s=1.0, max_wait_s=2.0),
)


class BoundedRetriever:
    """A retriever that lets in what the wrapped one can take; same protocol."""

    def __init__(self, retriever: Retriever, clock: Clock, settings: GateSettings) -> None:
        self.gate = PoolGate(settings, ["local"])
        self._retriever = retriever
        self._clock = clock
        self._waiters = Waiters(clock)

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return hits; ``Overloaded`` when the line is too long or stands."""
        ticket = Ticket(
            cost=1.0,
            deadline_at=ctx.deadline.at,
            tenant=ctx.principal.tenant,
            priority="high" if ctx.placement is not None else ctx.principal.priority,
        )
        ticket.output_tokens = 1
        ticket.weight = ctx.principal.plan.weight
        ok: bool | None = None
        self.gate.arrive(ticket, self._clock.now())
        try:
            await self._waiters.placed(self.gate, ticket)
            found = await self._retriever.retrieve(ctx, request)
            ok = True
            return found
        finally:
            # An error says nothing about how crowded the stage is.
            self.gate.finish(ticket, self._clock.now(), ok=ok)
            self._waiters.carry_out(self.gate)
