"""The clairvoyant schedule on cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forebay.lab.mixes.clairvoyant import Best, Clairvoyant
from forebay.lab.mixes.double import STEP_S, LinearSteps
from forebay.lab.mixes.judge import Offered
from forebay.lab.mixes.outcome import Flags, drive
from forebay.lab.mixes.work import EngineWork
from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.fleet import Pool, PoolConfig
from forebay.lab.sim.routers import find_router
from forebay.lab.workload.request import PlannedRequest


class Case:
    """Requests before one engine with so many places; a step takes about 8 ms."""

    def __init__(self, requests: Sequence[PlannedRequest], places: int = 1) -> None:
        config = EngineConfig(kv_tokens=100_000, max_num_seqs=places, prefix_caching=False)
        self._pool = PoolConfig(engine=config)
        self.work = EngineWork(config, LinearSteps())
        self.requests = list(requests)
        names = tuple(sorted({one.kind for one in requests}))
        self.offered = Offered(
            np.array([one.at_s for one in requests]),
            np.array([names.index(one.kind) for one in requests]),
            np.array([self.work.work_s(o.input_tokens, o.output_tokens) for o in requests]),
            names,
        )

    def pools(self) -> list[Pool]:
        return [Pool(self._pool, LinearSteps())]

    def straight(self) -> Flags:
        router = find_router("least-outstanding")
        return drive(self.pools(), self.requests, len(self.requests), router).good

    def best(self, protected: Sequence[int] = (), alone: Flags | None = None) -> Best:
        nobody = np.zeros(len(self.requests), np.bool_)
        search = Clairvoyant(self, protected, nobody if alone is None else alone)
        return search.search(self.straight())


def asked(index: int, at_s: float, steps: int, deadline_s: float, kind: str) -> PlannedRequest:
    return PlannedRequest(index, at_s, kind, 10, steps, deadline_s=deadline_s)


def test_what_fits_is_all_served() -> None:
    case = Case([asked(at, at * 1.0, 100, 1.5, "a") for at in range(5)])
    assert case.best().good.all()


def test_of_two_for_one_place_the_one_with_more_work_is_served() -> None:
    # 0.8 and 1.6 s, and no time for both, in whichever order.
    case = Case([asked(0, 0.0, 100, 1.0, "small"), asked(1, 0.0, 200, 2.0, "big")])
    assert case.straight().tolist() == [True, False]
    assert case.best().good.tolist() == [False, True]


def test_those_with_little_time_go_first_where_both_can_be_served() -> None:
    patient, urgent = asked(1, 0.01, 100, 9.0, "patient"), asked(2, 0.01, 100, 1.8, "urgent")
    case = Case([asked(0, 0.0, 50, 9.0, "first"), patient, urgent])
    assert case.straight().tolist() == [True, True, False]
    assert case.best().good.all()


def test_protected_ones_are_served_whatever_else_would_give_more_work() -> None:
    small = [asked(at, at * 0.5, 10, 0.4, "a small") for at in range(8)]
    big = [asked(8, 3.51, 300, 3.0, "big"), asked(9, 3.52, 300, 6.0, "big")]
    last = asked(10, 4.0, 10, 0.4, "a small")
    case = Case([*small, *big, last])
    alone = np.array([True] * 8 + [False] * 2 + [True])
    best = case.best(protected=(0,), alone=alone)
    assert best.good[alone].sum() >= 8
    assert best.work_s >= case.offered.done_s(alone)


def test_work_that_nobody_waits_for_any_more_is_left_out() -> None:
    # Five at once for an engine that writes two in the time they have: all five would be late.
    case = Case([asked(number, 0.0, 200, 2.2, "a") for number in range(5)], places=5)
    steps = 200 * (STEP_S + 5 * 0.00004)
    assert steps < 2.2
    assert case.best().good.all()
    tight = Case([asked(number, 0.0, 200, 1.62, "a") for number in range(5)], places=5)
    assert not tight.straight().any()
    assert tight.best().good.sum() >= 1
