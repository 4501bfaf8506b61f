"""A schedule by one who knows all requests before the first: the best of many that were tried.

No closed form bounds what a continuous batch does with a mix of sizes and deadlines: the time of a
step depends on who shares it. So the bound is one that is reached: candidates run through the same
simulated engines, and the best by work of good answers counts among those that keep rule 1. Each
candidate sends the protected kinds (or of them the smallest) straight on and holds the others in a
line of its own, in an order (deadline, slack, size, value for the memory held), lets them in while
the memory and the places they take stay under a bound, a bounded number of them reading their
prompt at once, and leaves out whom the present step time would make late. Then hindsight: what
turned out to be late in the engine took work for nothing, and what was read while protected ones
waited in vain cost them their deadline. Both are left out and the candidate runs again, some
rounds. Sending straight on is a candidate too, and so are the protected kinds without anybody else.

All orders and rooms are tried once; the best of them are changed, a setting at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from forebay.lab.mixes.judge import Floats, Offered, keeps_rule_1, safety, sizes
from forebay.lab.mixes.outcome import Flags, Outcome, drive
from forebay.lab.mixes.work import EngineWork
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, Replica, Router
from forebay.lab.workload.request import PlannedRequest

Order = Literal["deadline", "slack", "size", "value"]
Reading = tuple[float, float, int]
"""From when to when which request read its prompt."""
ROUNDS = 8
"""Of hindsight; where rule 1 is kept, half as many find what is to be found."""
CLIMBS = 3
"""Starts from which changes are tried."""
ENOUGH = 0.995
"""Of all work: nothing is left to look for."""


Merit = tuple[bool, float]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How those that are not protected are sent."""

    order: Order = "deadline"
    room: tuple[float, float] = (0.95, 1.0)
    """Shares of the KV cache (at their full length) and of the engine's sequences for them."""
    reading: int = 2
    """How many of them may be before their first token, on one engine."""
    frugal: bool = False
    """Whether of the protected kinds only those of the smallest size are sent straight on, and the
    others stand in the line before those that are not protected."""
    polite: bool = False
    """Whether none of them begins to read while one that was sent straight on reads."""
    margin: float = 1.0
    """Who has less time left than this times what it takes at the present step time is left out."""
    without: tuple[int, ...] = ()
    """Kinds that are left out."""


_ROOMS = ((0.95, 1.0), (0.5, 0.5), (0.25, 0.25), (0.1, 0.1), (0.95, 0.02))
STARTS = tuple(
    Schedule(order=order, room=room, frugal=frugal)
    for order in ("deadline", "slack", "size", "value")
    for room, frugal in (*((room, False) for room in _ROOMS), ((0.9, 0.9), True))
)
CHANGES: tuple[dict[str, Any], ...] = (
    *({"margin": margin} for margin in (1.3, 1.8)),
    *({"reading": reading} for reading in (1, 4, 64)),
    {"polite": True},
    *({"room": room} for room in (*_ROOMS, (0.17, 0.17), (0.05, 0.05))),
    {"frugal": True},
)
"""What is tried, one after the other, each kept when it makes the schedule better; then to leave
out one kind more."""


class Offer(Protocol):
    """The requests and engines of a mix."""

    requests: list[PlannedRequest]
    offered: Offered
    work: EngineWork

    def pools(self) -> Sequence[Pool]:
        """Fresh engines."""
        ...


class Facts(msgspec.Struct, frozen=True):
    """What is known of all requests, by number."""

    keys: dict[str, Floats]
    prefill_s: Floats
    patience_s: Floats
    protected: Flags
    smallest: Flags


def facts(trial: Offer, protected: Sequence[int]) -> Facts:
    """Work out every order once for all candidates."""
    requests, work, offered = trial.requests, trial.work, trial.offered
    smallest = sizes(offered)[0] if protected else ()
    prefill_s = np.array([work.prefill_s(one.input_tokens) for one in requests])
    alone_s = np.array([work.alone_s(one.input_tokens, one.output_tokens) for one in requests])
    work_s = np.array([work.work_s(one.input_tokens, one.output_tokens) for one in requests])
    patience_s = np.array([one.deadline_s or np.inf for one in requests])
    deadline_at = np.array([one.at_s for one in requests]) + patience_s
    held = np.array([one.input_tokens + one.output_tokens / 2 for one in requests]) * alone_s
    keys = {
        "deadline": deadline_at,
        "size": work_s,
        "slack": deadline_at - alone_s,
        "value": -work_s / held,
    }
    return Facts(
        keys,
        prefill_s,
        patience_s,
        np.isin(offered.kind, protected),
        np.isin(offered.kind, smallest),
    )


class PlannedRouter:
    """Carries a schedule out; ``left_out`` are numbers of requests that are never sent."""

    def __init__(
        self, fleet: Fleet, schedule: Schedule, known: Facts, work: EngineWork, left_out: set[int]
    ) -> None:
        self._fleet = fleet
        self._schedule = schedule
        self._known = known
        key = known.keys[schedule.order]
        # Those of the protected kinds that stand in the line stand first.
        self._key = np.where(known.protected, key - 2 * np.abs(key).max(), key)
        self._free = known.smallest if schedule.frugal else known.protected
        self._work = work
        self._left_out = left_out
        self._rooms = [_Room(replica) for pool in fleet.pools for replica in pool.replicas]
        engine = fleet.pools[0].config.engine
        self._tokens = schedule.room[0] * engine.kv_tokens
        self._places = schedule.room[1] * engine.max_num_seqs
        self._line: list[tuple[float, int, Job]] = []
        self.read: list[Reading] = []

    def arrived(self, job: Job, now: float) -> None:
        """Send the protected, let the others wait for room."""
        number = job.plan.index
        if number in self._left_out:
            self._fleet.refuse(job, "left_out")
        elif self._free[number]:
            room = min(self._rooms, key=lambda one: one.replica.outstanding_tokens)
            self._enter(job, room, _Stay(room, 0, now))
        else:
            heapq.heappush(self._line, (float(self._key[number]), number, job))
            self._send(now)

    def changed(self, job: Job, event: Event, now: float) -> None:
        """Give room back when one has read its prompt, or ended."""
        state = job.state
        if isinstance(state, _Stay):
            read = state.changed(ended=event is not Event.FIRST_TOKEN)
            if read and not self._known.protected[job.plan.index]:
                self.read.append((state.since, now, job.plan.index))
            self._send(now)

    def woken(self, now: float) -> None:
        """Nothing was asked for."""

    def _send(self, now: float) -> None:
        line = self._line
        while line:
            job = line[0][2]
            if job.status:
                heapq.heappop(line)
                continue
            room = self._room(job)
            if room is None:
                return
            heapq.heappop(line)
            if now + self._schedule.margin * self._takes_s(job, room) > job.deadline_at:
                self._fleet.refuse(job, "too_late")
            else:
                tokens = job.plan.input_tokens + job.plan.output_tokens
                self._enter(job, room, _Stay(room, tokens, now))

    def _room(self, job: Job) -> _Room | None:
        asked = job.plan.input_tokens + job.plan.output_tokens
        fitting = [
            room
            for room in self._rooms
            if room.reading < self._schedule.reading
            and (not room.held or room.tokens + asked <= self._tokens)
            and room.held < self._places
            and not (self._schedule.polite and room.protected)
        ]
        return min(fitting, key=lambda one: one.replica.outstanding_tokens, default=None)

    def _takes_s(self, job: Job, room: _Room) -> float:
        plan, replica = job.plan, room.replica
        context = replica.outstanding_tokens + plan.input_tokens
        return float(self._known.prefill_s[plan.index]) + self._work.decode_s(
            replica.in_flight + 1, context, plan.output_tokens
        )

    def _enter(self, job: Job, room: _Room, stay: _Stay) -> None:
        job.state = stay
        self._fleet.send(job, room.replica)


class _Room:
    """What one engine holds of those that wait for room, and how many protected ones read."""

    __slots__ = ("held", "protected", "reading", "replica", "tokens")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.held = self.reading = self.tokens = self.protected = 0


class _Stay:
    """One request's part of the room; ``tokens`` are 0 for a protected one."""

    __slots__ = ("_reads", "_room", "_tokens", "since")

    def __init__(self, room: _Room, tokens: int, since: float) -> None:
        self._room = room
        self._tokens = tokens
        self._reads = True
        self.since = since
        self._count(1)
        if tokens:
            room.held += 1
            room.tokens += tokens

    def changed(self, *, ended: bool) -> bool:
        """Give room back; whether its prompt was read until now."""
        read, self._reads = self._reads, False
        if read:
            self._count(-1)
        if ended and self._tokens:
            self._room.held -= 1
            self._room.tokens -= self._tokens
        return read

    def _count(self, one: int) -> None:
        if self._tokens:
            self._room.reading += one
        else:
            self._room.protected += one


class Best(msgspec.Struct, frozen=True):
    """The best schedule found; ``name`` says which it is."""

    good: Flags
    name: str
    work_s: float


class Clairvoyant:
    """Searches for the schedule that does most work among those that keep rule 1.

    ``protected`` are kinds, ``alone`` their good requests when nobody else is offered, ``straight``
    the good ones when everything is sent straight on.
    """

    def __init__(self, trial: Offer, protected: Sequence[int], alone: Flags) -> None:
        self._trial = trial
        self._offered = trial.offered
        self._protected = protected
        self._alone = alone
        self._known = facts(trial, protected)
        self._best = Best(alone, "protected alone", trial.offered.done_s(alone))
        self._runs: dict[Schedule, tuple[Outcome, list[Reading]]] = {}
        """Of schedules from which nobody is left out: climbs meet."""
        self._all_s = float(trial.offered.work_s.sum())

    def search(self, straight: Flags) -> Best:
        """Climb from the best starts, and let hindsight do the rest."""
        self._consider(straight, "straight on")
        ranked: list[tuple[Merit, int]] = []
        for number, schedule in enumerate(STARTS):
            if self._done:
                return self._best
            ranked.append((self._merit(schedule), -number))
        ranked.sort(reverse=True)
        for merit, number in ranked[:CLIMBS]:
            start = STARTS[-number]
            climbed = self._climbed(start, merit)
            for schedule in dict.fromkeys((start, climbed)):
                self._refine(schedule)
        return self._best

    def _climbed(self, schedule: Schedule, merit: Merit) -> Schedule:
        kinds = set(self._offered.kind.tolist()).difference(self._protected)
        for change in (*CHANGES, *({"without": (kind,)} for kind in sorted(kinds))):
            if self._done:
                break
            other = msgspec.structs.replace(schedule, **change)
            if "without" in change:
                without = (*schedule.without, *other.without)
                other = msgspec.structs.replace(other, without=without)
            if other != schedule and (found := self._merit(other)) > merit:
                schedule, merit = other, found
        return schedule

    def _merit(self, schedule: Schedule) -> Merit:
        """Rule 1 first: then the work done, else how near it comes to the rule."""
        good = self.run(schedule, set())[0].good
        if self._consider(good, _name(schedule)):
            return True, self._offered.done_s(good)
        found = [safety(self._offered, one, good, self._alone) for one in self._protected]
        return False, sum(one.share + one.worst_second for one in found)

    @property
    def _done(self) -> bool:
        return self._best.work_s > ENOUGH * self._all_s

    def _refine(self, schedule: Schedule) -> None:
        """Run it again and again without those that hindsight leaves out."""
        left_out: set[int] = set()
        rounds = 0
        while rounds < ROUNDS and not self._done:
            outcome, read = self.run(schedule, left_out)
            safe = self._consider(outcome.good, _name(schedule))
            known = self._known.protected
            more = {one for one in outcome.late if not known[one]}
            rounds += 2 if safe else 1
            if not safe:
                more |= self._in_the_way(outcome.good, read)
            if not more:
                return
            left_out |= more

    def _in_the_way(self, good: Flags, read: Sequence[Reading]) -> set[int]:
        """Half of those that read while protected ones waited in vain, the worst of them."""
        lost = np.flatnonzero(self._alone & ~good)
        starts = self._offered.at_s[lost]
        ends = starts + self._known.patience_s[lost]
        harm = sorted(
            (int(((starts < until) & (ends > since)).sum()), number)
            for since, until, number in read
        )
        harm = [one for one in harm if one[0]]
        return {number for _, number in harm[len(harm) // 2 :]}

    def run(self, schedule: Schedule, left_out: set[int]) -> tuple[Outcome, list[Reading]]:
        """Carry one schedule out; also when which request read its prompt."""
        if left_out:
            return self._run(schedule, left_out)
        found = self._runs.get(schedule)
        if found is None:
            found = self._runs[schedule] = self._run(schedule, left_out)
        return found

    def _run(self, schedule: Schedule, left_out: set[int]) -> tuple[Outcome, list[Reading]]:
        made: list[PlannedRouter] = []
        if schedule.without:
            without = np.isin(self._offered.kind, schedule.without)
            left_out = left_out.union(np.flatnonzero(without).tolist())

        def router(fleet: Fleet) -> Router:
            made.append(PlannedRouter(fleet, schedule, self._known, self._trial.work, left_out))
            return made[0]

        trial = self._trial
        outcome = drive(trial.pools(), trial.requests, len(trial.requests), router)
        return outcome, made[0].read

    def _consider(self, good: Flags, name: str) -> bool:
        """Whether it keeps rule 1; the best that does is kept."""
        safe = keeps_rule_1(self._offered, self._protected, good, self._alone)
        done_s = self._offered.done_s(good)
        if safe and done_s > self._best.work_s:
            self._best = Best(good, name, done_s)
        return safe


def _name(schedule: Schedule) -> str:
    told = {name: value for name, value in msgspec.structs.asdict(schedule).items() if value}
    return " ".join(f"{name}={value}" for name, value in told.items())
