"""A version authority in memory, whose clock, losses and memory a test decides."""

from __future__ import annotations

from collections.abc import Callable

from forebay.kernel.clock import Clock
from forebay.kernel.errors import Unavailable
from forebay.kernel.leases import LeaseCall, LeaseReply

CarryOut = Callable[[LeaseCall, float], LeaseReply]


class FakeVersionAuthority:
    """Answers by ``carry_out``; ``lost`` calls are not carried out, ``unheard`` ones are."""

    def __init__(self, carry_out: CarryOut, clock: Clock) -> None:
        self.carry_out = carry_out
        self.clock = clock
        self.lost = False
        self.unheard = False
        self.calls: list[LeaseCall] = []

    async def exchange(self, call: LeaseCall) -> LeaseReply:
        """See ``VersionAuthority``."""
        self.calls.append(call)
        if self.lost:
            raise Unavailable("the authority is lost.")
        reply = self.carry_out(call, self.clock.now())
        if self.unheard:
            raise Unavailable("the answer was lost.")
        return reply

    async def close(self) -> None:
        """Nothing is held."""
