"""Admission as the server uses it: the desk decides, this waits.

Whatever happens to a request inside the ``admit`` block, leaving it gives everything back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Protocol

from forebay.kernel.clock import Clock
from forebay.kernel.context import HedgeOutcome, Hedging, RateState
from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineRefused,
    ForebayError,
    Overloaded,
    RateLimited,
)
from forebay.policy.admission.claims import Claimant
from forebay.policy.admission.desk import Ask, Desk, Entry
from forebay.policy.admission.settings import AdmissionSettings
from forebay.policy.gate import PoolGate, Ticket
from forebay.policy.hedge import Hedger
from forebay.policy.quota import Claim, Placing, Refusal, Reservation
from forebay.policy.tail import TailChange
from forebay.policy.waiting import SENTENCES, Waiters

_OUT = "overloaded_engines_out"
FADES = 0.98
"""What the answers before weigh beside the next one, in how many tokens come together."""


class SharedReserving(Protocol):
    """Reserves from quotas shared with other processes, which may take a round trip."""

    async def obtain(self, claims: Sequence[Claim], amount: float) -> Reservation | Refusal:
        """Charge ``amount`` to every claim, or to none."""
        ...


class Permit:
    """What an admitted request holds. Settled exactly once, when the ``admit`` block ends."""

    def __init__(self, admission: Admission, entry: Entry) -> None:
        self._admission = admission
        self.entry = entry
        self.pool = ""
        self.replica = -1
        self.waited_s = 0.0
        self.whole = False
        self.refused: Overloaded | None = None
        self._lost = self._asked = False
        self._signs = 0
        self._a_sign = 1.0  # tokens that came with each, as was thought last

    @property
    def max_output_tokens(self) -> int:
        """Output tokens it may write."""
        return self.entry.cap

    @property
    def clamped(self) -> bool:
        """Whether that is less than the client allowed."""
        return self.entry.clamped

    @property
    def rate(self) -> RateState | None:
        """The tightest quota after the reservation; None without quotas."""
        return self.entry.rate

    @property
    def hedging(self) -> Hedging | None:
        """How a second replica may be asked; None: not at all."""
        hedger = self._admission.hedgers.get(self.entry.pool)
        return None if hedger is None else PermitHedging(self, hedger, self._admission.desk.clock)

    async def built(self, prompt_tokens: int) -> None:
        """The prompt is built: hold what it really costs, in a pool that takes it.

        It may cost more than was planned; a prompt too long for its pool waits again, in front of
        another. Raises what ``admit`` raises for pools.
        """
        await self._admission.built(self, prompt_tokens)

    def began(self, prompt_tokens: int) -> None:
        """The prompt went to the engine: it is charged from now on, whatever happens."""
        self.entry.prompt_tokens = prompt_tokens
        self.asked()

    def asked(self) -> None:
        """The prompt went to the engine; who pays for it is another's matter."""
        gate = self.entry.gate
        if gate is not None:
            self._asked = True
            gate.asked(self.entry.ticket, self._admission.desk.clock.now())

    def lose(self, late_since: float | None = None) -> None:
        """Its engines did not begin: the place is given back; what is reserved stays so.

        ``late_since``: they had from then on for a first token; None: they failed.
        """
        self._lost = True
        self._admission.lose(self, late_since)

    def outcome(self, error: Exception | None) -> bool | None:
        """What this says of the engines: they worked, they failed, or nothing."""
        if self._lost:
            return None
        if self.whole:
            return True
        failed = error is not None and self._asked and engines_fault(error)
        return False if failed else None

    def failed(self, error: Exception) -> None:
        """Nobody pays for what no engine began; one that is at it for too long is paid."""
        begun = self.entry.completion_tokens or isinstance(error, DeadlineExceeded)
        if isinstance(error, ForebayError) and not begun:
            self.entry.prompt_tokens = 0

    def token(self) -> None:
        """The engine gave a sign of life: at least one more token."""
        entry, admission = self.entry, self._admission
        gate = entry.gate
        assert gate is not None
        signs = self._signs = self._signs + 1
        # Engines and networks send several tokens together: a sign is worth what it was of late.
        a_sign = admission.tokens_a_sign(entry.pool)
        if a_sign != self._a_sign:
            # That of earlier signs, too: they did not all come now, as if at once.
            entry.ticket.reappraise(a_sign / self._a_sign)
            self._a_sign = a_sign
        tokens = signs if a_sign == 1.0 else max(signs, min(entry.cap, round(signs * a_sign)))
        entry.completion_tokens = tokens
        now = admission.desk.clock.now()
        if signs == 1 and admission.hedgers:
            hedger = admission.hedgers.get(entry.pool)
            if hedger is not None:
                hedger.observe(now - entry.ticket.sent_at)
        gate.progress(entry.ticket, tokens, now)

    def unless_hung(self, leave: Callable[[], None] | None) -> None:
        """Call ``leave`` once when its replica hangs and the request may go to another."""
        self.entry.ticket.hung = leave

    def again(self) -> bool:
        """The replica failed before its first token: whether another was found."""
        return self._admission.again(self)

    def produced(self, prompt_tokens: int, completion_tokens: int, *, whole: bool) -> None:
        """So much was used in the end; ``whole`` if the answer was not cut by client or error."""
        self.entry.prompt_tokens = prompt_tokens
        self.entry.completion_tokens = completion_tokens
        self.whole = whole
        if whole and self._signs:
            self._admission.written(self.entry.pool, completion_tokens, self._signs)


class PermitHedging:
    """Second attempts of one permit."""

    def __init__(self, permit: Permit, hedger: Hedger, clock: Clock) -> None:
        self._permit = permit
        self._hedger = hedger
        self._clock = clock

    def after_s(self) -> float | None:
        """See ``Hedger.after_s``."""
        return self._hedger.after_s()

    def begin(self) -> int | None:
        """See ``Hedger.begin``."""
        second = self._hedger.begin(self._permit.entry.ticket, self._clock.now())
        if second is not None:
            self._permit.unless_hung(None)  # the other one is asked already
        return second

    def ended(self, second: int, outcome: HedgeOutcome) -> None:
        """See ``Hedger.ended``."""
        ticket = self._permit.entry.ticket
        self._hedger.ended(ticket, second, outcome, self._clock.now())
        self._permit.replica = ticket.replica


class Admission:
    """Lets requests in, one ``admit`` block each; ``told`` hears of pools whose tail changes.

    ``shared`` reserves where quotas are not this process's own; ``hedgers`` by the gate's name;
    ``processes`` says how many there are that share the quotas.
    """

    def __init__(
        self,
        desk: Desk,
        told: Callable[[str, TailChange], None] | None = None,
        shared: SharedReserving | None = None,
        hedgers: Mapping[str, Hedger] | None = None,
        places: Placing | None = None,
    ) -> None:
        self.desk = desk
        self._places = places
        self._told = told
        self._shared = shared
        self.hedgers = hedgers or {}
        self._waiters = Waiters(desk.clock)
        self._written: dict[str, tuple[float, float]] = {}
        self._a_sign: dict[str, float] = {}

    def written(self, pool: str, tokens: int, signs: int) -> None:
        """Note a whole answer: its tokens, and the signs of life in which they came."""
        before = self._written.get(pool, (0.0, 0.0))
        written = self._written[pool] = (before[0] * FADES + tokens, before[1] * FADES + signs)
        self._a_sign[pool] = max(1.0, written[0] / written[1]) if written[1] else 1.0

    def tokens_a_sign(self, pool: str) -> float:
        """Tokens that came with each sign of life of late; 1 while nothing is known."""
        return self._a_sign.get(pool, 1.0)

    def replace(self, settings: AdmissionSettings) -> None:
        """Other settings from now on; what was used stays used."""
        self.desk.replace(settings)

    async def charge(
        self, who: Claimant, route: str, tokens: int, scene: str = ""
    ) -> RateState | None:
        """Charge a request that needs no engine; raises like ``admit`` for quotas.

        The tightest quota after it; None: it is under none.
        """
        if self._shared is None:
            return self.desk.charge(who, route, tokens, scene)
        claims, cost = self.desk.price(who, route, tokens, scene)
        return self.desk.charged(await self._shared.obtain(claims, cost)) if claims else None

    def charge_at_once(self, who: Claimant, route: str, tokens: int, scene: str = "") -> bool:
        """Charge as ``charge`` does, unless it is refused or others have to be asked."""
        try:
            if not self.desk.price(who, route, tokens, scene)[0]:
                return True
            if self._shared is not None:
                return False
            self.desk.charge(who, route, tokens, scene)
        except ForebayError:
            return False
        return True

    @asynccontextmanager
    async def hold(self, asks: Sequence[Ask]) -> AsyncIterator[Entry]:
        """Reserve for all parts of a request at once; settled by the sum of what they use.

        Each is admitted inside the block, with the entry as its ``whole``. Raises like ``admit``
        for quotas.
        """
        whole = await self._obtained(self.desk.plan_parts(asks))
        try:
            yield whole
        finally:
            self.desk.leave(whole, None)

    def admit(self, ask: Ask) -> _Admitting:
        """Hold a reservation and a place on a replica for the length of the block.

        Raises what ``Desk.reserve`` raises, and ``Overloaded`` when a pool cannot (503); for a
        reason that ``ask`` can do without a place for, the permit is ``refused`` instead.
        """
        return _Admitting(self, ask)

    async def take(self, ask: Ask) -> Permit:
        """What ``admit`` gives, for who calls ``leave`` in any case."""
        permit = Permit(self, await self._obtained(self.desk.plan(ask)))
        permit.entry.ticket.preparing = True
        try:
            await self._placed(permit, self.desk.enter(permit.entry))
        except BaseException as error:
            self.leave(permit, error)
            raise
        return permit

    def leave(self, permit: Permit, error: BaseException | None) -> None:
        """It is over; ``error`` ended it, or nothing did."""
        # A cancellation is no Exception: who leaves says nothing about the engine.
        failure = error if isinstance(error, Exception) else None
        if failure is not None:
            permit.failed(failure)
        self.desk.leave(permit.entry, permit.outcome(failure))
        if permit.entry.gate is not None:
            self._waiters.carry_out(permit.entry.gate)

    def lose(self, permit: Permit, late_since: float | None) -> None:
        """See ``Permit.lose``."""
        gate, entry, now = permit.entry.gate, permit.entry, self.desk.clock.now()
        if gate is None:
            return
        entry.gate = None
        # A client in a hurry is no fault of the engine's.
        failed = late_since is None or gate.health[entry.ticket.replica].silent(late_since, now)
        gate.finish(entry.ticket, now, ok=False if failed else None)
        self._waiters.carry_out(gate)

    async def built(self, permit: Permit, prompt_tokens: int) -> None:
        """See ``Permit.built``."""
        left = permit.entry.gate
        gate = self.desk.built(permit.entry, prompt_tokens)
        if gate is not None:
            assert left is not None
            self._waiters.carry_out(left)
            await self._placed(permit, gate)

    def again(self, permit: Permit) -> bool:
        """See ``Permit.again``."""
        gate = permit.entry.gate
        assert gate is not None
        found = gate.again(permit.entry.ticket, self.desk.clock.now())
        permit.replica = permit.entry.ticket.replica
        self._waiters.carry_out(gate)
        return found

    def tick(self) -> None:
        """Look at every gate again: rests end, replicas hang, without anybody coming or going."""
        now = self.desk.clock.now()
        self.desk.tick(now)
        for name, gate in self.desk.gates.items():
            gate.tick(now)
            _leave_hung(gate, now)
            _go_down(gate, now)
            change = gate.judge(now)
            self._waiters.carry_out(gate)
            if change is not None and self._told is not None:
                self._told(name, change)

    def statistics(self) -> dict[str, dict[str, float]]:
        """Figures of every gate, and of the quotas under ``quota``."""
        found = self.desk.statistics()
        for name, hedger in self.hedgers.items():
            found[name].update(hedger.statistics())
        return found

    async def _obtained(self, entry: Entry) -> Entry:
        work = await self._at_work(entry)
        try:
            entry = await self._charged(entry)
        except BaseException:
            if work is not None:
                work()
            raise
        entry.work = work
        return entry

    async def _at_work(self, entry: Entry) -> Callable[[], None] | None:
        """Take one of the places that its tenant has in all processes, and say how it is left.

        None: it needs none.
        """
        who, most = entry.ask.who, self.desk.most_in_flight(entry.ask.who)
        if most is None or entry.ask.whole is not None or self._places is None:
            return None
        if not await self._places.enter(who.tenant, most):
            raise RateLimited(
                f"This tenant has {most} requests in work already, all its plan allows.",
                retry_after_s=1.0,
            )
        return partial(self._places.leave, who.tenant)

    async def _charged(self, entry: Entry) -> Entry:
        claims, cost = entry.claims, entry.cost
        if not claims:
            return self.desk.take(entry, None)
        if self._shared is None:
            return self.desk.take(
                entry, self.desk.ledger.reserve(claims, cost, self.desk.clock.now())
            )
        # Nothing is awaited between the grant and the entry that settles it.
        return self.desk.take(entry, await self._shared.obtain(claims, cost))

    async def _placed(self, permit: Permit, gate: PoolGate) -> None:
        """Wait until the ticket is on a replica, unless it can do without when it is refused."""
        ticket = permit.entry.ticket
        try:
            permit.waited_s += await self._waiters.placed(gate, ticket)
        except Overloaded as refused:
            spares = permit.entry.ask.spares
            # Whatever a pool says while all of its engines are out, that is why.
            out = bool(spares) and _all_out(gate, self.desk.clock.now())
            if not out and refused.code not in spares:
                raise
            if out:
                after_s = refused.retry_after_s
                refused = Overloaded(SENTENCES["engines_out"], retry_after_s=after_s, code=_OUT)
            permit.refused = refused
            self.desk.withdraw(permit.entry)
            return
        permit.pool, permit.replica = permit.entry.pool, ticket.replica


class _Admitting:
    """The block of ``Admission.admit``; no generator, since every request goes through it."""

    __slots__ = ("_admission", "_ask", "_permit")

    def __init__(self, admission: Admission, ask: Ask) -> None:
        self._admission = admission
        self._ask = ask

    async def __aenter__(self) -> Permit:
        self._permit = await self._admission.take(self._ask)
        return self._permit

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.leave(self._permit, error)


def _leave_hung(gate: PoolGate, now: float) -> None:
    """Who waits for a first token where nothing moves goes elsewhere, as far as retries allow.

    Whom they do not allow goes on waiting: a replica that reads a long prompt is silent, too. Where
    no replica is left to go to, those go that have another way to be answered.
    """
    leaving = 0
    for at, health in enumerate(gate.health):
        for ticket in health.hung(now):
            if not isinstance(ticket, Ticket) or ticket.replica != at or ticket.hung is None:
                continue
            if now >= ticket.deadline_at:
                continue
            others = (n for n in range(len(gate.loads)) if n != at)
            if any(gate.health[n].admits(now) for n in others):
                if ticket.attempts >= gate.retries.settings.max_attempts:
                    continue
                if not gate.retries.affords(leaving + 1):
                    return
                leaving += 1
            elif not ticket.spared:
                continue
            leave, ticket.hung = ticket.hung, None
            leave()


def _go_down(gate: PoolGate, now: float) -> None:
    """Who has another way to be answered does not wait for engines that are all out."""
    if gate.queue and _all_out(gate, now):
        for place in [one for one in gate.queue if one.item.spared]:
            gate.send_away(place, "engines_out")


def _all_out(gate: PoolGate, now: float) -> bool:
    return not any(one.state == "fit" or one.admits(now) for one in gate.health)


def engines_fault(error: Exception) -> bool:
    """Whether it speaks against the engine: not what was wrong with the request, nor its haste.

    Else whoever asks for what an engine refuses takes it from everybody.
    """
    if isinstance(error, EngineRefused):
        return error.set_up_wrongly
    return not isinstance(error, DeadlineExceeded)
