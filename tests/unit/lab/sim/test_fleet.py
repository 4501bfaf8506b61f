"""The fleet: pools, routers and the seam for other ones, clients that leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.engine import EngineConfig
from forebay.lab.sim.fleet import Event, Fleet, Job, Pool, PoolConfig, Router
from forebay.lab.sim.prefixes import block_hashes
from forebay.lab.sim.routers import ROUTERS, find_router
from forebay.lab.workload.request import PlannedRequest
from forebay.testing.steps import LinearSteps


def plan(index: int, **given: Any) -> PlannedRequest:
    asked: dict[str, Any] = {"at_s": 0.0, "kind": "k", "input_tokens": 50, "output_tokens": 10}
    return PlannedRequest(index=index, **{**asked, **given})


def pool(**given: Any) -> Pool:
    engine = given.pop("engine", EngineConfig(kv_tokens=4096))
    return Pool(PoolConfig(engine=engine, **given), LinearSteps())


class Ends:
    """Takes what ended."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> None:
        self.jobs.append(job)

    def statuses(self) -> list[str]:
        return [job.status for job in sorted(self.jobs, key=lambda job: job.plan.index)]


def fleet(
    *pools: Pool,
    router: str | Callable[[Fleet], Router] = "round-robin",
    ended: Callable[[Job], None] | None = None,
    leaves: bool = True,
) -> Fleet:
    make = find_router(router) if isinstance(router, str) else router
    return Fleet(pools or (pool(),), make, ended or Ends(), leaves=leaves)


def drain(one: Fleet) -> None:
    while one.live:
        one.step()


def test_round_robin_takes_turns() -> None:
    three = pool(replicas=3)
    one = fleet(three)
    for number in range(7):
        one.arrive(plan(number), 0.0)
    assert [replica.in_flight for replica in three.replicas] == [3, 2, 2]
    drain(one)
    assert [replica.in_flight for replica in three.replicas] == [0, 0, 0]
    assert [replica.outstanding_tokens for replica in three.replicas] == [0, 0, 0]


def test_least_outstanding_counts_tokens_not_requests() -> None:
    two = pool(replicas=2)
    one = fleet(two, router="least-outstanding")
    one.arrive(plan(0, input_tokens=1000), 0.0)
    for number in range(1, 5):
        one.arrive(plan(number), 0.0)
    assert [replica.in_flight for replica in two.replicas] == [1, 4]


def test_pools_take_what_is_within_their_caps() -> None:
    ends = Ends()
    short = pool(name="short", max_input_tokens=100, max_output_tokens=20)
    long = pool(name="long", max_input_tokens=1000)
    one = fleet(short, long, ended=ends)
    one.arrive(plan(0), 0.0)
    one.arrive(plan(1, input_tokens=500), 0.0)
    one.arrive(plan(2, output_tokens=50), 0.0)
    one.arrive(plan(3, input_tokens=2000), 0.0)
    assert (short.replicas[0].in_flight, long.replicas[0].in_flight) == (1, 2)
    drain(one)
    assert ends.statuses() == ["ok", "ok", "ok", "refused"]
    assert (ends.jobs[0].code, ends.jobs[0].reason) == (400, "over every pool's caps")


def test_a_full_queue_refuses() -> None:
    ends = Ends()
    one = fleet(
        pool(max_waiting=2, engine=EngineConfig(kv_tokens=4096, max_num_seqs=1)), ended=ends
    )
    for number in range(5):
        one.arrive(plan(number), 0.0)
    drain(one)
    assert ends.statuses() == ["ok", "ok", "ok", "refused", "refused"]
    assert ends.jobs[0].code == 503


def test_what_no_engine_can_hold_fails() -> None:
    ends = Ends()
    one = fleet(ended=ends)
    one.arrive(plan(0, input_tokens=9000), 0.0)
    assert (ends.jobs[0].status, ends.jobs[0].code, one.live) == ("http_error", 400, 0)
    assert "max_model_len" in ends.jobs[0].reason


def test_a_client_gives_up_at_its_deadline() -> None:
    ends = Ends()
    two = pool()
    one = fleet(two, ended=ends)
    one.arrive(plan(0, output_tokens=1000, deadline_s=0.5), 1.0)
    one.arrive(plan(1, output_tokens=5, deadline_s=0.5), 1.0)
    drain(one)
    assert ends.statuses() == ["timeout", "ok"]
    late = ends.jobs[-1]
    assert late.ended_at == 1.5 and late.sequence is not None
    assert 10 < late.sequence.written_tokens < 1000
    assert two.replicas[0].engine.statistics().blocks_used == 0
    assert two.replicas[0].in_flight == two.replicas[0].outstanding_tokens == 0


def test_clients_may_wait_past_their_deadline() -> None:
    ends = Ends()
    one = fleet(ended=ends, leaves=False)
    one.arrive(plan(0, output_tokens=1000, deadline_s=0.5), 0.0)
    drain(one)
    assert ends.statuses() == ["ok"] and ends.jobs[0].ended_at > 0.5


def test_a_client_leaves_after_some_tokens() -> None:
    ends = Ends()
    one = fleet(ended=ends)
    one.arrive(plan(0, output_tokens=100, disconnect_after_tokens=7), 0.0)
    one.arrive(plan(1, output_tokens=5, disconnect_after_tokens=7), 0.0)
    drain(one)
    assert ends.statuses() == ["disconnected", "ok"]
    sequence = ends.jobs[-1].sequence
    assert sequence is not None and sequence.written_tokens == 7


class OneAtATime:
    """A queue in front of the engines: one request in each, the others wait for an alarm."""

    def __init__(self, fleet: Fleet, bound: int = 4) -> None:
        self.fleet = fleet
        self.bound = bound
        self.queue: deque[Job] = deque()
        self.told: list[tuple[int, Event]] = []

    def arrived(self, job: Job, now: float) -> None:
        if len(self.queue) == self.bound:
            self.fleet.refuse(self.queue.popleft(), "pushed out", code=429, retry_after_s=2.0)
        self.queue.append(job)
        self.fleet.wake_at(now + 0.01)

    def changed(self, job: Job, event: Event, now: float) -> None:
        self.told.append((job.plan.index, event))
        if event is Event.LEFT and job in self.queue:
            self.queue.remove(job)
        self.fleet.wake_at(now)

    def woken(self, now: float) -> None:
        for replica in self.fleet.pools[0].replicas:
            if self.queue and not replica.in_flight:
                job = self.queue.popleft()
                job.state = "sent by me"
                self.fleet.send(job, replica)


def test_a_router_may_let_requests_wait_and_is_told_everything() -> None:
    ends, routers = Ends(), []

    def make(fleet: Fleet) -> OneAtATime:
        routers.append(OneAtATime(fleet))
        return routers[0]

    one = fleet(pool(replicas=2), router=make, ended=ends)
    for number in range(7):
        one.arrive(plan(number, deadline_s=0.005 if number == 5 else None), 0.0)
    assert [job.plan.index for job in ends.jobs] == [0, 1, 2]
    drain(one)
    assert ends.statuses() == ["refused"] * 3 + ["ok", "ok", "timeout", "ok"]
    assert (ends.jobs[0].code, ends.jobs[0].retry_after_s) == (429, 2.0)
    told = routers[0].told
    assert told[0] == (5, Event.LEFT)
    for number in (3, 4, 6):
        assert [event for index, event in told if index == number] == [
            Event.FIRST_TOKEN,
            Event.FINISHED,
        ]


def test_a_request_is_decided_about_once() -> None:
    one = fleet(router=OneAtATime)
    one.arrive(plan(0), 0.0)
    router = one._router
    assert isinstance(router, OneAtATime)
    job = router.queue[0]
    one.send(job, one.pools[0].replicas[0])
    with pytest.raises(RuntimeError, match="decided about twice"):
        one.send(job, one.pools[0].replicas[0])
    with pytest.raises(RuntimeError, match="decided about twice"):
        one.refuse(job, "no")


def test_what_a_gateway_knows_can_be_read_at_any_time() -> None:
    some = pool()
    one = fleet(some)
    one.arrive(plan(0, output_tokens=300), 0.0)
    replica = some.replicas[0]
    assert replica.engine.next_event_at() is not None
    job = next(iter(replica.engine._running)).tag
    assert isinstance(job, Job)
    seen = []
    for tenth in range(10):
        one.run_until(tenth / 10)
        seen.append(one.written(job))
        assert one.figures(replica).running == 1
    assert seen[0] == 0 < seen[1] < seen[-1] < 300
    assert seen == sorted(set(seen))
    drain(one)
    assert one.written(job) == 300


def test_priorities_by_name_reach_the_engine() -> None:
    ends = Ends()
    config = EngineConfig(kv_tokens=4096, max_num_seqs=1, scheduling="priority")
    one = fleet(pool(engine=config), ended=ends)
    for number, priority in enumerate(("normal", "low", None, "high", 7)):
        one.arrive(plan(number, priority=priority), 0.0)
    drain(one)
    assert [job.plan.index for job in ends.jobs] == [0, 3, 2, 1, 4]
    with pytest.raises(ConfigError, match="none of high, normal, low"):
        one.arrive(plan(9, priority="urgent"), one.now)


def test_blocks_of_a_plan_become_those_of_the_engine() -> None:
    assert block_hashes(plan(0, prefix=(1, 2, 3)), 16) == ((1, 2, 3), 512)
    small = plan(0, prefix=(1, 2, 3, 4, 5), prefix_block_tokens=16)
    hashes, tokens = block_hashes(small, 32)
    assert (len(hashes), tokens) == (2, 32)
    assert block_hashes(small, 24)[1] == 48


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: find_router("rr"), "there are admission, least-outstanding, round-robin"),
        (lambda: pool(replicas=0), "at least one replica"),
        (lambda: pool(replicas=10**23), "10000 replicas at most"),
        (lambda: pool(max_input_tokens=-1), "at least one token"),
        (lambda: pool(max_output_tokens=0), "at least one token"),
        (lambda: pool(max_waiting=-1), "not be negative"),
        (lambda: Fleet([], find_router("round-robin"), Ends()), "at least one pool"),
        (lambda: fleet(pool(), pool()), "two pools are named default"),
    ],
)
def test_nonsense_is_refused(build: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(ROUTERS)),
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.001, 0.02, 0.3]),
            st.sampled_from([1, 40, 300]),
            st.sampled_from([1, 20, 90]),
            st.sampled_from([None, 0.01, 0.2, 1.0]),
            st.sampled_from([None, 1, 10]),
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_every_request_ends_once_and_nothing_is_left(
    router: str, replicas: int, asked: list[tuple[float, int, int, float | None, int | None]]
) -> None:
    ends = Ends()
    engine = EngineConfig(kv_tokens=512, max_num_seqs=4, max_num_batched_tokens=128)
    some = pool(replicas=replicas, max_waiting=5, engine=engine)
    one = fleet(some, router=router, ended=ends)
    now = 0.0
    for number, (gap, tokens_in, tokens_out, deadline_s, leaves_after) in enumerate(asked):
        now += gap
        one.run_until(now)
        one.arrive(
            plan(
                number,
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                deadline_s=deadline_s,
                disconnect_after_tokens=leaves_after,
            ),
            now,
        )
    drain(one)
    assert sorted(job.plan.index for job in ends.jobs) == list(range(len(asked)))
    times = [job.ended_at for job in ends.jobs]
    assert times == sorted(times)
    for job in ends.jobs:
        assert job.ended_at <= job.deadline_at
    for replica in some.replicas:
        figures = replica.engine.statistics()
        assert (figures.running, figures.waiting, figures.blocks_used) == (0, 0, 0)
        assert (replica.in_flight, replica.outstanding_tokens) == (0, 0)
