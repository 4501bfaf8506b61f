"""One run of planned requests through a fleet: who was answered in time, who was refused why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from forebay.lab.measure.result import OK, REFUSED
from forebay.lab.sim.fleet import Fleet, Job, Pool, Router
from forebay.lab.workload.request import PlannedRequest

Flags = npt.NDArray[np.bool_]


class Outcome:
    """``good`` by number of the request; ``reasons`` by kind and status or reason of a refusal."""

    def __init__(self, count: int) -> None:
        self.good: Flags = np.zeros(count, np.bool_)
        self.late: list[int] = []
        """Requests whose client gave up after the engine had begun."""
        self.reasons: Counter[tuple[str, str]] = Counter()

    def ended(self, job: Job) -> None:
        """Count a request that ended, in whatever way."""
        plan, status = job.plan, job.status
        if status == OK:
            self.good[plan.index] = True
            return
        if status != REFUSED and job.sequence is not None:
            self.late.append(plan.index)
        self.reasons[plan.kind, job.reason if status == REFUSED else status] += 1


def drive(
    pools: Sequence[Pool],
    requests: Sequence[PlannedRequest],
    count: int,
    router: Callable[[Fleet], Router],
) -> Outcome:
    """Run requests, some of ``count`` that are numbered from 0, to the end of the last one."""
    outcome = Outcome(count)
    fleet = Fleet(pools, router, outcome.ended)
    for plan in requests:
        fleet.run_until(plan.at_s)
        fleet.arrive(plan, plan.at_s)
    while fleet.live:
        if fleet.next_event_at() == math.inf:
            raise RuntimeError(f"the router neither sent nor refused {fleet.live} requests")
        fleet.step()
    return outcome
