"""The gate of one pool: a waiting line in front, limited work behind, every decision in the open.

A synchronous state machine of numbers and time, without tasks or locks: the server wraps it in
futures, the simulator drives it by events. A ticket arrives, waits or is refused; when there is
room it is sent to a replica; it reports its first token and its end. Each call may send others:
``sent`` and ``refused`` return them and must be read after every call.

Room is, for each replica, fewer than ``limit`` requests (an ``AdaptiveLimit`` for the pool) and at
most ``batch.tokens`` of cost (F1.7: the number and tokens let in are the engine's batch, and the
line is what gathers for it). Both follow the memory that engines show, where they do (F2.13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.context import Priority
from forebay.policy.balance import EjectionSettings, ReplicaHealth, ReplicaLoad, choose
from forebay.policy.batch import Batch, BatchSettings
from forebay.policy.limit import AdaptiveLimit, LimitSettings
from forebay.policy.quantiles import RecentQuantiles
from forebay.policy.queue import CLASSES, FairQueue, QueueSettings, Waiting
from forebay.policy.retry import RetryBudget, RetrySettings
from forebay.policy.shed import DelayShedder, DrainRate, ServiceForecast, ShedSettings
from forebay.policy.tail import TailChange, TailSettings, TailWatch
from forebay.policy.ticket import Ticket

__all__ = ["REASONS", "SAMPLE_S", "GateSettings", "PoolGate", "Ticket"]

REASONS = ("queue_full", "queue_delay", "deadline", "low_priority", "engines_out")
"""Why a gate refuses."""
LEAST_RETRY_S = 1.0
MOST_RETRY_S = 60.0
SAMPLE_S = 1.0
SURELY = 0.5
"""Share of the usual unloaded time that a first token takes anyway: a cached prefix spares some."""
TRY_S = 1.0
"""So long a pool has been sent nothing when a forecast that refuses is tried."""
FIRST_TOKENS = 20
"""First tokens between two looks at how long they take."""


class GateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of one pool; defaults suit an engine, whose first token takes a second or so."""

    queue: QueueSettings = QueueSettings()
    limit: LimitSettings = LimitSettings()
    shed: ShedSettings = ShedSettings(target_s=0.25, interval_s=1.0)
    ejection: EjectionSettings = EjectionSettings()
    retry: RetrySettings = RetrySettings()
    tail: TailSettings = TailSettings()
    batch: BatchSettings = BatchSettings()
    least_s: Annotated[
        float,
        Meta(
            description="Seconds that every answer takes; who has less left is refused at once.",
            ge=0.0,
        ),
    ] = 0.02
    severe_hold: Annotated[
        float,
        Meta(description="Share of the room withheld while the tail is severe.", ge=0.0, lt=1.0),
    ] = 0.25
    cold_tokens: Annotated[
        float,
        Meta(
            description="Tokens let into a replica, in up to four times the initial limit, while "
            "its speed is not known.",
            ge=0.0,
        ),
    ] = 16000.0
    max_tokens: Annotated[
        float,
        Meta(description="Tokens let into one replica at once; 0: bounded by requests only.", ge=0),
    ] = 0.0


class PoolGate:
    """See the module. ``replicas`` are names; their order gives the numbers in ``ticket.replica``.

    ``hold`` (0..1) is the share of the room that is withheld, ``min_priority`` the class under
    which nobody is let in: the tail watch sets them (F1.8) and undoes them, ``judge`` is its look.
    """

    def __init__(self, settings: GateSettings, replicas: Sequence[str]) -> None:
        self._settings = settings
        self.queue: FairQueue[Ticket] = FairQueue(settings.queue)
        self.limit = AdaptiveLimit(settings.limit, len(replicas))
        self.batch = Batch(settings.batch, settings.max_tokens)
        self.drain = DrainRate()
        self.service = ServiceForecast()
        self.loads = tuple(ReplicaLoad(name) for name in replicas)
        self.health = tuple(ReplicaHealth(settings.ejection) for _ in replicas)
        self.retries = RetryBudget(settings.retry)
        self._first_tokens = RecentQuantiles(least=0.001, memory=200)
        self._rests_s = 0.0
        self.hold = 0.0
        self.min_priority: Priority = "low"
        self.tail = TailWatch(settings.tail)
        self._shedder = DelayShedder(settings.shed)
        self._turn = 0
        self._sent_at = 0.0
        self._sent: list[Ticket] = []
        self._refused: list[Ticket] = []

    # What happens to a ticket.

    def arrive(self, ticket: Ticket, now: float) -> None:
        """Let it in, let it wait, or refuse it at the door."""
        self.retries.request()
        reason = self._door(ticket, now)
        if reason is not None:
            self._refuse(ticket, reason)
            return
        place = Waiting(
            ticket,
            tenant=ticket.tenant,
            priority=ticket.priority,
            cost=ticket.cost,
            deadline_at=ticket.deadline_at,
        )
        ticket.place = place
        ticket.state = "waiting"
        if not self.queue and (replica := self._room(ticket, now)) is not None:
            place.queued_at = now
            self._send(ticket, replica, now)
            return
        for other in self.queue.push(place, now, ticket.weight):
            self._refuse(other.item, "queue_full")
        self._shedder.occupied(now, len(self.queue))
        self._dispatch(now)

    def has_room(self, ticket: Ticket, now: float) -> bool:
        """Whether it would be sent to a replica at once."""
        return not self.queue and bool(self._fit(ticket, now))

    def correct(self, ticket: Ticket, cost: float) -> None:
        """Its prompt is built: what it costs, where a plan of it was counted until now."""
        if ticket.state == "sent":
            self.loads[ticket.replica].cost += cost - ticket.cost
            ticket.cost = cost

    def asked(self, ticket: Ticket, now: float) -> None:
        """What was prepared goes to the replica: from here its silence counts."""
        ticket.preparing = False
        if ticket.state == "sent":
            self.health[ticket.replica].asked(ticket, now)

    def first_token(self, ticket: Ticket, now: float) -> None:
        """The first token came from the replica."""
        self.progress(ticket, 1, now)

    def progress(self, ticket: Ticket, tokens: int, now: float) -> None:
        """So many tokens have come by now: a sign of life, and evidence long before the end.

        A pool of answers that take a minute would know neither its rate nor its limit for minutes.
        """
        if ticket.state != "sent":
            return
        self.health[ticket.replica].alive(ticket, now)
        if ticket.first_token_at is None:
            ticket.first_token_at = ticket.sampled_at = now
            self._first_token(now - ticket.sent_at)
        elif now - ticket.sampled_at < SAMPLE_S:
            return
        else:
            # The speed of late, not since the beginning: it shows what crowding does at once.
            written = max(1, tokens - ticket.sampled_tokens)
            in_flight = self.loads[ticket.replica].requests
            speed = (now - ticket.sampled_at) / written
            self.limit.observe(speed, self._used(in_flight), bound=self._in_time(ticket))
            self.service.observe(ticket.input_tokens, tokens, now - ticket.sent_at)
            ticket.sampled_at = now
        self.batch.written += tokens - ticket.sampled_tokens
        ticket.sampled_tokens = tokens
        done = min(ticket.cost, float(ticket.input_tokens + tokens))
        self.drain.done(done - ticket.credited, now)
        ticket.credited = done

    def again(self, ticket: Ticket, now: float) -> bool:
        """Its replica failed before the first token: send it to another, if budget and time allow.

        False: it is lost, and only ``finish`` is left to call.
        """
        if ticket.state != "sent":
            return False
        failed = ticket.replica
        self._give_back(ticket, now, ok=False)
        ticket.state = "lost"
        left_s, needs_s = ticket.deadline_at - now, self._takes_s(ticket, now)
        others = [at for at in self._fit(ticket, now) if at != failed]
        may = bool(others) and self.retries.take(
            ticket.attempts, remaining_s=left_s, needs_s=needs_s
        )
        if may:
            loads = [self.loads[at] for at in others]
            self._send(ticket, others[loads.index(choose(loads, session=ticket.session))], now)
            self._sent.remove(ticket)
        else:
            self._dispatch(now)
        return may

    def finish(self, ticket: Ticket, now: float, *, ok: bool | None) -> None:
        """It is over: whole (True), failed (False) or left by its client (None).

        In line it just leaves.
        """
        if ticket.state == "waiting":
            self.queue.remove(ticket.place)
        elif ticket.state == "sent":
            in_flight = self._give_back(ticket, now, ok=ok)
            self.batch.written += max(0, ticket.output_tokens - ticket.sampled_tokens)
            # By what was planned, as those in line are counted: a rate of what prompts turn out to
            # be would make their wait longer than it is, or shorter.
            self.drain.done(max(0.0, ticket.place.cost - ticket.credited), now)
            self._learn(ticket, now, in_flight, ok)
        if ticket.state != "refused":
            ticket.end("done")
        self._dispatch(now)

    def judge(self, now: float) -> TailChange | None:
        """Look at the tail and act on what is found; the change, if there is one.

        Severe: less is let in at once, requests of low priority are refused and those already
        waiting sent away. All of it ends with severe.
        """
        change = self.tail.judge(now)
        if change is None:
            return None
        severe = change.level == "severe"
        self.hold = self._settings.severe_hold if severe else 0.0
        self.min_priority = "normal" if severe else "low"
        if severe:
            for place in [one for one in self.queue if one.priority == "low"]:
                self.send_away(place, "low_priority")
        self._dispatch(now)
        return change

    def send_away(self, place: Waiting[Ticket], reason: str) -> None:
        """Refuse one that waits."""
        self.queue.remove(place)
        self._refuse(place.item, reason)

    def tick(self, now: float) -> None:
        """Look again without an occasion: a rest has ended, a replica hangs, limits changed."""
        self.batch.follow(self.limit, self.loads, now)
        for one in self.health:
            one.look(now)
        self._dispatch(now)

    def signals(self, replica: int, *, waiting: int | None, kv_use: float | None) -> None:
        """What the engine exposes: requests waiting inside it, share of KV memory in use."""
        overdue = self.health[replica].overdue()
        self.loads[replica].show(waiting=waiting, kv_use=kv_use, overdue=overdue)

    def free(self) -> int:
        """Places that nobody holds."""
        places = sum(self.places(at) for at in range(len(self.loads)))
        return max(0, places - sum(one.requests for one in self.loads))

    def moved(self, ticket: Ticket, replica: int, now: float) -> None:
        """A second attempt went on: the request is on that replica from now on."""

    def places(self, replica: int) -> int:
        """Requests that may be at work on a replica at once, for what is known of it."""
        return self.limit.limit

    # What the caller must carry out.

    def sent(self) -> list[Ticket]:
        """Those sent to a replica since the last look."""
        found, self._sent = self._sent, []
        return found

    def refused(self) -> list[Ticket]:
        """Those refused since the last look; ``reason`` and ``retry_after_s`` say why and when."""
        found, self._refused = self._refused, []
        return found

    def drain_s(self, priority: Priority = "low") -> float | None:
        """Seconds in which what waits in front of a newcomer will have been worked off."""
        return self.drain.wait_s(self.queue.cost_before(priority))

    def statistics(self) -> dict[str, float]:
        """Queue, limit, work, replicas out."""
        return {
            **{f"queue_{name}": value for name, value in self.queue.statistics().items()},
            **self.limit.statistics(),
            **self.tail.statistics(),
            "in_flight": sum(load.requests for load in self.loads),
            "in_flight_cost": sum(load.cost for load in self.loads),
            "ejected": sum(health.state != "fit" for health in self.health),
            "rate": self.drain.rate() or 0.0,
        }

    def _door(self, ticket: Ticket, now: float) -> str | None:
        # A long tail is no reason to refuse anybody while there is room for all.
        if self._pressed() and RANK[ticket.priority] > RANK[self.min_priority]:
            return "low_priority"
        left_s = ticket.deadline_at - now
        if left_s <= 0:
            return "deadline"
        wait_s = 0.0 if self.has_room(ticket, now) else self._wait_s(ticket) or 0.0
        if self._out(now):
            return "engines_out"
        takes_s = self._takes_s(ticket, now)
        if wait_s + takes_s > left_s and not self._may_try(takes_s, left_s, now):
            return "deadline"
        # While the limit is looked for, a line says nothing about what the engines can do.
        most_s = self._shedder.most_wait_s(
            now, excused=self.limit.searching, sure=self.limit.calm_known, waiting=len(self.queue)
        )
        return "queue_delay" if wait_s > most_s else None

    def _may_try(self, takes_s: float, left_s: float, now: float) -> bool:
        """Whether a forecast that refuses is put to the test: the pool stands empty for it.

        Else one that was learned wrongly would shut the door for good.
        """
        idle = not self.queue and not any(load.requests for load in self.loads)
        learned = left_s > self._settings.least_s and takes_s > self._settings.least_s
        return idle and learned and now - self._sent_at >= TRY_S

    def _wait_s(self, ticket: Ticket) -> float | None:
        ahead = self.queue.cost_ahead(
            ticket.tenant, ticket.priority, ticket.deadline_at, ticket.weight
        )
        return self.drain.wait_s(ahead)

    def _out(self, now: float) -> bool:
        """Whether no replica can be tried for longer than anybody should wait."""
        self._rests_s = min((one.rests_s(now) for one in self.health), default=0.0)
        return self._rests_s > self._settings.shed.max_wait_s

    def _first_token(self, took_s: float) -> None:
        self._first_tokens.add(took_s)
        if self._first_tokens.count % FIRST_TOKENS == 0:
            usual = self._first_tokens.at(0.9)
            assert usual is not None
            for one in self.health:
                one.expect(usual)

    def _takes_s(self, ticket: Ticket, now: float) -> float:
        """How long it probably takes; as in an empty pool while half of the room is free.

        At least, where nobody knows how much will be written: for a first token in an empty pool.

        What was learned in a crowd must not shut the door when the crowd has gone: nothing would
        come in any more to correct it.
        """
        output = ticket.expected_tokens
        if output is None:
            steps = SURELY * self.service.steps(ticket.input_tokens, 1)
            takes_s = steps * self.limit.unloaded
        elif not self._half_full():
            takes_s = self.service.steps(ticket.input_tokens, output) * self.limit.unloaded
        else:
            takes_s = self.service.safe_s(ticket.input_tokens, output)
            # A crowd of long ones says little of short ones, and while these are refused for it
            # nothing says more. But the limit brings any crowd down to what it accepts.
            if accepted := self.limit.accepted * self.service.safety:
                steps = self.service.steps(ticket.input_tokens, output)
                takes_s = min(takes_s, accepted * steps)
        return max(self._settings.least_s, takes_s)

    def _half_full(self) -> bool:
        in_flight = sum(load.requests for load in self.loads)
        return 2 * in_flight >= sum(self.places(at) for at in range(len(self.loads)))

    def _pressed(self) -> bool:
        """Whether somebody waits or half of the room is taken."""
        return bool(self.queue) or self._half_full()

    def _refuse(self, ticket: Ticket, reason: str) -> None:
        ticket.end("refused")
        ticket.reason = reason
        wait_s = self.drain_s() or LEAST_RETRY_S
        if reason == "engines_out":
            wait_s = self._rests_s
        ticket.retry_after_s = min(MOST_RETRY_S, max(LEAST_RETRY_S, wait_s))
        self._refused.append(ticket)

    def _room(self, ticket: Ticket, now: float) -> int | None:
        """The replica that takes it now, if any can."""
        fit = self._fit(ticket, now)
        if not fit:
            return None
        self._turn += 1
        loads = [self.loads[at] for at in fit]
        chosen = choose(loads, session=ticket.session, turn=self._turn % len(loads))
        return fit[loads.index(chosen)]

    def _fit(self, ticket: Ticket, now: float) -> list[int]:
        limit = max(1, int(self.limit.limit * (1 - self.hold)))
        most = self.batch.tokens.bound * (1 - self.hold) / self.limit.processes
        # Nothing was ever too slow: a limit that has not been tried is no reason to let small
        # requests wait. The first second of a load would be lost while it doubles.
        cold = self.limit.cold if self.limit.fresh and not self.hold else 0
        light = self._settings.cold_tokens / self.limit.processes - ticket.cost
        fit = [
            at
            for at, load in enumerate(self.loads)
            if load.requests < min(max(limit, cold) if load.cost <= light else limit, load.most)
            and not load.full
            and (not load.requests or load.cost + ticket.cost <= most)
            and self.health[at].admits(now)
        ]
        return [at for at in fit if not self.loads[at].crowded] or fit

    def _send(self, ticket: Ticket, replica: int, now: float) -> None:
        ticket.state = "sent"
        ticket.attempts += 1
        ticket.replica = replica
        ticket.sent_at = self._sent_at = now
        self.loads[replica].took(ticket.cost)
        self.health[replica].began(ticket, now, asked=not ticket.preparing)
        self._sent.append(ticket)

    def _dispatch(self, now: float) -> None:
        while self.queue:
            head = self.queue.peek()
            assert head is not None
            replica = self._room(head.item, now)
            if replica is None:
                reason = self._stands(head, now)
                if reason is None:
                    break
                self.queue.pop()
                self._refuse(head.item, reason)
                continue
            taken = self.queue.pop()
            assert taken is head
            ticket = taken.item
            # Without the door's margin: who was let in is sent away only when there is no hope.
            takes_s = self._takes_s(ticket, now) / self.service.safety
            if now + takes_s >= ticket.deadline_at:
                # Better nothing than an answer nobody waits for any more.
                self._refuse(ticket, "deadline")
            elif self._shedder.sheds(now - taken.queued_at, now, len(self.queue)):
                self._refuse(ticket, "queue_delay")
            else:
                self._send(ticket, replica, now)
        self._shedder.emptied(now, len(self.queue))
        self.drain.at(now, busy=bool(self.queue))

    def _stands(self, head: Waiting[Ticket], now: float) -> str | None:
        """Why the first in line, whom no replica takes now, waits no longer; None: he does.

        Where nothing of ours is in work none of ours will end and make room for him.
        """
        if self._out(now):
            return "engines_out"
        idle = not any(load.requests for load in self.loads)
        too_long = now - head.queued_at > self._settings.shed.max_wait_s
        return "queue_delay" if idle and too_long else None

    def _give_back(self, ticket: Ticket, now: float, ok: bool | None) -> int:
        """Free its place; how many were in work there until now."""
        load = self.loads[ticket.replica]
        in_flight = load.requests
        load.gave_back(ticket.cost)
        self.health[ticket.replica].ended(ticket, now, ok=ok)
        return in_flight

    def _used(self, in_flight: int) -> int:
        """How much of the limit that is, were nothing held back: a hold must not freeze it."""
        return math.ceil(in_flight / (1 - self.hold))

    def _learn(self, ticket: Ticket, now: float, in_flight: int, ok: bool | None) -> None:
        if ok is None and now < ticket.deadline_at:
            return
        took_s = now - ticket.sent_at
        if ok:
            self.service.ended(ticket.input_tokens, ticket.output_tokens, took_s)
        steps = self.service.steps(ticket.input_tokens, ticket.output_tokens)
        self.tail.observe(took_s / steps, long=False)
        # An answer that its deadline cut shows by its speed whether it was crowded or just long.
        used, cut = self._used(in_flight), ok is None
        bound = (ticket.deadline_at - ticket.sent_at) / steps if ok else self._in_time(ticket)
        self.limit.observe(took_s / steps, used, ok=ok is not False, cut=cut, bound=bound)

    def _in_time(self, ticket: Ticket) -> float:
        """The time over steps with which it would end just at its deadline, if that is known."""
        output = ticket.expected_tokens
        if output is None:
            return math.inf
        steps = self.service.steps(ticket.input_tokens, output)
        return (ticket.deadline_at - ticket.sent_at) / steps


RANK: dict[Priority, int] = {name: rank for rank, name in enumerate(CLASSES)}
