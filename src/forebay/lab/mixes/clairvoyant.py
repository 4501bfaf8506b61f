"""A schedule by one who knows all requests before the first: the best of many that were tried.

No closed form bounds what a continuous batch does with a mix of sizes and deadlines: the time of a
step depends on who shares it. So the bound is one that is reached: candidates run through the same
simulated engines, and the best by work of good answers counts among those that keep rule 1. Each
candidate sends the protected kinds straight on and holds the others in a line of its own, in an
order (deadline, size, slack, value for the memory held), lets them in while the memory and the
places they take stay under a bound, a bounded number of them reading their prompt at once, and
leaves out whom the present step time would make late. What turned out to be late in the engine
took work for nothing; hindsight leaves it out, and the candidate runs again, some rounds. Sending
straight on is a candidate too, and so are the protected kinds without anybody else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from forebay.lab.mixes.judge import Floats, Offered, keeps_rule_1
from forebay.lab.mixes.outcome import Flags, Outcome, drive
from forebay.lab.mixes.work import EngineWork
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, Replica, Router
from forebay.lab.workload.request import PlannedRequest

Order = Literal["deadline", "size", "slack", "value"]
ROUNDS = 3


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How those that are not protected are sent."""

    order: Order = "deadline"
    memory: float = 0.9
    """Share of the KV cache for them, at their full length."""
    reading: int = 1
    """How many of them may be before their first token, on one engine."""
    places: float = 1.0
    """Share of the engine's sequences for them."""


SCHEDULES = tuple(
    Schedule(order=order, memory=memory, reading=reading, places=places)
    for order in ("deadline", "size", "value")
    for memory, places in ((0.95, 1.0), (0.5, 0.5), (0.25, 0.25))
    for reading in (2, 64)
)


class Facts(msgspec.Struct, frozen=True):
    """What is known of all requests, by number."""

    keys: dict[str, Floats]
    prefill_s: Floats
    protected: Flags


def facts(requests: Sequence[PlannedRequest], work: EngineWork, protected: Flags) -> Facts:
    """Work out every order once for all candidates."""
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
    return Facts(keys, prefill_s, protected)


class PlannedRouter:
    """Carries a schedule out; ``left_out`` are numbers of requests that are never sent."""

    def __init__(
        self, fleet: Fleet, schedule: Schedule, known: Facts, work: EngineWork, left_out: set[int]
    ) -> None:
        self._fleet = fleet
        self._schedule = schedule
        self._known = known
        self._key = known.keys[schedule.order]
        self._work = work
        self._left_out = left_out
        self._rooms = [_Room(replica) for pool in fleet.pools for replica in pool.replicas]
        engine = fleet.pools[0].config.engine
        self._tokens = schedule.memory * engine.kv_tokens
        self._places = schedule.places * engine.max_num_seqs
        self._line: list[tuple[float, int, Job]] = []

    def arrived(self, job: Job, now: float) -> None:
        """Send the protected, let the others wait for room."""
        number = job.plan.index
        if number in self._left_out:
            self._fleet.refuse(job, "left_out")
        elif self._known.protected[number]:
            room = min(self._rooms, key=lambda one: one.replica.outstanding_tokens)
            self._enter(job, room, held=False)
        else:
            heapq.heappush(self._line, (float(self._key[number]), number, job))
            self._send(now)

    def changed(self, job: Job, event: Event, now: float) -> None:
        """Give room back when one has read its prompt, or ended."""
        state = job.state
        if isinstance(state, _Stay):
            state.changed(ended=event is not Event.FIRST_TOKEN)
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
            if now + self._takes_s(job, room) > job.deadline_at:
                self._fleet.refuse(job, "too_late")
            else:
                self._enter(job, room, held=True)

    def _room(self, job: Job) -> _Room | None:
        asked = job.plan.input_tokens + job.plan.output_tokens
        fitting = [
            room
            for room in self._rooms
            if room.reading < self._schedule.reading
            and (not room.held or room.tokens + asked <= self._tokens)
            and room.held < self._places
        ]
        return min(fitting, key=lambda one: one.replica.outstanding_tokens, default=None)

    def _takes_s(self, job: Job, room: _Room) -> float:
        plan, replica = job.plan, room.replica
        context = replica.outstanding_tokens + plan.input_tokens
        return float(self._known.prefill_s[plan.index]) + self._work.decode_s(
            replica.in_flight + 1, context, plan.output_tokens
        )

    def _enter(self, job: Job, room: _Room, *, held: bool) -> None:
        if held:
            job.state = _Stay(room, job.plan.input_tokens + job.plan.output_tokens)
        self._fleet.send(job, room.replica)


class _Room:
    """What one engine holds of those that wait for room."""

    __slots__ = ("held", "reading", "replica", "tokens")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.held = self.reading = self.tokens = 0


class _Stay:
    """One request's part of the room."""

    __slots__ = ("_reads", "_room", "_tokens")

    def __init__(self, room: _Room, tokens: int) -> None:
        self._room = room
        self._tokens = tokens
        self._reads = True
        room.held += 1
        room.reading += 1
        room.tokens += tokens

    def changed(self, *, ended: bool) -> None:
        if self._reads:
            self._reads = False
            self._room.reading -= 1
        if ended:
            self._room.held -= 1
            self._room.tokens -= self._tokens


class Best(msgspec.Struct, frozen=True):
    """The best schedule found; ``name`` says which it is."""

    good: Flags
    name: str
    work_s: float


class Clairvoyant:
    """Searches for the schedule that does most work among those that keep rule 1."""

    def __init__(
        self,
        pools: Callable[[], Sequence[Pool]],
        requests: Sequence[PlannedRequest],
        offered: Offered,
        work: EngineWork,
    ) -> None:
        self._pools = pools
        self._requests = requests
        self._offered = offered
        self._work = work

    def search(self, protected: Sequence[int], alone: Flags, straight: Flags) -> Best:
        """Try every schedule; ``alone`` are the protected kinds' good requests without others."""
        offered = self._offered
        best = Best(alone, "protected alone", offered.done_s(alone))
        if keeps_rule_1(offered, protected, straight, alone):
            best = self._better(best, straight, "straight on")
        known = facts(self._requests, self._work, np.isin(offered.kind, protected))
        total_s = offered.done_s(np.ones(len(self._requests), np.bool_))
        for schedule in SCHEDULES:
            left_out: set[int] = set()
            for _ in range(ROUNDS):
                if best.work_s > 0.995 * total_s:
                    return best
                outcome = self.run(schedule, known, left_out)
                if keeps_rule_1(offered, protected, outcome.good, alone):
                    best = self._better(best, outcome.good, repr(schedule))
                late = [one for one in outcome.late if not known.protected[one]]
                if not late:
                    break
                left_out.update(late)
        return best

    def run(self, schedule: Schedule, known: Facts, left_out: set[int]) -> Outcome:
        """Carry one schedule out."""

        def router(fleet: Fleet) -> Router:
            return PlannedRouter(fleet, schedule, known, self._work, left_out)

        return drive(self._pools(), self._requests, len(self._requests), router)

    def _better(self, best: Best, good: Flags, name: str) -> Best:
        done_s = self._offered.done_s(good)
        return Best(good, name, done_s) if done_s > best.work_s else best
