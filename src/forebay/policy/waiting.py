"""Tasks that wait at gates: the asynchronous side of a synchronous state machine."""

from __future__ import annotations

import asyncio

from forebay.kernel.clock import Clock
from forebay.kernel.errors import Overloaded
from forebay.policy.gate import PoolGate, Ticket

SENTENCES = {
    "queue_full": "Too many requests are waiting; try again later.",
    "queue_delay": "Requests wait too long at present; try again later.",
    "deadline": "The request cannot be finished before its deadline at the present load.",
    "low_priority": "Requests of low priority are held back while the load is high.",
    "engines_out": "No engine of this pool answers at present; try again later.",
}


class Waiters:
    """Futures of tickets in line; every call of a gate is followed by ``carry_out``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._futures: dict[Ticket, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    async def placed(self, gate: PoolGate, ticket: Ticket) -> float:
        """Wait until a ticket that arrived is on a replica; seconds waited.

        ``Overloaded`` when it is refused or its deadline passes in line. The caller finishes the
        ticket, however this ends.
        """
        self.carry_out(gate)
        waited_s = 0.0
        if ticket.state == "waiting":
            began_at = self._clock.now()
            await self._wait(ticket, began_at)
            waited_s = self._clock.now() - began_at
        if ticket.state == "refused":
            raise overloaded(ticket)
        return waited_s

    def carry_out(self, gate: PoolGate) -> None:
        """Wake those whom the gate has sent or refused."""
        for ticket in (*gate.sent(), *gate.refused()):
            future = self._futures.get(ticket)
            if future is not None and not future.done():
                future.set_result(None)

    async def _wait(self, ticket: Ticket, now: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[ticket] = future
        try:
            async with asyncio.timeout(max(0.0, ticket.deadline_at - now)):
                await future
        except TimeoutError:
            ticket.reason, ticket.retry_after_s = "deadline", 1.0
            raise overloaded(ticket) from None
        finally:
            del self._futures[ticket]


def overloaded(ticket: Ticket) -> Overloaded:
    """The error of a refused ticket."""
    return Overloaded(
        SENTENCES[ticket.reason],
        retry_after_s=ticket.retry_after_s,
        code=f"overloaded_{ticket.reason}",
    )
