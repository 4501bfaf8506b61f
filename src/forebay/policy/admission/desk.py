"""The desk: what admission decides, without waiting for anything.

Reserve, find a pool, arrive at its gate, move, leave: plain functions of numbers and time. The
server waits around them (``admission``); the simulator calls them on its virtual clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.context import NO_SCENE, Priority, RateState, Scene
from forebay.kernel.errors import InvalidRequest, RateLimited
from forebay.policy.admission.claims import Claimant, ClaimBook
from forebay.policy.admission.load_factor import Factors, LoadFactor
from forebay.policy.admission.routing import PoolRule, PoolRules
from forebay.policy.admission.settings import AdmissionSettings
from forebay.policy.cost import CostWeights
from forebay.policy.estimate import OutputEstimates
from forebay.policy.gate import PoolGate, Ticket
from forebay.policy.pace import Takes
from forebay.policy.quota import Claim, QuotaLedger, Quotas, Refusal, Reservation, largest

CUT_FACTOR = 1.5
"""How much longer an answer that its deadline cut would probably have been."""


class Ask(msgspec.Struct, frozen=True):
    """What a request wants, as far as it is known before retrieval.

    ``input_tokens`` counts the conversation; ``passages`` are planned. ``cap`` is the output the
    client allows, None when it said nothing. ``whole`` has reserved for it already. ``pool``: the
    only one it may go to; empty: any but those that are kept for such. ``spares``: codes of
    refusals after which it goes on without a place. ``scene``: what it is for.
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
    whole: Entry | None = None
    pool: str = ""
    spares: frozenset[str] = frozenset()
    scene: Scene = NO_SCENE


class Entry:
    """What an admitted request holds; left exactly once."""

    __slots__ = (
        "ask",
        "cap",
        "claims",
        "clamped",
        "completion_tokens",
        "cost",
        "gate",
        "parts_used",
        "pool",
        "prompt_tokens",
        "rate",
        "reservation",
        "ticket",
        "tokens",
        "weights",
        "work",
    )

    def __init__(self, ask: Ask, ticket: Ticket, weights: CostWeights, cap: int) -> None:
        self.ask = ask
        self.ticket = ticket
        self.weights = weights
        # What quotas are charged; engines hold the ticket's tokens, whatever these are worth.
        self.cost = weights.cost(ticket.input_tokens, ticket.output_tokens)
        self.cap = cap  # output tokens it may write
        self.clamped = cap < (ask.cap or cap)
        self.claims: Sequence[Claim] = ()
        self.pool = ""
        self.gate: PoolGate | None = None
        self.rate: RateState | None = None
        self.reservation: Reservation | None = None
        self.work: Callable[[], None] | None = None  # leaves its place among its tenant's
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.parts_used = 0.0  # cost of what was admitted under it
        self.tokens = (ticket.input_tokens, ticket.output_tokens)  # of all its parts together


class Desk:
    """Decides; ``gates`` are the pools by name, ``rules`` say who goes where.

    After every call the caller carries out what ``gate.sent()`` and ``gate.refused()`` say.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        rules: Sequence[PoolRule],
        gates: Mapping[str, PoolGate],
        clock: Clock,
        wall_clock: Clock,
        ledger: Quotas | None = None,
    ) -> None:
        self.gates = gates
        self.clock = clock
        self.ledger = QuotaLedger(settings.max_buckets) if ledger is None else ledger
        self.estimates = OutputEstimates(settings.estimate)
        self._wall_clock = wall_clock
        self._rules = PoolRules(rules)
        self._settings = settings
        self._book = ClaimBook(settings)
        self.load = LoadFactor(settings.load)
        self._in_work: dict[str, int] = {}
        self._ended = 0  # answers that an engine began, whole or not

    def replace(self, settings: AdmissionSettings) -> None:
        """Other settings from now on; what was used stays used."""
        self._settings = settings
        self._book = ClaimBook(settings)
        self.load.replace(settings.load)

    def tick(self, now: float) -> None:
        """Time passes: quotas follow the load of the pools."""
        self.load.look(now, self.gates)

    def factors(self) -> Factors:
        """What quotas are multiplied by now."""
        operator, window = self._settings.load_factor, self._book.window(self._wall_clock.now())
        pacing, fair = self.load.pacing, self.load.pacing.fair_per_s
        return Factors(
            operator,
            window,
            pacing.factor,
            operator * window * pacing.factor,
            None if math.isinf(fair) else fair,
            self.load.load,
        )

    def most_in_flight(self, who: Claimant) -> int | None:
        """Requests of the tenant that may be in work at once; None: any number."""
        return who.max_in_flight if self._settings.enabled else None

    def check_in_flight(self, who: Claimant, most: int | None = None) -> None:
        """Raise ``RateLimited`` where ``most`` are in work here already, or all the plan allows."""
        if most is None:
            most = self.most_in_flight(who)
        in_work = self._in_work.get(who.tenant, 0)
        if most is not None and in_work >= most:
            raise RateLimited(
                f"This tenant has {in_work} requests in work already, all its plan allows.",
                retry_after_s=1.0,
            )

    @property
    def denies(self) -> bool:
        """Whether anybody is denied: else nobody has to be checked."""
        return self._book.denies

    def check(self, who: Claimant) -> None:
        """Raise ``PermissionDenied`` for who is denied, whatever is asked."""
        self._book.claims(who, self._wall_clock.now())

    def charge(self, who: Claimant, route: str, tokens: int, scene: str = "") -> RateState | None:
        """Charge a request that needs no engine; raises like ``reserve`` for quotas.

        The tightest quota after it; None: it is under none.
        """
        claims, cost = self.price(who, route, tokens, scene)
        if not claims:
            return None
        return self.charged(self.ledger.reserve(claims, cost, self.clock.now()))

    def charged(self, got: Reservation | Refusal) -> RateState:
        """The tightest quota after a charge that is never settled; raises what a refusal means."""
        return _rate(charged(got), self.clock.now())

    def price(
        self, who: Claimant, route: str, tokens: int, scene: str = ""
    ) -> tuple[Sequence[Claim], float]:
        """What a request that needs no engine is charged to, and its cost."""
        claims = self._claims(who)
        return claims, self._settings.weights(who.tenant, route, scene).cost(tokens, 0)

    def reserve(self, ask: Ask) -> Entry:
        """Charge the quotas for a planned request.

        ``RateLimited`` when one is used up (429), ``InvalidRequest`` when one could never pay,
        ``ContextTooLong`` when no pool takes the input.
        """
        entry = self.plan(ask)
        if entry.claims:
            now = self.clock.now()
            return self.take(entry, self.ledger.reserve(entry.claims, entry.cost, now))
        return self.take(entry, None)

    def plan(self, ask: Ask) -> Entry:
        """What the request will cost, and whom; nothing is charged. Raises like ``reserve``."""
        tenant = ask.who.tenant
        if ask.whole is None:
            self.check_in_flight(ask.who)
        planned = self._planned(ask)
        pool = self._pool(ask, planned)
        rule = self._rules.choose(tenant, planned, ask.cap, ask.priority, pool)[0]
        weights = self._settings.weights(tenant, ask.route, ask.scene.name)
        claims = self._claims(ask.who) if ask.whole is None else ()
        cap = min(
            ask.cap or rule.max_output_tokens,
            rule.max_output_tokens,
            self._payable(ask, claims, weights, planned),
            ask.scene.max_output_tokens or rule.max_output_tokens,
        )
        output = self.estimates.estimate(_kind(ask), cap, _route(ask))
        ticket = Ticket(
            cost=float(planned + output),
            deadline_at=ask.deadline_at,
            tenant=tenant,
            priority=ask.priority,
            session=ask.session,
        )
        ticket.input_tokens, ticket.output_tokens, ticket.weight = planned, output, ask.weight
        ticket.expected_tokens = self.estimates.expected(_kind(ask), cap, _route(ask))
        ticket.spared = bool(ask.spares)
        if ask.whole is not None:
            ticket.whole_tokens = ask.whole.tokens
        entry = Entry(ask, ticket, weights, cap)
        entry.claims = claims
        return entry

    def plan_parts(self, asks: Sequence[Ask]) -> Entry:
        """What a request costs that is worked off in parts: one entry that reserves for them all.

        Each is admitted by itself then, with this entry as its ``whole``.
        """
        entry = self.plan(asks[0])
        others = [self.plan(ask) for ask in asks[1:]]
        entry.cost += sum(one.cost for one in others)
        entry.tokens = (
            entry.tokens[0] + sum(one.tokens[0] for one in others),
            entry.tokens[1] + sum(one.tokens[1] for one in others),
        )
        return entry

    def longest(self, tenant: str, priority: Priority) -> int:
        """The longest prompt that any pool takes of a tenant and class, in tokens."""
        return self._rules.longest(tenant, priority)

    def room(self, tenant: str, priority: Priority) -> int:
        """The longest conversation that any pool takes of them, in tokens."""
        return max(0, self.longest(tenant, priority) - self._settings.prompt_tokens)

    def take(self, entry: Entry, got: Reservation | Refusal | None) -> Entry:
        """Let a planned request in with what the quotas said; None: it is under none."""
        who = entry.ask.who
        if entry.ask.whole is not None:
            entry.rate = entry.ask.whole.rate
            return entry
        if got is not None:
            reservation, now = charged(got), self.clock.now()
            try:
                # Others may have come in while the quotas were asked.
                self.check_in_flight(who)
            except RateLimited:
                reservation.settle(0.0, now)
                raise
            entry.reservation = reservation
            entry.rate = _rate(reservation, now)
        self._count_in(who.tenant)
        return entry

    def enter(self, entry: Entry) -> PoolGate:
        """Arrive at the gate of a pool; the ticket is sent, waits or is refused then."""
        ticket, now = entry.ticket, self.clock.now()
        ask = entry.ask
        pool = self._pool(ask, ticket.input_tokens)
        choices = self._rules.choose(
            ask.who.tenant, ticket.input_tokens, ticket.output_tokens, ask.priority, pool
        )
        rule = choices[0]
        if len(choices) > 1 and not self.gates[rule.name].has_room(ticket, now):
            # Spill only into room that is free: two lines are never better than one.
            spill = (one for one in choices[1:] if self.gates[one.name].has_room(ticket, now))
            rule = next(spill, rule)
        gate = self.gates[rule.name]
        entry.pool, entry.gate = rule.name, gate
        entry.cap = min(entry.cap, rule.max_output_tokens)
        self.load.came(ask.who.tenant)
        gate.arrive(ticket, now)
        return gate

    def built(self, entry: Entry, prompt_tokens: int) -> PoolGate | None:
        """Correct the reservation; a gate it had to go to because its pool takes no such prompt.

        The gate it left is then to be looked after, too.
        """
        ticket = entry.ticket
        ticket.input_tokens = prompt_tokens
        if entry.reservation is not None:
            cost = entry.weights.cost(prompt_tokens, ticket.output_tokens)
            entry.reservation.correct(cost, self.clock.now())
        if entry.gate is not None:
            entry.gate.correct(ticket, float(prompt_tokens + ticket.output_tokens))
        if entry.gate is None or (
            prompt_tokens <= self._rules.by_name[entry.pool].max_input_tokens
        ):
            return None
        entry.gate.finish(ticket, self.clock.now(), ok=None)
        return self.enter(entry)

    def withdraw(self, entry: Entry) -> None:
        """It goes on without the place it was refused; what is reserved stays so."""
        gate, entry.gate = entry.gate, None
        if gate is not None:
            gate.finish(entry.ticket, self.clock.now(), ok=None)

    def leave(self, entry: Entry, ok: bool | None) -> None:
        """It is over: whole (True), failed (False), left by its client or refused (None).

        Pays for ``prompt_tokens`` and ``completion_tokens`` of the entry, as the engine began.
        """
        now, tenant, ask = self.clock.now(), entry.ask.who.tenant, entry.ask
        if ask.whole is not None:
            pass  # it counts once
        else:
            self._count_out(tenant)
        used = entry.parts_used
        self._ended += entry.gate is not None and bool(entry.prompt_tokens or ok is False)
        if entry.prompt_tokens:
            used += entry.weights.cost(entry.prompt_tokens, entry.completion_tokens)
            if ok:
                self._settled(entry, entry.completion_tokens)
            elif ok is None and now >= ask.deadline_at:
                # Leaving out what was too long to end in time would teach that all is short.
                reached = round(CUT_FACTOR * entry.completion_tokens)
                self._settled(entry, min(entry.cap, reached))
        if ask.whole is None:
            self.load.left(used, refused=bool(entry.ticket.reason))
        else:
            ask.whole.parts_used += used
        if entry.reservation is not None:
            entry.reservation.settle(used, now)
        if entry.work is not None:
            entry.work()
        if entry.gate is not None:
            entry.ticket.output_tokens = entry.completion_tokens
            entry.gate.finish(entry.ticket, now, ok=ok)

    def takes(self) -> Takes:
        """What generation takes, for whoever feeds it."""
        return Takes(self._ended, sum(gate.free() for gate in self.gates.values()))

    def statistics(self) -> dict[str, dict[str, float]]:
        """Figures of every gate, and of the quotas under ``quota``."""
        found = {name: gate.statistics() for name, gate in self.gates.items()}
        quota: dict[str, float] = {**self.ledger.statistics(), **self.estimates.statistics()}
        quota |= self.load.statistics()
        return {**found, "quota": quota}

    @contextmanager
    def attended(self, who: Claimant) -> Iterator[None]:
        """A request is in work that another one is charged for: it listens to that one's answer.

        Raises ``RateLimited`` as ``reserve`` does.
        """
        self.check_in_flight(who)
        self._count_in(who.tenant)
        try:
            yield
        finally:
            self._count_out(who.tenant)

    def _claims(self, who: Claimant) -> Sequence[Claim]:
        return self._book.claims(who, self._wall_clock.now(), self.load.pacing)

    def _settled(self, entry: Entry, tokens: int) -> None:
        for kind in dict.fromkeys((_kind(entry.ask), _route(entry.ask))):
            self.estimates.settled(kind, entry.cap, tokens)

    def _pool(self, ask: Ask, input_tokens: int) -> str:
        """The only pool it may go to: its own, else its scene's where that takes such a prompt."""
        pool, tenant = ask.scene.pool, ask.who.tenant
        if ask.pool or not pool:
            return ask.pool
        return pool if input_tokens <= self._rules.longest(tenant, ask.priority, pool) else ""

    def _count_in(self, tenant: str) -> None:
        self._in_work[tenant] = self._in_work.get(tenant, 0) + 1

    def _count_out(self, tenant: str) -> None:
        if self._in_work[tenant] > 1:
            self._in_work[tenant] -= 1
        else:
            del self._in_work[tenant]

    def _payable(
        self, ask: Ask, claims: Sequence[Claim], weights: CostWeights, planned: int
    ) -> int:
        """Most output tokens the quotas could ever pay for."""
        if not claims:
            return 2**31 - 1
        burst = largest(claims)
        most = weights.output_within(burst, planned)
        if most < 1:
            raise self._too_dear(ask, weights, planned, burst)
        return most

    def _too_dear(
        self, ask: Ask, weights: CostWeights, planned: int, burst: float
    ) -> InvalidRequest:
        """What the request is made of, and which of it, made less, would let it in."""
        own = ask.input_tokens
        bare = own + (self._settings.prompt_tokens if ask.passages else 0)
        ways = []
        if weights.cost(planned - own, 1) < burst:
            ways.append("shorten them")
        if ask.passages > 1 and weights.cost(bare + self._settings.passage_tokens, 1) <= burst:
            ways.append("ask for fewer passages (forebay.top_k)")
        ways.append("have burst_tokens of the quota raised")
        rest = "the planned passages and the prompt around them" if ask.passages else "the answer"
        return InvalidRequest(
            f"The request needs about {weights.cost(planned, 1):.0f} tokens, more than the "
            f"{burst:.0f} its quota ever holds; its messages are about "
            f"{weights.cost(own, 0):.0f} of them, {rest} the others: {', or '.join(ways)}.",
            param="messages",
            code="quota_too_small",
        )

    def _planned(self, ask: Ask) -> int:
        settings = self._settings
        if not ask.passages:
            return ask.input_tokens
        bare = ask.input_tokens + settings.prompt_tokens
        # Passages that do not fit are left out of the prompt.
        fits = max(bare, self.longest(ask.who.tenant, ask.priority))
        return min(fits, bare + ask.passages * settings.passage_tokens)


def _rate(reservation: Reservation, now: float) -> RateState:
    """The tightest of the buckets that were charged."""
    bucket = min(reservation.buckets, key=lambda one: one.level(now))
    limit, left = bucket.limit, bucket.level(now)
    return RateState(
        limit_tokens=int(limit.burst),
        remaining_tokens=max(0, int(left)),
        reset_s=(limit.burst - left) / limit.rate_per_s,
    )


def _route(ask: Ask) -> str:
    """What counts for lengths until its scene is known."""
    kind = f"{ask.who.tenant}/{ask.route}"
    # Parts are short by order, and would teach that all answers are.
    return kind if ask.whole is None else f"{kind}/part"


def _kind(ask: Ask) -> str:
    # As it was read: whoever names another scene must not be taken for shorter.
    kind, scene = _route(ask), ask.scene.read_as
    return f"{kind}/{scene}" if scene and ask.whole is None else kind


def charged(got: Reservation | Refusal) -> Reservation:
    """The reservation; raises what a refusal means to the caller."""
    if isinstance(got, Refusal):
        raise _refusal(got)
    return got


def _refusal(refusal: Refusal) -> RateLimited | InvalidRequest:
    if refusal.never:
        return InvalidRequest(
            "The request needs more tokens than its quota ever holds; shorten it, or have "
            "burst_tokens of the quota raised.",
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
