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
from forebay.policy.limit import LimitSettings
from forebay.policy.line import LineSettings, LineTicket, WaitingLine
from forebay.policy.pace import Pace
from forebay.policy.shed import ShedSettings
from forebay.policy.waiting import SENTENCES

RETRIEVAL_LINE = LineSettings(
    limit=LimitSettings(initial=8, least=2, most=64, tolerance=4.0, window=64),
    shed=ShedSettings(
        target_s=0.02, interval_s=0.5, max_wait_s=2.0, few_waiting=24, few_wait_s=10.0
    ),
)


class BoundedRetriever:
    """A retriever that lets in what the wrapped one can take; same protocol.

    ``pace`` bounds the retrievals for answers; None: only the line does.
    """

    def __init__(
        self, retriever: Retriever, clock: Clock, settings: LineSettings, pace: Pace | None = None
    ) -> None:
        self.line = WaitingLine(settings)
        self._retriever = retriever
        self._clock = clock
        self._futures: dict[LineTicket, asyncio.Future[None]] = {}
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
        """The line's figures, and those of retrievals for answers where they have a pace."""
        turns = {} if self._turns is None else self._turns.statistics()
        return {**self.line.statistics(), **turns}

    async def _let_in(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        ticket = LineTicket(
            deadline_at=ctx.deadline.at,
            tenant=ctx.principal.tenant,
            priority="high" if ctx.placement is not None else ctx.principal.priority,
            weight=ctx.principal.plan.weight,
        )
        ok: bool | None = None
        self.line.arrive(ticket, self._clock.now())
        try:
            self._carry_out()
            if ticket.state == "waiting":
                await self._wait(ticket)
            if ticket.state == "refused":
                raise _overloaded(ticket.reason, ticket.retry_after_s)
            found = await self._retriever.retrieve(ctx, request)
            ok = True
            return found
        finally:
            # An error says nothing about how crowded the stage is.
            self.line.finish(ticket, self._clock.now(), ok=ok)
            self._carry_out()

    def _carry_out(self) -> None:
        """Wake those whom the line has let in or refused."""
        for ticket in (*self.line.let_in(), *self.line.refused()):
            future = self._futures.get(ticket)
            if future is not None and not future.done():
                future.set_result(None)

    async def _wait(self, ticket: LineTicket) -> None:
        future = self._futures[ticket] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max(0.0, ticket.deadline_at - self._clock.now())):
                await future
        except TimeoutError:
            raise _overloaded("deadline", 1.0) from None
        finally:
            del self._futures[ticket]


def _overloaded(reason: str, retry_after_s: float) -> Overloaded:
    return Overloaded(SENTENCES[reason], retry_after_s=retry_after_s, code=f"overloaded_{reason}")


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
                raise _overloaded("deadline", 1.0) from None
            raise
