"""Carries calls between a leased ledger and the authority, without anybody waiting for long.

Reservations that need the authority gather while a call is on its way and leave together. Every
wait is bounded: whoever waited too long is decided alone. Calls that fail in a row open a breaker;
from then on everything is decided alone at once, until a probe in the background finds the
authority again. Waiting for a place in a call is no failure of the authority.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import AllInUse, Unavailable
from forebay.kernel.quotas import QuotaAuthority, QuotaCall, QuotaReply
from forebay.policy.quota.leased import Asked, LeasedLedger, Sent
from forebay.policy.quota.ledger import Claim, Refusal, Reservation
from forebay.policy.quota.places import SharedPlaces

BATCH = 32
MAX_WAITING = 1024
FAILURES = 2
"""Failed calls in a row after which nobody waits any more."""
LATE_FAILURES = 8
"""The same for calls whose time-out came late: then this process was slow, if nobody else."""
LATE = 1.5
"""Times the time-out after which it came late."""
PROBE_S = 0.25
MAX_PROBE_S = 2.0
RELAPSE_S = 5.0
"""An authority lost again so soon is looked for half as often."""
CONNECT_S = 1.0
FAREWELL_CALLS = 64
GATHER_S = 0.02
"""How long what goes back waits for a call to go with; no longer than a level is believed."""
COMPANY_S = 0.008
"""How long a reservation from a bucket that refuses waits for others to go with, at most half of
its time-out: nothing is left there to lease, so that each would be a call of its own."""


class SharingSettings(msgspec.Struct, frozen=True):
    """Bounds of what is shared: the wait of a request, and calls under way at once."""

    timeout_s: float = 0.02
    max_calls: int = 4


class _Waiting:
    __slots__ = ("answered", "asked")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


class SharedQuotas:
    """Reserves for this process, after ``start`` and while ``run`` is under way.

    ``told`` hears why the authority is lost, and None when it is found again.
    """

    def __init__(
        self,
        ledger: LeasedLedger,
        authority: QuotaAuthority,
        clock: Clock,
        settings: SharingSettings,
        process: str,
    ) -> None:
        self.ledger = ledger
        self.told: Callable[[Exception | None], None] | None = None
        self.alone = False
        self._authority = authority
        self._clock = clock
        self._settings = settings
        self._timeout_s = settings.timeout_s
        self._process = process
        self.places = SharedPlaces(self, process, settings.timeout_s)
        self._failures = self._late_failures = 0
        self._calls = 0
        self._probe_s = PROBE_S
        self._found_at = clock.now() - RELAPSE_S
        self._waiting: deque[_Waiting] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._gathering: asyncio.TimerHandle | None = None
        self._gathered = False
        self._company: asyncio.TimerHandle | None = None
        ledger.told = self._gather

    async def obtain(self, claims: Sequence[Claim], amount: float) -> Reservation | Refusal:
        """Charge ``amount`` to every claim, or to none and say which refused for how long."""
        ledger, now = self.ledger, self._clock.now()
        if self.alone:
            # Not from balances alone: what such a request costs beyond them is to be on the share.
            return ledger.reserve(claims, amount, now)
        got = ledger.held(claims, amount, now) or ledger.refused(claims, amount, now)
        if got is not None:
            return got
        if len(self._waiting) >= MAX_WAITING:
            return ledger.reserve(claims, amount, now)
        waiting = _Waiting(ledger.ask(claims, amount, now))
        self._waiting.append(waiting)
        if ledger.crowded(waiting.asked, now) and len(self._waiting) < BATCH:
            self._await_company()
        else:
            self._leave_together()
        try:
            async with asyncio.timeout(self._timeout_s):
                await waiting.answered
        except TimeoutError:
            # The answer may have come in the very same moment.
            if waiting.asked.result is None:
                self._leave(waiting)
        except BaseException:
            self._leave(waiting)
            raise
        return waiting.asked.result or ledger.reserve(claims, amount, self._clock.now())

    async def carry(self, call: QuotaCall) -> QuotaReply | None:
        """Exchange a call that moves no bucket; None where that failed."""
        if self.alone:
            return None
        began_at = self._clock.now()
        try:
            reply = await self._call(call, self._timeout_s)
        except AllInUse:
            return None
        except (TimeoutError, Unavailable) as error:
            self._count_failure(error, self._clock.now() - began_at)
            return None
        self._failures = self._late_failures = 0
        self.ledger.count(reply.processes, self._clock.now())
        return reply

    def present(self) -> int:
        """Processes that decide on these quotas, as far as is known, this one included."""
        return self.ledger.present(self._clock.now())

    async def start(self) -> None:
        """Look whether the authority answers; without it everything is decided alone."""
        await self._probe()

    async def run(self) -> None:
        """Carry calls until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._settings.max_calls):
                    group.create_task(self._send())
                group.create_task(self._beat())
                group.create_task(self.places.run())
        finally:
            for timer in (self._gathering, self._company):
                if timer is not None:
                    timer.cancel()

    async def leave(self) -> None:
        """Give back everything unused and pay what is owed, before this process ends."""
        await self.places.farewell()
        for _ in range(FAREWELL_CALLS):
            sent = self.ledger.farewell(self._clock.now())
            if self.alone or not sent.call.buckets:
                return
            await self._exchange(sent)

    def statistics(self) -> dict[str, float]:
        """Figures of the ledger, calls made, who waits, whether this process decides alone."""
        return {
            **self.ledger.statistics(),
            "calls": self._calls,
            "waiting": len(self._waiting),
            "alone": float(self.alone),
            "processes": self.ledger.processes,
        }

    def _leave(self, waiting: _Waiting) -> None:
        try:
            self._waiting.remove(waiting)
        except ValueError:
            self.ledger.withdraw(waiting.asked, self._clock.now())
        else:
            self.ledger.unsent(waiting.asked)

    def _wake(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return

    def _await_company(self) -> None:
        if self._company is None:
            loop = asyncio.get_running_loop()
            after_s = min(COMPANY_S, self._timeout_s / 2)
            self._company = loop.call_later(after_s, self._leave_together)

    def _leave_together(self) -> None:
        if self._company is not None:
            self._company.cancel()
            self._company = None
        self._wake()

    def _gather(self) -> None:
        if self._gathering is None and not self.alone:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_S, self._gather_ended)

    def _gather_ended(self) -> None:
        self._gathering, self._gathered = None, self._company is None
        # Where others wait for company, what goes back goes with them.
        if self._gathered:
            self._wake()

    def _gathered_with(self, sent: Sent) -> None:
        """What was to go back by itself is in this call."""
        if self._gathering is not None and sent.call.buckets and not self.ledger.owing:
            self._gathering.cancel()
            self._gathering = None

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._gathered and (self._company is not None or not self._waiting):
                idle = loop.create_future()
                self._idle.append(idle)
                try:
                    await idle
                finally:
                    if idle in self._idle:
                        self._idle.remove(idle)
                continue
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._gathered = False
            sent = self.ledger.call([one.asked for one in batch], self._clock.now())
            self._gathered_with(sent)
            try:
                if sent.call.buckets:
                    await self._exchange(sent)
            finally:
                for one in batch:
                    one.wake()

    async def _exchange(self, sent: Sent) -> None:
        began_at = self._clock.now()
        try:
            reply = await self._call(sent.call, self._timeout_s)
        except AllInUse:
            # Every connection is in use: whoever waits is decided alone, and that is all.
            self.ledger.failed(sent, left=False)
        except (TimeoutError, Unavailable) as error:
            self.ledger.failed(sent)
            self._count_failure(error, self._clock.now() - began_at)
        except BaseException:
            self.ledger.failed(sent)
            raise
        else:
            self.ledger.done(sent, reply, self._clock.now())
            self._failures = self._late_failures = 0

    def _count_failure(self, error: Exception, took_s: float) -> None:
        if isinstance(error, TimeoutError) and took_s > LATE * self._timeout_s:
            self._late_failures += 1
        else:
            self._failures += 1
        if self._failures >= FAILURES or self._late_failures >= LATE_FAILURES:
            self._lose(error)

    async def _call(self, call: QuotaCall, within_s: float) -> QuotaReply:
        self._calls += 1
        async with asyncio.timeout(within_s):
            return await self._authority.exchange(call)

    def _lose(self, error: Exception) -> None:
        if self.alone:
            return
        self.alone = True
        relapsed = self._clock.now() - self._found_at < RELAPSE_S
        self._probe_s = min(2 * self._probe_s, MAX_PROBE_S) if relapsed else PROBE_S
        while self._waiting:
            waiting = self._waiting.popleft()
            self.ledger.unsent(waiting.asked)
            waiting.wake()
        if self.told is not None:
            self.told(error)

    async def _beat(self) -> None:
        """Be counted, return what nobody used, notice an authority that is lost or back."""
        while True:
            beat_s = min(1.0, self.ledger.lease_s)
            wait_s = self._probe_s if self.alone else PROBE_S if self._failures else beat_s
            await asyncio.sleep(wait_s)
            if self.alone:
                await self._probe()
            else:
                await self._exchange(self.ledger.call((), self._clock.now(), self._process))
                self.places.beat()

    async def _probe(self) -> None:
        """Open connections, then see whether the authority answers in time."""
        hello = QuotaCall(process=self._process)
        opening = [self._call(hello, CONNECT_S) for _ in range(self._settings.max_calls)]
        try:
            await asyncio.gather(*opening)
            reply = await self._call(hello, self._timeout_s)
        except AllInUse:
            return
        except (TimeoutError, Unavailable) as error:
            self._lose(error)
            return
        self.ledger.count(reply.processes, self._clock.now())
        self._failures = self._late_failures = 0
        if self.alone:
            self.alone, self._found_at = False, self._clock.now()
            self.places.beat()
            if self.told is not None:
                self.told(None)
