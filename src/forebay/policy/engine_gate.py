"""The gate in front of engines: any mix of sizes shares them without one size crowding out another.

Each request has a size, the engine time it takes from others, and a band of such sizes. Bands that
fit into the engines together, from the smallest up, are *safe*: they go first and find headroom.
A larger one is let in while

- the places and the KV memory that smaller bands usually need stay free (Little's law), and
- nobody who is in work, and nobody of a smaller band who comes while its prompt is read, misses a
  deadline by it, as the learned step times say (``engine_model``).

What is not safe shares what the safe leave, max-min fair by work.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from forebay.policy.band_queue import BandLine, BandQueue
from forebay.policy.bands import ONE_SIZE, Bands, Usual, band_of
from forebay.policy.engine_model import EngineModel
from forebay.policy.gate import _RANK, GateSettings, PoolGate, Ticket
from forebay.policy.quantiles import RecentQuantiles
from forebay.policy.queue import Waiting
from forebay.policy.replica_work import ReplicaWork
from forebay.policy.shed import DelayShedder, DrainRate, ShedSettings

LOOK_AGAIN_S = 0.25
"""Between two looks at how quickly one answer is written."""
LOOK_S = 0.1
STANDING_WAIT, MOST_WAIT = 0.3, 0.6
"""Shares of the slack of a band (what its clients allow beyond its time alone) that one may wait:
where a line stands, and in a burst."""
PATIENCE = 0.5
"""Share of the slack of smaller ones in which ends of others are counted as room for them."""
PRIOR = (3e-5, 1e-4)
"""Seconds of a prompt token and of a written one in company, until they are known: for bands."""
BESIDE = 64.0
"""Sequences that share a step, for the size of a request."""
AHEAD = (0, 16, 64, 256, 1024, 4096)
"""Written tokens from now on, after which the memory held is looked at."""
TIGHT = 12
"""Flights that are looked at closely: those nearest to their deadlines."""
AGAIN_S = 0.004
"""So long a line whose first one found no room is passed over."""
REFRESH_S = 0.02


class EngineGate(PoolGate):
    """See the module."""

    def __init__(self, settings: GateSettings, replicas: Sequence[str]) -> None:
        super().__init__(settings, replicas)
        self.model = EngineModel()
        self.bands = Bands(len(replicas))
        self.lines: BandQueue[Ticket] = BandQueue(settings.queue)
        self.queue = self.lines  # type: ignore[assignment]
        self.work = tuple(ReplicaWork(self.model) for _ in replicas)
        self._drains: dict[int, DrainRate] = {}
        self._shed_at: dict[int, float] = {}
        self._shedders: dict[int, DelayShedder] = {}
        self._tight: list[tuple[float, list[tuple[float, float, int, float]]]] = [
            (-math.inf, []) for _ in replicas
        ]
        self._ahead: list[list[float]] = [[0.0] * len(AHEAD) for _ in replicas]
        self._rests: list[list[float]] = [[] for _ in replicas]
        self._look_at = -math.inf
        self._peak = 0
        self.margin = 0.75
        self.ease = 1.0
        self._ends = {True: (0.0, 0, 0), False: (0.0, 0, 0)}  # since when, how many, how many late
        self._misses: dict[int, _Miss] = {}
        self._planned_s = 0.0  # of the one that ended last

    # -- sizes

    def _sized(self, ticket: Ticket) -> None:
        i, o = ticket.whole_tokens or (ticket.input_tokens, ticket.output_tokens)
        if ticket.whole_tokens is None and ticket.expected_tokens is not None:
            o = ticket.expected_tokens
        ticket.band = band_of(self._work_s(i, o))

    def _work_s(self, i: float, o: float) -> float:
        if self.model.known:
            most = self.batch.tokens.bound
            beside = BESIDE if math.isinf(most) else min(256.0, max(1.0, most / (i + o / 2 + 1)))
            return self.model.work_s(i, o, beside)
        return PRIOR[0] * i + PRIOR[1] * o

    def _output(self, ticket: Ticket) -> int:
        return ticket.output_tokens if ticket.expected_tokens is None else ticket.expected_tokens

    # -- events

    def arrive(self, ticket: Ticket, now: float) -> None:
        self.retries.request()
        self._sized(ticket)
        self.bands.arrived(
            ticket.band, ticket.input_tokens, self._output(ticket), ticket.deadline_at - now, now
        )
        self._look(now)
        reason = self._door(ticket, now)
        if reason is not None:
            self._refuse(ticket, reason)
            return
        place = Waiting(
            ticket,
            tenant=ticket.tenant,
            priority=ticket.priority,
            cost=self._work_s(ticket.input_tokens, self._output(ticket)),
            deadline_at=ticket.deadline_at,
        )
        place.band = ticket.band
        ticket.place = place
        ticket.state = "waiting"
        if not self.lines and (replica := self._room(ticket, now)) is not None:
            place.queued_at = now
            self._send(ticket, replica, now)
            return
        for other in self.lines.push(place, now, ticket.weight):
            self._refuse(other.item, "queue_full")
        self._changed(ticket.band, now)
        self._dispatch(now)

    def _look(self, now: float) -> None:
        if now - self._look_at < LOOK_S:
            return
        self._look_at = now
        if self.model.known:
            fit = sum(one.admits(now) for one in self.health)
            most = self.batch.tokens.bound / self.limit.processes
            seats = min(self._most(), *(one.seats for one in self.work))
            self.bands.look(self.model, now, fit, seats, most)

    def correct(self, ticket: Ticket, cost: float) -> None:
        super().correct(ticket, cost)
        if ticket.state == "sent":
            self.work[ticket.replica].corrected(ticket)

    def asked(self, ticket: Ticket, now: float) -> None:
        super().asked(ticket, now)
        if ticket.state == "sent":
            self.work[ticket.replica].asked(ticket, now)

    def progress(self, ticket: Ticket, tokens: int, now: float) -> None:
        if ticket.state != "sent":
            return
        self.health[ticket.replica].alive(ticket, now)
        work = self.work[ticket.replica]
        if ticket.first_token_at is None:
            ticket.first_token_at = ticket.sampled_at = now
            self._first_token(now - ticket.sent_at)
            work.began(ticket, now)
        elif now - ticket.sampled_at < LOOK_AGAIN_S:
            return
        else:
            work.wrote(ticket, tokens, now)
            ticket.sampled_at = now
            self._peak = max(self._peak, self.loads[ticket.replica].requests)
        self.batch.written += tokens - ticket.sampled_tokens
        ticket.sampled_tokens = tokens

    def finish(self, ticket: Ticket, now: float, *, ok: bool | None) -> None:
        if ticket.state == "refused":
            return  # it held nothing: no reason to look again
        if ticket.state == "waiting":
            self.lines.remove(ticket.place)
            self._changed(ticket.band, now)
        elif ticket.state == "sent":
            if ok is not False:
                self.work[ticket.replica].wrote(ticket, ticket.output_tokens, now)
            in_flight = self._give_back(ticket, now, ok=ok)
            self.batch.written += max(0, ticket.output_tokens - ticket.sampled_tokens)
            self._learn(ticket, now, in_flight, ok)
        ticket.end("done")
        self._look(now)
        self._dispatch(now)

    def _learn(self, ticket: Ticket, now: float, in_flight: int, ok: bool | None) -> None:
        if ok is None and now < ticket.deadline_at:
            return
        took_s = now - ticket.sent_at
        alone = self.model.alone_s(ticket.input_tokens, max(1, ticket.output_tokens))
        late = took_s > NEAR * (ticket.deadline_at - ticket.sent_at) or not ok
        self._adapt(late, safe=self._protected(ticket.band), now=now)
        planned_s = self._planned_s
        if planned_s > 0 and ticket.output_tokens > 0:
            share = min(1.0, ticket.output_tokens / max(1, self._output(ticket)))
            size = ticket.band // ONE_SIZE
            found = self._misses.get(size)
            if found is None:
                found = self._misses[size] = _Miss()
            found.ended(took_s / (planned_s * share), in_flight)
        if alone > 0:
            self.tail.observe(took_s / alone, long=not self._safe(ticket.band))
        self._peak = max(self._peak, in_flight)

    def _adapt(self, late: bool, *, safe: bool, now: float) -> None:
        """Let larger ones in less where safe ones are nearly late, and the others where these are.

        Additive up, more down, once in a while: what many learn at once is one mistake.
        """
        began_at, ended, missed = self._ends[safe]
        ended, missed = ended + 1, missed + late
        if now - began_at < ADAPT_S:
            self._ends[safe] = (began_at, ended, missed)
            return
        self._ends[safe] = (now, 0, 0)
        step = -LESS if missed > MISSES * ended else MORE
        if safe:
            self.margin = min(MOST_MARGIN, max(LEAST_MARGIN, self.margin + step))
        else:
            self.ease = min(MOST_EASE, max(LEAST_MARGIN, self.ease + step))

    def _send(self, ticket: Ticket, replica: int, now: float) -> None:
        planned_s = self._plain_s(ticket, replica, now) if self.model.known else 0.0
        super()._send(ticket, replica, now)
        output = self._output(ticket)
        self.work[replica].sent(ticket, output, now)
        self.work[replica].flights[ticket].planned_s = planned_s
        for place, tokens in enumerate(AHEAD):
            if tokens <= output:
                self._ahead[replica][place] += ticket.input_tokens + tokens

    def _give_back(self, ticket: Ticket, now: float, ok: bool | None) -> int:
        flight = self.work[ticket.replica].flights.get(ticket)
        self._planned_s = 0.0 if flight is None else flight.planned_s
        self.work[ticket.replica].ended(ticket, now)
        return super()._give_back(ticket, now, ok)

    def signals(self, replica: int, *, waiting: int | None, kv_use: float | None) -> None:
        before = self.loads[replica].waiting
        super().signals(replica, waiting=waiting, kv_use=kv_use)
        self.loads[replica].most = math.inf
        work, stays = self.work[replica], min(before, waiting or 0)
        now = work.now
        if work.stuck(now) and stays > 2:
            work.full(now)
        elif waiting == 0:
            work.free(now)
        work.shown = waiting is not None

    def places(self, replica: int) -> int:
        return max(1, int(min(self._most(), self.work[replica].seats)))

    def statistics(self) -> dict[str, float]:
        """What a gate shows, and what is known of its engines."""
        places = [self.places(at) for at in range(len(self.loads))]
        known = {"limit": min(places, default=0), "base": self.model.fixed_s}
        return {**super().statistics(), **known, **self.model.statistics()}

    # -- lines

    def _changed(self, band: int, now: float) -> None:
        """The lines of a band filled or emptied."""
        waiting = self._waiting_in(band)
        drain = self._drains.get(band)
        if drain is None:
            drain = self._drains[band] = DrainRate()
        drain.at(now, busy=bool(waiting))
        shedder = self._shedder_of(band, now)
        if waiting:
            shedder.occupied(now, waiting)
        else:
            shedder.emptied(now, 0)

    def _waiting_in(self, band: int) -> int:
        return self.lines.waiting(band)

    def _shedder_of(self, band: int, now: float) -> DelayShedder:
        found = self._shedders.get(band)
        if found is None or (now - self._shed_at[band] > 5.0 and not self._waiting_in(band)):
            self._shed_at[band] = now
            shed = self._settings.shed
            alone_s, slack_s = self._alone_s(band)
            scaled = ShedSettings(
                target_s=max(shed.target_s, min(STANDING_WAIT * slack_s, 8 * alone_s)),
                interval_s=max(shed.interval_s, alone_s),
                max_wait_s=max(shed.max_wait_s, min(MOST_WAIT * slack_s, 16 * alone_s)),
            )
            found = self._shedders[band] = DelayShedder(scaled)
        return found

    def _alone_s(self, band: int) -> tuple[float, float]:
        found = self.bands.get(band)
        if found is None or not self.model.known:
            return 0.0, 0.0
        allowed_s = found.usual[2]
        alone_s = self.model.alone_s(*found.urgent)
        return alone_s, max(0.0, allowed_s - alone_s)

    # -- decisions

    def _safe(self, band: int) -> bool:
        return band <= self.bands.safe_to

    def _protected(self, band: int) -> bool:
        """Whether it is safe, and larger ones are there from which it must be protected.

        Else whom it waits for is of its own size or smaller, and letting in more helps nobody.
        """
        if not self._safe(band):
            return False
        larger = tokens = 0.0
        for one in self.work:
            for number, held in one.tokens.items():
                tokens += held
                if number >= band + ONE_SIZE:
                    larger += held
        return larger > FEW_LARGER * tokens

    def _most(self) -> int:
        settings = self._settings.limit
        most = max(settings.initial * 4, 2 * self._peak)
        return max(1, min(settings.most, most) // self.limit.processes)

    def _door(self, ticket: Ticket, now: float) -> str | None:
        room = self.has_room(ticket, now)
        if not room and self._pressed():
            if _RANK[ticket.priority] > _RANK[self.min_priority]:
                return "low_priority"
        left_s = ticket.deadline_at - now
        if left_s <= 0:
            return "deadline"
        if self._out(now):
            return "engines_out"
        wait_s = 0.0 if room else self._wait_s(ticket) or 0.0
        takes_s = self._takes_s(ticket, now)
        if wait_s + takes_s > left_s and not self._may_try(takes_s, left_s, now):
            return "deadline"
        if room or self._protected(ticket.band):
            return None
        shedder = self._shedder_of(ticket.band, now)
        most_s = shedder.most_wait_s(now, excused=not self.model.known)
        return "queue_delay" if wait_s > most_s else None

    def _wait_s(self, ticket: Ticket) -> float | None:
        drain = self._drains.get(ticket.band)
        if drain is None:
            return None
        line = self.lines.line(ticket.priority, ticket.band)
        ahead = line.queue.cost_ahead(
            ticket.tenant, ticket.priority, ticket.deadline_at, ticket.weight
        )
        if drain.rate() is None:
            # Work is in seconds of an engine: one that gives all its time is the best there is.
            return ahead / len(self.loads)
        return drain.wait_s(ahead)

    def _takes_s(self, ticket: Ticket, now: float) -> float:  # type: ignore[override]
        if not self.model.known:
            return self._settings.least_s
        output, protected = ticket.expected_tokens, self._protected(ticket.band)
        best = math.inf
        for at in range(len(self.loads)):
            work = self.work[at]
            if output is None:
                own = self.model.prompt_s(ticket.input_tokens, work.step_s)
                takes = SURE * (own + self.model.fixed_s)
            elif protected:
                takes = self._plain_s(ticket, at, now) * self._speed(at, [], now)
            else:
                takes = self._plain_s(ticket, at, now) * self._stretch(at, ticket.band)
            best = min(best, takes)
        return max(self._settings.least_s, best)

    def _stretch(self, at: int, band: int) -> float:
        """How much longer than planned it takes there: as learned, less in less company."""
        found = self._misses.get(band // ONE_SIZE)
        if found is None:
            return 1.0
        if found.factor <= 1:
            return found.factor
        crowd = len(self.work[at].flights) / max(1.0, found.crowd)
        return 1 + (found.factor - 1) * min(1.0, crowd)

    def _plain_s(self, ticket: Ticket, at: int, now: float) -> float:
        """Seconds that it takes there as the model says."""
        model, work, output = self.model, self.work[at], self._output(ticket)
        context = work.context + ticket.input_tokens + output / 2
        takes = work.pending_s(now) + model.prompt_s(ticket.input_tokens, work.step_s)
        # Prompts that come later are read after its own, and slow only what it writes.
        speed = self._speed(at, self.bands.smaller(ticket.band), now)
        return takes + output * model.step_s(work.decoding + 1, context) / speed

    def _speed(self, at: int, smaller: list[Usual], now: float) -> float:
        """Share of the time that prompts leave: of the smaller as they come, of others as sent."""
        busy = sum(one.reads_s for one in smaller)
        busy += self.work[at].flow(now, smaller[-1].band if smaller else -1)
        return max(0.1, 1 - busy)

    def _fit(self, ticket: Ticket, now: float) -> list[int]:
        safe = self._protected(ticket.band)
        smaller = self.bands.smaller(ticket.band)
        most = int(self._most() * (1 - self.hold))
        tokens = self.batch.tokens.bound * (1 - self.hold) / self.limit.processes
        tokens *= 1.0 if safe else LARGER_MEMORY
        fit = [
            at
            for at, load in enumerate(self.loads)
            if (not load.full or (safe and (load.kv_use or 0.0) < KV_LAST))
            and load.requests < load.most
            and self.health[at].admits(now)
            and (
                not load.requests
                or (
                    load.requests < min(most, self.work[at].seats)
                    and self._holds(at, ticket, now, tokens)
                    and self._harmless(
                        at, ticket, now, smaller, safe, (self.work[at].seats, tokens)
                    )
                )
            )
        ]
        return [at for at in fit if not self.loads[at].crowded] or fit

    def _holds(self, at: int, ticket: Ticket, now: float, tokens: float) -> bool:
        """Whether its memory lasts, at every moment ahead, for what is there and for it."""
        if math.isinf(tokens):
            return True
        self._tightest(at, now)
        output = self._output(ticket)
        return all(
            held + ticket.input_tokens + ahead <= tokens
            for ahead, held in zip(AHEAD, self._ahead[at], strict=True)
            if ahead <= output
        )

    def _harmless(
        self,
        at: int,
        ticket: Ticket,
        now: float,
        smaller: list[Usual],
        safe: bool,
        room: tuple[float, float],
    ) -> bool:
        """Whether it takes nothing that smaller ones need, and makes nobody late."""
        model, work, load = self.model, self.work[at], self.loads[at]
        if not model.known:
            return load.cost + ticket.cost <= self._settings.cold_tokens / self.limit.processes
        if smaller and not self._leaves(at, ticket, now, smaller, room):
            return False
        if safe and not smaller:
            return True
        if ticket.input_tokens > 2 * model.longest:
            # Nothing is known of prompts so long: one at a time shows it.
            return work.pending <= 0.1 * ticket.input_tokens
        output = self._output(ticket)
        context = work.context + ticket.input_tokens + output / 2
        step = model.step_s(work.decoding + 1, context)
        prompt = work.pending_s(now) + model.prompt_s(ticket.input_tokens, work.step_s)
        speed = self._speed(at, smaller, now)
        stretch = self._stretch(at, ticket.band)
        for one in smaller:
            own = model.prompt_s(one.urgent_input, step) + one.urgent_output * step
            takes = (prompt + own) / speed
            if takes > self.margin * one.allowed_s:
                return False
        if not safe:
            allowed = max(OWN_SHARE, self.ease) * (ticket.deadline_at - now)
            if stretch * (prompt + output * step) / speed > allowed:
                return False
        for deadline_at, rest, band, spare in self._tightest(at, now):
            if safe and band > ticket.band - ONE_SIZE:
                continue
            left = deadline_at - now - spare
            needs = (prompt + rest * step) * self._stretch(at, band)
            if needs > left * speed and rest * step < left:
                return False
        return True

    def _leaves(
        self, at: int, ticket: Ticket, now: float, smaller: list[Usual], room: tuple[float, float]
    ) -> bool:
        """Whether places and memory are left for the smaller ones that come before others end."""
        self._tightest(at, now)
        work = self.work[at]
        step = max(1e-6, work.step_s)
        usual = held = spare = memory = 0.0
        for one in smaller:
            usual += one.at_work
            held += one.at_work * (one.input + one.output / 2)
            takes_s = self.model.prompt_s(one.urgent_input, step) + one.urgent_output * step
            patient_s = PATIENCE * max(0.0, one.allowed_s - takes_s)
            ends = bisect_right(self._rests[at], patient_s / step)
            there = work.smaller(one.band)
            more = usual + 2 * math.sqrt(usual) + 1 - there - ends
            spare = max(spare, more)
            if usual:
                memory = max(memory, more * held / usual)
        if self.loads[at].requests + 1 + spare > room[0]:
            return False
        return self._holds(at, ticket, now, room[1] - memory)

    def _tightest(self, at: int, now: float) -> list[tuple[float, float, int, float]]:
        """Flights nearest to their deadlines: deadline, tokens left, band."""
        made_at, found = self._tight[at]
        if now - made_at < REFRESH_S:
            return found
        work = self.work[at]
        step = max(1e-6, self.model.step_s(work.decoding, work.context))
        rows = []
        ahead = [0.0] * len(AHEAD)
        for ticket, flight in work.flights.items():
            if flight.begun:
                rest = max(1.0, flight.output - flight.seen - (now - flight.seen_at) / step)
            else:
                rest = float(flight.output)
            there = flight.input + flight.output - rest
            for place, tokens in enumerate(AHEAD):
                if tokens > rest:
                    break
                ahead[place] += there + tokens
            share = self.margin if flight.band <= self.bands.safe_to else self.ease
            spare = (1 - share) * (ticket.deadline_at - ticket.sent_at)
            end = ticket.deadline_at
            rows.append((end - spare - rest * step, end, rest, flight.band, spare))
        rows.sort()
        self._rests[at] = sorted(row[2] for row in rows)
        found = [row[1:] for row in rows[:TIGHT]]
        self._tight[at], self._ahead[at] = (now, found), ahead
        return found

    def _dispatch(self, now: float) -> None:
        while self.lines:
            if not self._dispatch_one(now):
                break

    def _dispatch_one(self, now: float) -> bool:
        """Send or refuse the first head that can be; False: all wait on."""
        for line in self.lines.order(self.bands.safe_to):
            head = line.queue.peek()
            assert head is not None
            if now < line.again_at:
                continue
            replica = self._room(head.item, now)
            if replica is None:
                if not self._protected(line.band):
                    line.again_at = now + AGAIN_S
                reason = self._stands(head, now)
                late = now + self._takes_s(head.item, now) > head.deadline_at
                if reason is not None or late:
                    self.lines.remove(head)
                    self._changed(line.band, now)
                    self._refuse(head.item, reason or "deadline")
                    return True
                continue
            self._take(line, head, replica, now)
            return True
        return False

    def _take(
        self, line: BandLine[Ticket], head: Waiting[Ticket], replica: int, now: float
    ) -> None:
        waited = now - head.queued_at
        tag = line.tag
        self.lines.take(line)
        ticket = head.item
        if now + self._takes_s(ticket, now) >= ticket.deadline_at:
            line.tag = tag
            self._refuse(ticket, "deadline")
        elif not self._protected(line.band) and self._shedder_of(line.band, now).sheds(
            waited, now, self._waiting_in(line.band)
        ):
            line.tag = tag
            self._refuse(ticket, "queue_delay")
        else:
            drain = self._drains.get(line.band)
            if drain is not None:
                drain.done(head.cost, now)
            self._send(ticket, replica, now)
        self._changed(line.band, now)


class _Miss:
    """How much longer than planned requests of one size take of late, and in what company."""

    __slots__ = ("_seen", "crowd", "factor")

    def __init__(self) -> None:
        self._seen = RecentQuantiles(least=0.1, memory=60)
        self.crowd = 0.0
        self.factor = 1.0

    def ended(self, ratio: float, in_flight: int) -> None:
        """Note one: taken over planned, and how many were at work."""
        self._seen.add(ratio)
        self.crowd += 0.05 * (in_flight - self.crowd)
        if self._seen.count % 8 == 0:
            self.factor = min(MOST_MISS, max(LEAST_MISS, self._seen.at(USUAL_MISS) or 1.0))


SURE = 0.5
USUAL_MISS, LEAST_MISS, MOST_MISS = 0.6, 1.0, 3.0
"""Quantile of how much longer than planned requests take of late, by which plans are stretched."""
OWN_SHARE = 0.95
"""Of its time, in which a request must probably end to be let in."""
KV_LAST, LARGER_MEMORY = 0.97, 0.9
"""KV memory that protected ones may fill, and the part of the bound that others may."""
FEW_LARGER = 0.05
"""Share of the tokens at work up to which larger ones are not what the others wait for."""
NEAR = 0.85
"""Of its time, from which an answer counts as nearly late."""
MISSES, LESS, MORE, ADAPT_S = 0.04, 0.06, 0.015, 0.2
LEAST_MARGIN, MOST_MARGIN, MOST_EASE = 0.4, 0.85, 1.5
