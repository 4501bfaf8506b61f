"""The gate in front of engines: any mix of sizes shares them without one size crowding out another.

Each request has a size, the engine time it takes from others, and a band of such sizes. Bands that
fit into the engines together, from the smallest up, are *safe*: they go first and find headroom.
A larger one is let in while

- the places and the KV memory that smaller bands usually need stay free (Little's law), and
- nobody who is in work, and nobody of a smaller band who comes while its prompt is read, misses a
  deadline by it, as the learned step times say (``engine_room``, ``engine_model``).

What is not safe shares what the safe leave, max-min fair by work (``band_queue``). All parts of a
text have the band of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from forebay.policy.band_queue import BandLine, BandQueue
from forebay.policy.bands import Bands, band_of
from forebay.policy.engine_model import EngineModel
from forebay.policy.engine_room import FEW_LARGER, Bounds, EngineRoom, Wanted
from forebay.policy.gate import LEAST_RETRY_S, MOST_RETRY_S, RANK, SURELY, GateSettings, PoolGate
from forebay.policy.lateness import Lateness
from forebay.policy.line_patience import LinePatience
from forebay.policy.queue import Waiting
from forebay.policy.replica_work import SEATS, ReplicaWork
from forebay.policy.ticket import Ticket

PROGRESS_S = 0.25
"""Between two looks at how quickly one answer is written."""
LOOK_S = 0.1
"""Between two looks at which bands fit together."""
PRIOR = (3e-5, 1e-4)
"""Seconds of a prompt token and of a written one in company, until they are known: for bands."""
BESIDE = 64.0
"""Sequences that share a step, for the size of a request, where the memory is not known."""
KV_LAST, LARGER_MEMORY = 0.97, 0.9
"""KV memory that protected ones may fill, and the part of the bound that others may."""
NEW_PROMPT = 0.1
"""Weight of a new prompt beside those before it."""
STANDS = 2
"""Requests that wait inside an engine at two looks, over which it is taken to be full."""


class EngineGate(PoolGate):
    """See the module; a ``PoolGate`` to those around it."""

    def __init__(self, settings: GateSettings, replicas: Sequence[str]) -> None:
        super().__init__(settings, replicas)
        self.model = EngineModel()
        self.bands = Bands()
        self.lateness = Lateness()
        self.lines: BandQueue[Ticket] = BandQueue(settings.queue)
        self.queue = self.lines  # type: ignore[assignment]  # all that others ask of a line
        self.work = tuple(ReplicaWork(self.model) for _ in replicas)
        self._rooms = tuple(
            EngineRoom(self.model, self.bands, self.lateness, work) for work in self.work
        )
        self._patience = LinePatience(settings.shed, self.model, self.bands, self.lines)
        self._prompts = _Prompts()
        self._looked_at = -math.inf
        self._peak = 0  # most at work on one replica that were seen to write

    # What happens to a ticket.

    def arrive(self, ticket: Ticket, now: float) -> None:
        """See ``PoolGate``."""
        self.retries.request()
        output = _output(ticket)
        ticket.planned_tokens = ticket.input_tokens
        ticket.likely_tokens = self._prompts.likely(ticket.input_tokens)
        own = (ticket.likely_tokens, output)
        ticket.band = band_of(self._size_s(*(ticket.whole_tokens or own)))
        # Who allows less than it takes in an empty engine says nothing of what others need.
        left_s = ticket.deadline_at - now
        if left_s > max(self._settings.least_s, self.model.alone_s(*own)):
            self.bands.arrived(ticket.band, *own, left_s, now)
        self._look(now)
        reason = self._door(ticket, now)
        if reason is not None:
            self._refuse(ticket, reason)
            return
        place = Waiting(
            ticket,
            tenant=ticket.tenant,
            priority=ticket.priority,
            cost=self._size_s(*own),
            deadline_at=ticket.deadline_at,
        )
        place.band = ticket.band
        ticket.place = place
        ticket.state = "waiting"
        first = not self.lines.precede(ticket.priority, ticket.band, self.bands.safe_to)
        if first and (replica := self._room(ticket, now)) is not None:
            place.queued_at = now
            self._send(ticket, replica, now)
            return
        for other in self.lines.push(place, now, ticket.weight):
            self._refuse(other.item, "queue_full")
        self._patience.changed(ticket.band, now)
        self._dispatch(now)

    def correct(self, ticket: Ticket, cost: float) -> None:
        """See ``PoolGate``."""
        super().correct(ticket, cost)
        self._prompts.built(ticket.planned_tokens, ticket.input_tokens)
        ticket.likely_tokens = ticket.input_tokens
        for work in self.work:
            work.corrected(ticket)

    def asked(self, ticket: Ticket, now: float) -> None:
        """See ``PoolGate``."""
        super().asked(ticket, now)
        for work in self.work:
            work.asked(ticket, now)

    def progress(self, ticket: Ticket, tokens: int, now: float) -> None:
        """See ``PoolGate``."""
        if ticket.state != "sent":
            return
        self.health[ticket.replica].alive(ticket, now)
        if ticket.first_token_at is None:
            ticket.first_token_at = ticket.sampled_at = now
            self._first_token(now - ticket.sent_at)
            self.work[ticket.replica].began(ticket, now)
        elif now - ticket.sampled_at < PROGRESS_S:
            return
        else:
            self.work[ticket.replica].wrote(ticket, tokens, now)
            ticket.sampled_at = now
            self._peak = max(self._peak, self.loads[ticket.replica].requests)
        self.batch.written += tokens - ticket.sampled_tokens
        ticket.sampled_tokens = tokens

    def finish(self, ticket: Ticket, now: float, *, ok: bool | None) -> None:
        """See ``PoolGate``."""
        if ticket.state == "refused":
            return  # it held nothing: no reason to look again
        if ticket.state == "waiting":
            self.lines.remove(ticket.place)
            self._patience.changed(ticket.band, now)
        elif ticket.state == "sent":
            if ok is not False:
                self.work[ticket.replica].wrote(ticket, ticket.output_tokens, now)
            planned_s = self._planned_s(ticket)
            in_flight = self._give_back(ticket, now, ok=ok)
            self.batch.written += max(0, ticket.output_tokens - ticket.sampled_tokens)
            if ok is not None or now >= ticket.deadline_at:
                self._ended(ticket, now, in_flight, planned_s if ok is not False else 0.0)
        ticket.end("done")
        self._look(now)
        self._dispatch(now)

    def signals(self, replica: int, *, waiting: int | None, kv_use: float | None) -> None:
        """See ``PoolGate``; where requests wait in an engine, its places are learned by it."""
        before = self.loads[replica].waiting
        super().signals(replica, waiting=waiting, kv_use=kv_use)
        self.loads[replica].most = math.inf  # ``seats`` say it better
        work = self.work[replica]
        work.shown = waiting is not None
        work.memory(kv_use)
        if work.stuck(work.now) and min(before, waiting or 0) > STANDS:
            work.full(work.now)
        elif waiting == 0:
            work.free(work.now)

    def has_room(self, ticket: Ticket, now: float) -> bool:
        """See ``PoolGate``; larger ones that wait do not matter to a safe one."""
        precede = self.lines.precede(ticket.priority, ticket.band, self.bands.safe_to)
        return not precede and bool(self._fit(ticket, now))

    def moved(self, ticket: Ticket, replica: int, now: float) -> None:
        """See ``PoolGate``."""
        for at, work in enumerate(self.work):
            if at != replica and ticket in work.flights:
                planned_s = work.flights[ticket].planned_s
                work.ended(ticket, now)
                self.work[replica].sent(ticket, _output(ticket), now, planned_s)

    def places(self, replica: int) -> int:
        """See ``PoolGate``."""
        return max(1, int(min(self._trusted(), self._seats(replica))))

    def drain_s(self, priority: str = "low") -> float | None:
        """Seconds in which what waits in front of a newcomer will have been worked off."""
        return self.lines.cost / len(self.loads) if self.lines else None

    def statistics(self) -> dict[str, float]:
        """What a gate shows, and what is known of its engines."""
        places = [self.places(at) for at in range(len(self.loads))]
        known = {"limit": float(min(places, default=0)), "base": self.model.fixed_s}
        learned = {**self.model.statistics(), **self.lateness.statistics()}
        return {**super().statistics(), **known, **learned}

    # What is known of engines.

    def _size_s(self, input_tokens: int, output_tokens: int) -> float:
        """Engine time of such a request, in a batch as full as the memory allows."""
        if not self.model.known:
            return PRIOR[0] * input_tokens + PRIOR[1] * output_tokens
        beside, most = BESIDE, min(self.batch.tokens.bound, self.work[0].kv_tokens)
        if not math.isinf(most):
            beside = min(SEATS, max(1.0, most / (input_tokens + output_tokens / 2 + 1)))
        return self.model.work_s(input_tokens, output_tokens, beside)

    def _look(self, now: float) -> None:
        """Find out now and then which bands fit together."""
        if now - self._looked_at < LOOK_S or not self.model.known:
            return
        self._looked_at = now
        fit = sum(one.admits(now) for one in self.health)
        memory = min(one.kv_tokens for one in self.work)
        tokens = min(self.batch.tokens.bound, memory) / self.limit.processes
        places = min(self.places(at) for at in range(len(self.loads)))
        self.bands.look(self.model, now, fit, Bounds(places, tokens))

    def _protected(self, band: int) -> bool:
        """Whether it is safe, and larger ones are there from which it must be protected.

        Else whom it waits for is of its own size or smaller, and letting in more helps nobody.
        """
        if band > self.bands.safe_to:
            return False
        tokens = sum(one.held() for one in self.work)
        return sum(one.held(larger_than=band) for one in self.work) > FEW_LARGER * tokens

    def _wanted(self, ticket: Ticket, *, safe: bool) -> Wanted:
        return Wanted(ticket.band, ticket.likely_tokens, _output(ticket), ticket.deadline_at, safe)

    def _trusted(self) -> float:
        """Places by what was tried: twice as many as were seen to write at once."""
        limit = self._settings.limit
        most = min(float(limit.most), max(self.limit.cold * self.limit.processes, 2.0 * self._peak))
        return max(1.0, most / self.limit.processes)

    def _seats(self, replica: int) -> float:
        """Sequences the engine takes at once, or this process's part while that is a guess."""
        seats = self.work[replica].seats
        return seats / self.limit.processes if seats == SEATS else seats

    def _planned_s(self, ticket: Ticket) -> float:
        flight = self.work[ticket.replica].flights.get(ticket)
        return 0.0 if flight is None else flight.planned_s

    def _ended(self, ticket: Ticket, now: float, in_flight: int, planned_s: float) -> None:
        """Learn from one that ended, or that its deadline ended."""
        self._peak = max(self._peak, in_flight)
        took_s, written = now - ticket.sent_at, max(1, ticket.output_tokens)
        allowed_s = ticket.deadline_at - ticket.sent_at
        share = took_s / allowed_s if planned_s and now < ticket.deadline_at else math.inf
        self.lateness.ended(share, safe=self._protected(ticket.band), now=now)
        if planned_s > 0 and ticket.output_tokens:
            done = min(1.0, ticket.output_tokens / max(1, _output(ticket)))
            self.lateness.missed(ticket.band, took_s / (planned_s * done), in_flight)
        alone_s = self.model.alone_s(ticket.input_tokens, written)
        if alone_s > 0:
            self.tail.observe(took_s / alone_s, long=ticket.band > self.bands.safe_to)

    # Decisions.

    def _send(self, ticket: Ticket, replica: int, now: float) -> None:
        wanted, room = self._wanted(ticket, safe=False), self._rooms[replica]
        planned_s = room.takes_s(wanted, now) if self.model.known else 0.0
        super()._send(ticket, replica, now)
        self.work[replica].sent(ticket, wanted.output, now, planned_s)
        room.sent(wanted.input, wanted.output)

    def _give_back(self, ticket: Ticket, now: float, ok: bool | None) -> int:
        for work in self.work:  # a second attempt may have moved it
            work.ended(ticket, now)
        return super()._give_back(ticket, now, ok)

    def _refuse(self, ticket: Ticket, reason: str) -> None:
        super()._refuse(ticket, reason)
        if reason in ("queue_delay", "queue_full"):
            # Its own line is what it would wait for.
            wait_s = self._patience.wait_s(ticket, len(self.loads)) or 0.0
            ticket.retry_after_s = min(MOST_RETRY_S, max(LEAST_RETRY_S, wait_s))

    def _door(self, ticket: Ticket, now: float) -> str | None:
        room = self.has_room(ticket, now)
        if not room and self._pressed() and RANK[ticket.priority] > RANK[self.min_priority]:
            return "low_priority"
        left_s = ticket.deadline_at - now
        if left_s <= 0:
            return "deadline"
        if self._out(now):
            return "engines_out"
        wait_s = 0.0 if room else self._patience.wait_s(ticket, len(self.loads)) or 0.0
        takes_s = self._takes_s(ticket, now)
        if wait_s + takes_s > left_s and not self._may_try(takes_s, left_s, now):
            return "deadline"
        if room or self._protected(ticket.band):
            return None
        most_s = self._patience.most_wait_s(ticket.band, now)
        return "queue_delay" if wait_s > most_s else None

    def _takes_s(self, ticket: Ticket, now: float) -> float:
        least_s = self._settings.least_s
        if not self.model.known:
            return least_s
        if ticket.expected_tokens is None:
            first_s = self.model.prompt_s(ticket.likely_tokens) + self.model.fixed_s
            return max(least_s, SURELY * first_s)
        wanted = self._wanted(ticket, safe=self._protected(ticket.band))
        takes_s = math.inf
        for room, work in zip(self._rooms, self.work, strict=True):
            one_s = room.takes_s(wanted, now)
            if not wanted.safe:
                one_s *= self.lateness.stretch(wanted.band, len(work.flights))
            takes_s = min(takes_s, one_s)
        return max(least_s, takes_s)

    def _fit(self, ticket: Ticket, now: float) -> list[int]:
        wanted = self._wanted(ticket, safe=self._protected(ticket.band))
        # What is withheld while memory is short (F2.13) is withheld from larger ones.
        tokens = LARGER_MEMORY * self.batch.tokens.bound
        if wanted.safe:
            tokens = self._settings.max_tokens or math.inf
        tokens *= (1 - self.hold) / self.limit.processes
        trusted = self._trusted() * (1 - self.hold)
        fit = []
        for at, load in enumerate(self.loads):
            if load.full and not (wanted.safe and (load.kv_use or 0.0) < KV_LAST):
                continue
            if self.health[at].admits(now) and (
                not load.requests or self._takes(at, wanted, now, (trusted, tokens))
            ):
                fit.append(at)
        return [at for at in fit if not self.loads[at].crowded] or fit

    def _takes(self, at: int, wanted: Wanted, now: float, most: tuple[float, float]) -> bool:
        """Whether one more is welcome there, beside those at work."""
        load, seats = self.loads[at], self._seats(at)
        part = KV_LAST if wanted.safe else LARGER_MEMORY
        tokens = min(most[1], part * self.work[at].kv_tokens / self.limit.processes)
        if load.requests >= max(1.0, min(most[0], seats)):
            return False
        if not self.model.known:
            held = load.cost + wanted.input + wanted.output
            return held <= min(tokens, self._settings.cold_tokens / self.limit.processes)
        room = self._rooms[at]
        return room.holds(wanted, now, tokens) and room.harmless(wanted, now, Bounds(seats, tokens))

    def _dispatch(self, now: float) -> None:
        while self.lines and self._dispatch_one(now):
            pass

    def _dispatch_one(self, now: float) -> bool:
        """Send or refuse the first head that can be; False: all wait on."""
        for line in self.lines.order(self.bands.safe_to):
            if now < line.again_at:
                continue
            head = line.queue.peek()
            assert head is not None
            replica = self._room(head.item, now)
            if replica is not None:
                self._take(line, head, replica, now)
                return True
            if not self._protected(line.band):
                line.again_at = now + self._patience.again_s(line.band)
            reason = self._stands(head, now)
            if reason is None and now + self._takes_s(head.item, now) > head.deadline_at:
                reason = "deadline"
            if reason is not None:
                self.lines.remove(head)
                self._patience.changed(line.band, now)
                self._refuse(head.item, reason)
                return True
        return False

    def _take(
        self, line: BandLine[Ticket], head: Waiting[Ticket], replica: int, now: float
    ) -> None:
        """Send the head of a line, unless it comes too late or the line stands."""
        tag, ticket = line.tag, head.item
        self.lines.take(line)
        if now + self._takes_s(ticket, now) >= ticket.deadline_at:
            line.tag = tag
            self._refuse(ticket, "deadline")
        elif not self._protected(line.band) and self._patience.sheds(line.band, head, now):
            line.tag = tag
            self._refuse(ticket, "queue_delay")
        else:
            self._patience.sent(line.band, head.cost, now)
            self._send(ticket, replica, now)
        self._patience.changed(line.band, now)


class _Prompts:
    """How long prompts turn out that were planned with so many tokens: passages are planned."""

    def __init__(self) -> None:
        self._shares: dict[int, float] = {}  # by powers of two

    def built(self, planned: int, tokens: int) -> None:
        """Note one."""
        size = planned.bit_length()
        share = self._shares.get(size, 1.0)
        self._shares[size] = share + NEW_PROMPT * (tokens / max(1, planned) - share)

    def likely(self, planned: int) -> int:
        """Tokens that such a prompt probably has."""
        return max(1, round(planned * self._shares.get(planned.bit_length(), 1.0)))


def _output(ticket: Ticket) -> int:
    """Tokens it will probably write."""
    return ticket.output_tokens if ticket.expected_tokens is None else ticket.expected_tokens
