"""A workload through a fleet in virtual time, from event to event.

Nothing waits and nothing is drawn by chance but what the workload draws from its seed: equal
arguments give equal results to the byte. Memory holds what is in flight, not what was.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder, RecorderOptions, check_warmup
from forebay.lab.measure.result import HTTP_ERROR, Run, RunResult
from forebay.lab.sim.fleet import Fleet, Job, Pool, PoolConfig, Router
from forebay.lab.sim.routers import find_router
from forebay.lab.sim.steps import StepModel
from forebay.lab.workload.arrivals import ConstantArrivals, GammaArrivals, PoissonArrivals
from forebay.lab.workload.plan import ClosedLoop, Workload
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Sessions

_ENDLESS = (ConstantArrivals, PoissonArrivals, GammaArrivals, ClosedLoop)
FleetMaker = Callable[[Callable[[Job], None]], Fleet]
_SPREAD_S = 1.0
"""The first questions of a closed loop's users, as in the bench."""


class VirtualOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a virtual run is made and measured."""

    seed: int = 0
    router: str = "least-outstanding"
    leaves_at_deadline: bool = True
    """Whether clients give up when their deadline passes, and so free the engine."""
    recorder: RecorderOptions = RecorderOptions()


def simulate(
    workload: Workload,
    pools: Sequence[tuple[PoolConfig, StepModel]],
    run: Run,
    options: VirtualOptions | None = None,
    router: Callable[[Fleet], Router] | None = None,
) -> RunResult:
    """Run the workload to its end; ``router`` stands in for the one that the options name.

    ``run`` says what is run, for the result. Raises ``ConfigError`` for a workload without end.
    """
    options = options or VirtualOptions()
    make = router or find_router(options.router)
    leaves = options.leaves_at_deadline

    def fleet(ended: Callable[[Job], None]) -> Fleet:
        made = [Pool(config, steps) for config, steps in pools]
        return Fleet(made, make, ended, leaves=leaves)

    _refuse_endless(workload)
    check_warmup(options.recorder.warmup_s, workload.duration_s)
    recorder = Recorder(options.recorder)
    drive = VirtualDrive(fleet, recorder)
    requests = workload.requests(options.seed)
    loop = workload.closed_loop
    if loop is None:
        drive.open_loop(requests)
    else:
        drive.closed_loop(requests, loop, loop.thinking_s(options.seed, workload.folder))
    result = recorder.result(run, duration_s=workload.duration_s)
    return msgspec.structs.replace(result, engine=fleet_figures(drive.fleet))


def _refuse_endless(workload: Workload) -> None:
    """In virtual time nobody is there to stop it."""
    bounds = workload.spec.arrivals or workload.spec.closed_loop
    if bounds is None or bounds.duration_s is not None or bounds.count is not None:
        return
    again = getattr(bounds, "repeat", False) or getattr(bounds, "loop", False)
    if again or isinstance(bounds, _ENDLESS):
        raise ConfigError("this workload has no end; give it a duration_s or a count")


class VirtualDrive:
    """Feeds requests to a fleet at their virtual times and records their ends."""

    def __init__(self, fleet: FleetMaker, recorder: Recorder) -> None:
        self.fleet = fleet(self._ended)
        self._record = recorder.record
        self._note = recorder.note
        self._sessions = Sessions()
        self._starts: list[tuple[float, int, PlannedRequest | None]] = []
        self._order = itertools.count()
        self._think: Iterator[float] | None = None
        self._until_s = math.inf

    def open_loop(self, requests: Iterable[PlannedRequest]) -> None:
        """Start every request at its time, later turns of a session after the answer."""
        fleet, sessions = self.fleet, self._sessions
        for plan in requests:
            at_s = plan.at_s
            if self._starts or len(sessions):
                self._start_others(at_s)
            fleet.run_until(at_s)
            start_s = sessions.offer(plan) if plan.session else at_s
            if start_s is None:
                continue
            if start_s <= at_s:
                fleet.arrive(plan, start_s)
            else:
                self._push(start_s, plan)
        self._drain()

    def closed_loop(
        self, requests: Iterator[PlannedRequest], loop: ClosedLoop, thinking_s: Iterator[float]
    ) -> None:
        """Let users ask, wait, think and ask again until the time or the questions are over."""
        self._think = thinking_s
        self._until_s = math.inf if loop.duration_s is None else loop.duration_s
        spread_s = min(_SPREAD_S, self._until_s / 10)
        for number in range(loop.users):
            self._push(number / loop.users * spread_s, None)
        fleet, starts = self.fleet, self._starts
        while starts or fleet.live:
            if not starts or fleet.next_event_at() <= starts[0][0]:
                self._step()
                continue
            at_s = heapq.heappop(starts)[0]
            plan = next(requests, None)
            if plan is None:
                starts.clear()
                self._think = None
            else:
                fleet.arrive(plan, at_s)

    def _start_others(self, until_s: float) -> None:
        """Up to a time, start the turns that answers make possible."""
        fleet, starts = self.fleet, self._starts
        while True:
            due_s = fleet.next_event_at()
            start_s = starts[0][0] if starts else math.inf
            if min(due_s, start_s) > until_s:
                return
            if due_s <= start_s:
                fleet.step()
            else:
                at_s, _, plan = heapq.heappop(starts)
                assert plan is not None
                fleet.run_until(at_s)
                fleet.arrive(plan, at_s)

    def _drain(self) -> None:
        while self.fleet.live or self._starts:
            if self._starts:
                self._start_others(max(self._starts[0][0], self.fleet.now))
            else:
                self._step()

    def _step(self) -> None:
        if self.fleet.next_event_at() == math.inf:
            raise RuntimeError(f"the router neither sent nor refused {self.fleet.live} requests")
        self.fleet.step()

    def _push(self, at_s: float, plan: PlannedRequest | None) -> None:
        heapq.heappush(self._starts, (at_s, next(self._order), plan))

    def _ended(self, job: Job) -> None:
        plan = job.plan
        ended_at = job.ended_at
        self._record(_finished(job))
        if job.reason and job.status == HTTP_ERROR:
            self._note(job.status, job.reason)
        if self._think is not None:
            at_s = ended_at + next(self._think)
            if at_s < self._until_s:
                self._push(at_s, None)
        elif plan.session:
            following = self._sessions.answered(plan, ended_at)
            if following is not None:
                self._push(following[1], following[0])


def _finished(job: Job) -> Finished:
    plan, sequence, ended_at = job.plan, job.sequence, job.ended_at
    first_at = last_at = None
    written = gaps = 0
    mean_gap = 0.0
    if sequence is not None:
        written = sequence.written_tokens
        first_at = sequence.first_token_at
        if first_at is not None:
            last_at = ended_at
            gaps = written - 1
            if gaps:
                mean_gap = (ended_at - first_at) / gaps
    return Finished(
        at_s=job.at_s,
        kind=plan.kind,
        status=job.status,
        finished_at_s=ended_at,
        first_at_s=first_at,
        last_at_s=last_at,
        tenant=plan.tenant,
        deadline_s=plan.deadline_s,
        input_tokens=plan.input_tokens,
        output_tokens=written,
        mean_gap_s=mean_gap,
        gap_count=gaps,
        code=job.code,
    )


def fleet_figures(fleet: Fleet) -> dict[str, Any]:
    """What the engines counted, by pool; shares are 0 to 1."""
    return {pool.config.name: _pool_figures(fleet, pool) for pool in fleet.pools}


def _pool_figures(fleet: Fleet, pool: Pool) -> dict[str, Any]:
    seen = [fleet.figures(replica) for replica in pool.replicas]

    def total(name: str) -> Any:
        return sum(getattr(one, name) for one in seen)

    queries, steps, elapsed_s = total("prefix_query_tokens"), total("steps"), fleet.now * len(seen)
    return {
        "replicas": len(seen),
        "kv_blocks": total("blocks_total"),
        "finished": total("finished"),
        "cancelled": total("cancelled"),
        "preemptions": total("preemptions"),
        "prompt_tokens": total("prompt_tokens"),
        "generation_tokens": total("generation_tokens"),
        "prefix_hit_share": total("prefix_hit_tokens") / queries if queries else 0.0,
        "busy_share": total("busy_s") / elapsed_s if elapsed_s else 0.0,
        "tokens_a_step": total("generation_tokens") / steps if steps else 0.0,
    }
