"""A bulkhead around retrieval: bounded work, a bounded line, shedding when the line stands.

Searches take milliseconds, so a line of 20 ms that stands is an overload; but two dozen people at a
machine with one core make one of half a second that never empties, and none of them is to be
refused: a line of so few is let be.
Searches for an answer were admitted before and go first; those of /v1/search follow. No more of the
former are at work than feed the engines (``pace``); the latter feed none and are not bound by it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import Overloaded
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.pace import Pace
from forebay.policy.queue import QueueSettings
from forebay.policy.shed import ShedSettings
from forebay.policy.waiting import SENTENCES, Waiters

RETRIEVAL_GATE = GateSettings(
    queue=QueueSettings(max_waiting=512),
    limit=LimitSettings(initial=8, least=2, most=64, tolerance=4.0, window=64),
    shed=ShedSettings(
        target_s=0.02, interval_s=0.5, max_wait_s=2.0, few_waiting=24, few_wait_s=10.0
    ),
    least_s=0.001,
    cold_tokens=0.0,
)


class BoundedRetriever:
    """A retriever that lets in what the wrapped one can take; same protocol.

    ``pace`` bounds the retrievals for answers; None: only the gate does.
    """

    def __init__(
        self, retriever: Retriever, clock: Clock, settings: GateSettings, pace: Pace | None = None
    ) -> None:
        self.gate = PoolGate(settings, ["local"])
        self._retriever = retriever
        self._clock = clock
        self._waiters = Waiters(clock)
        self._turns = None if pace is None else Turns(pace, clock)

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return hits; ``Overloaded`` when the line is too long or stands."""
        if self._turns is None or ctx.placement is None:
            return await self._let_in(ctx, request)
        began_at = await self._turns.begin(ctx)
        ok = False
        try:
            found = await self._let_in(ctx, request)
            ok = True
            return found
        finally:
            self._turns.end(began_at, ok=ok)

    def statistics(self) -> dict[str, float]:
        """The gate's figures, and those of retrievals for answers where they have a pace."""
        turns = {} if self._turns is None else self._turns.statistics()
        return {**self.gate.statistics(), **turns}

    async def _let_in(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
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


class Turns:
    """Answers take turns at retrieval, first come first served: the fair line was before them.

    Each holds a place of an engine, so there are no more than such places; each ends by its
    deadline.
    """

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock
        self._at_work = 0
        self._line: deque[asyncio.Future[None]] = deque()

    async def begin(self, ctx: RequestContext) -> float:
        """Wait for a turn; when it began. ``end`` must follow, whatever happens."""
        self._look(self._at_work + len(self._line) + 1)
        if self._line or self._at_work >= self._pace.most:
            await self._wait(ctx)
        else:
            self._at_work += 1
        return self._clock.now()

    def end(self, began_at: float, *, ok: bool) -> None:
        """It is over; an error says nothing about how long retrievals take."""
        if ok:
            self._pace.took(self._clock.now() - began_at)
        self._free()

    def statistics(self) -> dict[str, float]:
        """Retrievals for answers at work and in line, and the rate of answers they follow."""
        return {
            "answers_at_work": self._at_work,
            "answers_waiting": len(self._line),
            "answers_rate": self._pace.rate(),
        }

    def _look(self, unfed: int) -> None:
        self._pace.look(unfed, self._clock.now())
        while self._line and self._at_work < self._pace.most:
            future = self._line.popleft()
            if not future.done():
                future.set_result(None)
                self._at_work += 1

    def _free(self) -> None:
        self._at_work -= 1
        self._look(self._at_work + len(self._line))

    async def _wait(self, ctx: RequestContext) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(future)
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                self._free()  # its turn came just as it left
            elif future in self._line:
                self._line.remove(future)
            if isinstance(error, TimeoutError):
                raise Overloaded(SENTENCES["deadline"], code="overloaded_deadline") from None
            raise
