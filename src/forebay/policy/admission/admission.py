"""One request's way in and out: reserve, wait, be placed, correct, settle.

``admit`` is the only asynchronous part, and it only waits: every decision is made by the ledger,
the estimates and the gates, which are plain functions of numbers and time. Whatever happens to the
request afterwards, leaving the block gives everything back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.context import Priority, RateState
from forebay.kernel.errors import InvalidRequest, Overloaded, RateLimited
from forebay.policy.admission.claims import Claimant, ClaimBook
from forebay.policy.admission.routing import PoolRule, PoolRules
from forebay.policy.admission.settings import AdmissionSettings
from forebay.policy.cost import COST_PROFILES, CostWeights
from forebay.policy.estimate import OutputEstimates
from forebay.policy.gate import PoolGate, Ticket
from forebay.policy.quota import Claim, QuotaLedger, Refusal, Reservation

_SENTENCES = {
    "queue_full": "Too many requests are waiting; try again later.",
    "queue_delay": "Requests wait too long at present; try again later.",
    "deadline": "The request cannot be finished before its deadline at the present load.",
    "low_priority": "Requests of low priority are held back while the load is high.",
}


class Ask(msgspec.Struct, frozen=True):
    """What a request wants, as far as it is known before retrieval.

    ``input_tokens`` counts the conversation; ``passages`` are planned. ``cap`` is the output the
    client allows, None when it said nothing.
    """

    who: Claimant
    route: str
    priority: Priority
    deadline_at: float
    input_tokens: int
    passages: int = 0
    cap: int | None = None
    session: str = ""
    weight: float = 1.0


class Permit:
    """What an admitted request holds. Settled exactly once, when the ``admit`` block ends."""

    def __init__(self, admission: Admission, ask: Ask, ticket: Ticket) -> None:
        self._admission = admission
        self.ticket = ticket
        self.ask = ask
        self.pool = ""
        self.replica = -1
        self.max_output_tokens = 0
        self.clamped = False
        self.rate: RateState | None = None
        self.waited_s = 0.0
        self.reservation: Reservation | None = None
        self.weights = CostWeights()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.whole = False
        self.failed = False

    async def built(self, prompt_tokens: int) -> None:
        """The prompt is built: hold what it really costs, in a pool that takes it.

        It may cost more than was planned; a prompt too long for its pool waits again, in front of
        another. Raises what ``admit`` raises for pools.
        """
        ticket = self.ticket
        ticket.input_tokens = prompt_tokens
        if self.reservation is not None:
            cost = self.weights.cost(prompt_tokens, ticket.output_tokens)
            self.reservation.correct(cost, self._admission.clock.now())
        await self._admission.move(self)

    def began(self, prompt_tokens: int) -> None:
        """The prompt went to the engine: it is charged from now on, whatever happens."""
        self.prompt_tokens = prompt_tokens

    def token(self) -> None:
        """The engine gave a sign of life."""
        self._admission.gates[self.pool].first_token(self.ticket, self._admission.clock.now())

    def again(self) -> bool:
        """The replica failed before its first token: whether another was found."""
        return self._admission.again(self)

    def produced(self, prompt_tokens: int, completion_tokens: int, *, whole: bool) -> None:
        """So much was used in the end; ``whole`` if the answer was not cut by client or error."""
        self.prompt_tokens, self.completion_tokens, self.whole = (
            prompt_tokens,
            completion_tokens,
            whole,
        )


class Admission:
    """Lets requests in; ``gates`` are the pools by name, ``rules`` say who goes where."""

    def __init__(
        self,
        settings: AdmissionSettings,
        rules: Sequence[PoolRule],
        gates: Mapping[str, PoolGate],
        clock: Clock,
        wall_clock: Clock,
    ) -> None:
        self.gates = gates
        self.clock = clock
        self.ledger = QuotaLedger(settings.max_buckets)
        self.estimates = OutputEstimates(settings.estimate)
        self._wall_clock = wall_clock
        self._rules = PoolRules(rules)
        self._settings = settings
        self._book = ClaimBook(settings)
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._in_work: dict[str, int] = {}

    def replace(self, settings: AdmissionSettings) -> None:
        """Other settings from now on; what was used stays used."""
        self._settings = settings
        self._book = ClaimBook(settings)

    @asynccontextmanager
    async def admit(self, ask: Ask) -> AsyncIterator[Permit]:
        """Hold a reservation and a place on a replica for the length of the block.

        ``RateLimited`` when a quota is used up (429), ``InvalidRequest`` when it could never pay,
        ``ContextTooLong`` when no pool takes the input, ``Overloaded`` when a pool cannot (503).
        """
        tenant = ask.who.tenant
        in_work = self._in_work.get(tenant, 0)
        if ask.who.max_in_flight is not None and in_work >= ask.who.max_in_flight:
            raise RateLimited(
                f"This tenant has {in_work} requests in work already, all its plan allows.",
                retry_after_s=1.0,
            )
        permit = self._reserve(ask)
        self._in_work[tenant] = in_work + 1
        try:
            await self._enter(permit, ask)
            yield permit
        except asyncio.CancelledError:
            raise
        except Exception:
            permit.failed = permit.prompt_tokens > 0
            raise
        finally:
            self._leave(permit, ask)

    def charge(self, who: Claimant, route: str, tokens: int) -> None:
        """Charge a request that needs no engine; raises like ``admit`` for quotas."""
        claims = self._book.claims(who, self._wall_clock.now())
        if not claims:
            return
        profile = self._settings.route_profiles.get(route, self._settings.profile)
        got = self.ledger.reserve(claims, COST_PROFILES[profile].cost(tokens, 0), self.clock.now())
        if isinstance(got, Refusal):
            raise _refusal(got)

    async def move(self, permit: Permit) -> None:
        """Find another pool for a permit whose prompt its own does not take."""
        ticket = permit.ticket
        if ticket.input_tokens <= self._rules.by_name[permit.pool].max_input_tokens:
            return
        gate = self.gates[permit.pool]
        gate.finish(ticket, self.clock.now(), ok=None, used=0.0)
        self._carry_out(gate)
        await self._enter(permit, permit.ask)

    def again(self, permit: Permit) -> bool:
        """Another replica of the pool for a permit whose own failed before its first token."""
        gate = self.gates[permit.pool]
        found = gate.again(permit.ticket, self.clock.now())
        permit.replica = permit.ticket.replica
        self._carry_out(gate)
        return found

    def tick(self) -> None:
        """Look at every gate again: rests end, replicas hang, without anybody coming or going."""
        now = self.clock.now()
        for gate in self.gates.values():
            gate.tick(now)
            self._carry_out(gate)

    def statistics(self) -> dict[str, dict[str, float]]:
        """Figures of every gate, and of the quotas under ``quota``."""
        found = {name: gate.statistics() for name, gate in self.gates.items()}
        quota: dict[str, float] = {**self.ledger.statistics(), **self.estimates.statistics()}
        return {**found, "quota": quota}

    def _reserve(self, ask: Ask) -> Permit:
        """Charge the quotas; decides and raises without waiting."""
        settings = self._settings
        weights = COST_PROFILES[settings.route_profiles.get(ask.route, settings.profile)]
        planned = self._planned(ask)
        rule = self._rules.choose(ask.who.tenant, planned, ask.cap)[0]
        claims = self._book.claims(ask.who, self._wall_clock.now())
        most = weights.output_within(self.ledger.most(claims), planned) if claims else 2**31 - 1
        if most < 1:
            raise InvalidRequest(
                f"The request needs about {weights.cost(planned, 1):.0f} tokens, more than the "
                f"{self.ledger.most(claims):.0f} its quota ever holds; shorten it.",
                param="messages",
                code="quota_too_small",
            )
        wanted = min(ask.cap or rule.max_output_tokens, rule.max_output_tokens)
        cap = min(wanted, most)
        output = self.estimates.estimate(_kind(ask), cap)
        ticket = Ticket(
            cost=weights.cost(planned, output),
            deadline_at=ask.deadline_at,
            tenant=ask.who.tenant,
            priority=ask.priority,
            session=ask.session,
        )
        ticket.input_tokens, ticket.output_tokens = planned, output
        ticket.weight = ask.weight
        permit = Permit(self, ask, ticket)
        permit.weights = weights
        permit.max_output_tokens = cap
        permit.clamped = cap < (ask.cap or cap)
        if claims:
            now = self.clock.now()
            got = self.ledger.reserve(claims, ticket.cost, now)
            if isinstance(got, Refusal):
                raise _refusal(got)
            permit.reservation = got
            permit.rate = self._rate(claims, now)
        return permit

    def _rate(self, claims: Sequence[Claim], now: float) -> RateState | None:
        tightest = self.ledger.remaining(claims, now)
        if tightest is None:
            return None
        claim, left = tightest
        limit = claim.limit
        return RateState(
            limit_tokens=int(limit.burst),
            remaining_tokens=max(0, int(left)),
            reset_s=(limit.burst - left) / limit.rate_per_s,
        )

    def _planned(self, ask: Ask) -> int:
        settings = self._settings
        if not ask.passages:
            return ask.input_tokens
        return ask.input_tokens + settings.prompt_tokens + ask.passages * settings.passage_tokens

    async def _enter(self, permit: Permit, ask: Ask) -> None:
        ticket = permit.ticket
        choices = self._rules.choose(ask.who.tenant, ticket.input_tokens, ask.cap)
        now = self.clock.now()
        # Spill only into room that is free: two lines are never better than one.
        rule = next((one for one in choices if self.gates[one.name].has_room(ticket, now)), None)
        rule = rule or choices[0]
        gate = self.gates[rule.name]
        permit.pool = rule.name
        permit.max_output_tokens = min(permit.max_output_tokens, rule.max_output_tokens)
        gate.arrive(ticket, now)
        self._carry_out(gate)
        if ticket.state == "refused":
            raise _overloaded(ticket)
        if ticket.state == "waiting":
            await self._wait(ticket)
            permit.waited_s += self.clock.now() - now
        permit.replica = ticket.replica

    async def _wait(self, ticket: Ticket) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        began = self.clock.now()
        try:
            async with asyncio.timeout(max(0.0, ticket.deadline_at - began)):
                await future
        except TimeoutError:
            ticket.reason, ticket.retry_after_s = "deadline", 1.0
            raise _overloaded(ticket) from None
        finally:
            del self._waiting[ticket]
        if ticket.state == "refused":
            raise _overloaded(ticket)

    def _leave(self, permit: Permit, ask: Ask) -> None:
        now = self.clock.now()
        self._in_work[ask.who.tenant] -= 1
        if not self._in_work[ask.who.tenant]:
            del self._in_work[ask.who.tenant]
        used = 0.0
        if permit.prompt_tokens:
            used = permit.weights.cost(permit.prompt_tokens, permit.completion_tokens)
            if permit.whole:
                self.estimates.settled(_kind(ask), permit.completion_tokens)
        if permit.reservation is not None:
            permit.reservation.settle(used, now)
        gate = self.gates.get(permit.pool)
        if gate is not None:
            permit.ticket.output_tokens = permit.completion_tokens
            ok = True if permit.whole else False if permit.failed else None
            gate.finish(permit.ticket, now, ok=ok, used=used)
            self._carry_out(gate)

    def _carry_out(self, gate: PoolGate) -> None:
        for ticket in (*gate.sent(), *gate.refused()):
            future = self._waiting.get(ticket)
            if future is not None and not future.done():
                future.set_result(None)


def _kind(ask: Ask) -> str:
    return f"{ask.who.tenant}/{ask.route}"


def _refusal(refusal: Refusal) -> RateLimited | InvalidRequest:
    if refusal.never:
        return InvalidRequest(
            "The request needs more tokens than its quota ever holds; shorten it.",
            param="messages",
            code="quota_too_small",
        )
    whose = "the service" if refusal.dimension == "all" else f"this {_WORDS[refusal.dimension]}"
    wait_s = math.ceil(refusal.retry_after_s)
    return RateLimited(
        f"The token quota of {whose} is used up; try again in {wait_s} s.",
        retry_after_s=refusal.retry_after_s,
    )


_WORDS = {
    "key": "API key",
    "user": "user",
    "tenant": "tenant",
    "line": "business line",
    "ip": "address",
}


def _overloaded(ticket: Ticket) -> Overloaded:
    return Overloaded(
        _SENTENCES[ticket.reason],
        retry_after_s=ticket.retry_after_s,
        code=f"overloaded_{ticket.reason}",
    )
