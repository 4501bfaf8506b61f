"""A pool's gate driven by events on a virtual clock, with replicas that slow down when crowded."""

from __future__ import annotations

import math
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.kernel.clock import VirtualClock
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings
from forebay.policy.shed import ShedSettings

STEP_S = 0.01


class Plant:
    """Replicas of ``slots``: a request takes its steps, stretched by crowding when it began."""

    def __init__(self, gate: PoolGate, clock: VirtualClock, slots: int = 8) -> None:
        self.gate = gate
        self.clock = clock
        self.slots = slots
        self.hung: set[int] = set()
        self.good = 0
        self.late = 0
        self.refused: list[Ticket] = []
        self.first_after: list[float] = []

    def ask(self, tokens: int = 20, within_s: float = 5.0, **more: str) -> Ticket:
        ticket = Ticket(cost=tokens, deadline_at=self.clock.now() + within_s, **more)  # type: ignore[arg-type]
        ticket.input_tokens, ticket.output_tokens = 0, tokens
        ticket.expected_tokens = tokens
        self.gate.arrive(ticket, self.clock.now())
        self.carry_out()
        return ticket

    def carry_out(self) -> None:
        self.refused += self.gate.refused()
        for ticket in self.gate.sent():
            if ticket.replica in self.hung:
                continue
            crowd = self.gate.loads[ticket.replica].requests
            each = STEP_S * max(1.0, crowd / self.slots)
            now = self.clock.now()
            self.clock.call_at(now + each, lambda one=ticket: self.began(one))  # type: ignore[misc]
            self.clock.call_at(
                now + each * ticket.output_tokens,
                lambda one=ticket: self.end(one),  # type: ignore[misc]
            )

    def began(self, ticket: Ticket) -> None:
        self.gate.first_token(ticket, self.clock.now())

    def end(self, ticket: Ticket, ok: bool | None = True) -> None:
        if ticket.state == "done":
            return
        now = self.clock.now()
        if ok:
            self.good += now <= ticket.deadline_at
            self.late += now > ticket.deadline_at
        self.gate.finish(ticket, now, ok=ok)
        self.carry_out()


def plant(
    replicas: int = 2, queue: int = 256, slots: int = 8, most: int = 64, target_s: float = 0.5
) -> Plant:
    gate = PoolGate(
        GateSettings(
            queue=QueueSettings(max_waiting=queue),
            limit=LimitSettings(initial=min(8, most), most=most),
            shed=ShedSettings(target_s=target_s, interval_s=1.0),
        ),
        [f"r{number}" for number in range(replicas)],
    )
    return Plant(gate, VirtualClock(), slots)


def _ask(plant: Plant) -> None:
    plant.ask()


def offer(plant: Plant, rate: float, seconds: float, seed: int = 1) -> None:
    draw, at = Random(seed), plant.clock.now()
    end = at + seconds
    while (at := at + draw.expovariate(rate)) < end:
        plant.clock.call_at(at, partial(_ask, plant))
    plant.clock.run_until(end)


def test_room_is_used_at_once_and_more_wait_in_line() -> None:
    made = plant(replicas=1, most=8)
    tickets = [made.ask() for _ in range(10)]
    assert [one.state for one in tickets] == ["sent"] * 8 + ["waiting"] * 2
    made.clock.advance(1.0)
    assert [one.state for one in tickets] == ["done"] * 10
    assert made.gate.statistics()["in_flight"] == 0


@pytest.mark.parametrize("factor", [1, 2, 5, 10])
def test_goodput_stays_near_capacity_at_any_offered_load(factor: int) -> None:
    made = plant()
    capacity = 2 * 8 / (20 * STEP_S)  # 80 requests a second
    offer(made, capacity * factor, 60)
    made.clock.advance(10)
    assert made.good >= 0.93 * capacity * 60
    assert made.late <= 0.02 * made.good
    assert made.gate.statistics()["in_flight"] == 0


def test_it_is_back_at_once_when_the_pulse_is_over() -> None:
    made = plant()
    offer(made, 40, 20)
    offer(made, 800, 10)
    refused, good = len(made.refused), made.good
    made.clock.advance(1.0)
    offer(made, 40, 20, seed=2)
    assert len(made.refused) - refused < 10
    assert made.good - good > 20 * 40 * 0.95


def test_refusals_say_when_to_come_back() -> None:
    made = plant(queue=50)
    offer(made, 400, 10)
    reasons = {one.reason for one in made.refused}
    assert reasons <= {"queue_full", "queue_delay", "deadline"}
    assert reasons
    assert all(1.0 <= one.retry_after_s <= 60.0 for one in made.refused)


def test_what_cannot_be_done_in_time_is_refused_at_the_door() -> None:
    made = plant()
    offer(made, 40, 20)
    late = made.ask(tokens=500, within_s=0.5)
    assert (late.state, late.reason) == ("refused", "deadline")
    assert made.ask(tokens=20, within_s=0.0).state == "refused"
    assert made.ask(tokens=500, within_s=30).state != "refused"


@pytest.mark.parametrize(("cost", "let_in"), [(100.0, 32), (1000.0, 16), (3000.0, 8)])
def test_small_requests_need_not_wait_for_a_limit_that_was_never_tried(
    cost: float, let_in: int
) -> None:
    gate = PoolGate(GateSettings(), ["a"])
    tickets = [Ticket(cost=cost, deadline_at=60.0) for _ in range(40)]
    for ticket in tickets:
        gate.arrive(ticket, 0.0)
    assert len(gate.sent()) == let_in
    scaled = PoolGate(GateSettings(), ["a"])
    scaled.limit.scale(0.9)  # the engine showed that it is short of memory
    for _ in range(40):
        scaled.arrive(Ticket(cost=cost, deadline_at=60.0), 0.0)
    assert len(scaled.sent()) == 7


def test_what_no_answer_can_keep_is_refused_before_lengths_are_known() -> None:
    made = plant(replicas=1)

    def entered(left_s: float, input_tokens: int = 50) -> str:
        ticket = Ticket(cost=100.0, deadline_at=made.clock.now() + left_s)
        ticket.input_tokens = input_tokens
        made.gate.arrive(ticket, made.clock.now())
        state = ticket.state
        made.gate.finish(ticket, made.clock.now(), ok=None)
        made.carry_out()
        return state

    # Nothing was ever answered: only what is declared counts.
    assert entered(0.001) == entered(0.019) == "refused"
    assert entered(0.021) == entered(1.0) == "sent"
    offer(made, 20, 10)
    base = made.gate.limit.base
    assert 0.8 * STEP_S < base < 1.2 * STEP_S  # of a written token in an empty pool
    # A prompt of 5,000 tokens is 100 steps: half of that passes before the first token.
    assert entered(0.9 * 50 * base, 5000) == "refused"
    assert entered(1.1 * 50 * base, 5000) == "sent"
    assert entered(0.9 * 50 * base) == "sent"


def test_a_forecast_that_refuses_all_is_tried_while_the_pool_stands_empty() -> None:
    made = plant(replicas=1)
    offer(made, 20, 10)
    made.clock.advance(10.0)
    made.gate.limit._base = made.gate.limit._calm_latency = 2.0  # wrongly: 20 tokens, 40 s
    first, second = made.ask(within_s=5.0), made.ask(within_s=5.0)
    assert (first.state, second.state) == ("sent", "refused")
    good = made.good
    offer(made, 20, 60)
    assert made.good - good > 20
    assert made.gate.limit.base < 0.1
    before = made.good
    offer(made, 20, 10)
    assert made.good - before > 0.9 * 200


def test_one_hung_replica_of_three_does_not_slow_the_others() -> None:
    made = plant(replicas=3)
    offer(made, 60, 20)
    before = made.good
    made.hung = {1}
    offer(made, 60, 40, seed=3)
    # What hangs is what was sent there before its silence was noticed, and single trials since.
    hanging = made.gate.loads[1].requests
    assert hanging <= 64
    assert made.good - before >= 60 * 40 * 0.9 - hanging
    assert made.gate.statistics()["ejected"] == 1


def test_a_hung_replica_is_left_alone_without_anybody_coming_to_ask() -> None:
    made = plant(replicas=2)
    made.hung = {0, 1}
    assert made.ask(within_s=120).state == "sent"
    made.clock.advance(30)
    made.gate.tick(made.clock.now())
    assert made.gate.statistics()["ejected"] == 1


@pytest.mark.parametrize("built", [0.5, 1.0, 1.5])
def test_the_rate_is_in_terms_of_what_was_planned_as_the_line_is(built: float) -> None:
    made = plant(replicas=1, most=1)
    tickets = [made.ask() for _ in range(3)]
    for number in range(20):
        made.gate.correct(tickets[number], 20 * built)
        made.clock.advance(0.2)
        tickets.append(made.ask())
    # One each fifth of a second and two in line, whatever their prompts turned out to be.
    assert not made.refused
    assert made.gate.drain_s() == pytest.approx(0.4, rel=0.2)


def test_operators_and_the_tail_watch_can_hold_back() -> None:
    made = plant(replicas=1, most=8)
    made.gate.hold = 0.5
    states = [made.ask().state for _ in range(6)]
    assert states == ["sent"] * 4 + ["waiting"] * 2
    made.gate.min_priority = "normal"
    low = made.ask(priority="low")
    assert (low.state, low.reason) == ("refused", "low_priority")
    made.gate.hold = 0.0
    made.gate.tick(made.clock.now())
    made.carry_out()
    assert made.gate.statistics()["in_flight"] == 6


def test_tokens_bound_a_replica_but_never_shut_it() -> None:
    gate = PoolGate(GateSettings(max_tokens=100), ["a"])
    made = Plant(gate, VirtualClock())
    assert made.ask(tokens=500, within_s=60).state == "sent"
    assert made.ask(tokens=10).state == "waiting"
    made.clock.advance(6)
    assert [made.ask(tokens=60).state for _ in range(2)] == ["sent", "waiting"]


@pytest.mark.parametrize(("waiting", "kv_use"), [(5, 0.5), (0, 0.95), (None, 0.95)])
def test_an_engine_that_is_full_gets_nothing_more(waiting: int | None, kv_use: float) -> None:
    made = plant(replicas=2)
    for _ in range(2):
        made.gate.signals(0, waiting=waiting, kv_use=kv_use)
    assert [made.ask().replica for _ in range(3)] == [1, 1, 1]
    made.gate.signals(0, waiting=0, kv_use=0.5)
    assert made.ask().replica == 0


def test_an_engine_that_queues_inside_gets_less_and_is_never_drained() -> None:
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=40)), ["a"])
    made = Plant(gate, VirtualClock())
    for _ in range(20):
        made.ask()
    gate.signals(0, waiting=12, kv_use=0.1)
    # What arrives during one step of an engine waits for it; only what stays is a queue.
    assert made.ask().state == "sent"
    gate.signals(0, waiting=4, kv_use=0.1)
    assert gate.loads[0].most == 17
    assert made.ask().state == "waiting"
    gate.signals(0, waiting=100, kv_use=0.1)
    gate.signals(0, waiting=100, kv_use=0.1)
    assert gate.loads[0].most == 11
    gate.signals(0, waiting=None, kv_use=None)
    gate.tick(made.clock.now())
    assert len(gate.sent()) == 1


def test_a_crowd_that_comes_for_a_crowd_that_ended_is_no_queue_of_the_engine() -> None:
    """Under overload ends and begins come together, and looks happen to see them waiting."""
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=8)), ["a"])
    for second in range(1, 5):
        crowd = [Ticket(cost=10, deadline_at=100.0) for _ in range(8)]
        for ticket in crowd:
            gate.arrive(ticket, second - 0.01)
        gate.signals(0, waiting=8, kv_use=0.1)
        assert gate.loads[0].most == math.inf
        for ticket in crowd:
            gate.first_token(ticket, second + 0.01)
            gate.finish(ticket, second + 0.5, ok=True)


def test_a_queue_of_others_shuts_no_engine_that_has_none_of_ours() -> None:
    """The lane of long requests has the same engine as the short ones, whose queue is not its."""
    made = plant(replicas=1)
    for _ in range(2):
        made.gate.signals(0, waiting=50, kv_use=0.1)
    assert made.ask().state == "sent"


def test_nobody_waits_to_his_deadline_for_an_engine_that_others_keep_full() -> None:
    gate = PoolGate(GateSettings(), ["a"])
    gate.signals(0, waiting=0, kv_use=0.99)
    ticket = Ticket(cost=10, deadline_at=120.0)
    gate.arrive(ticket, 0.0)
    gate.tick(1.4)
    assert ticket.state == "waiting"
    gate.tick(1.6)
    assert (ticket.state, ticket.reason) == ("refused", "queue_delay")
    assert gate.refused() == [ticket]
    assert 1.0 <= ticket.retry_after_s <= 60.0


def test_a_pool_of_long_answers_learns_while_they_are_written() -> None:
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=4)), ["a"])
    tickets = []
    for _ in range(4):
        ticket = Ticket(cost=3000, deadline_at=1000.0)
        ticket.input_tokens, ticket.output_tokens = 1000, 2000
        gate.arrive(ticket, 0.0)
        tickets.append(ticket)
    assert gate.service.forecast_s(1000, 2000) is None
    for second in range(1, 12):
        for ticket in tickets:
            gate.progress(ticket, 100 * second, second)
    forecast = gate.service.forecast_s(1000, 2000)
    assert forecast is not None
    assert 15 < forecast < 25
    assert gate.limit.limit > 4


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("alrwf"), st.integers(0, 40)), max_size=80),
    st.integers(1, 3),
)
def test_every_ticket_ends_once_and_everything_comes_back(
    calls: list[tuple[str, int]], replicas: int
) -> None:
    made = plant(replicas=replicas, queue=4, most=3, slots=1)
    tickets: list[Ticket] = []
    for call, size in calls:
        live = [one for one in tickets if one.state in ("sent", "waiting")]
        if call == "a":
            tickets.append(made.ask(tokens=size + 1, within_s=size / 10))
        elif call == "l" and live:
            made.end(live[size % len(live)], None)
        elif call == "f" and live:
            made.end(live[size % len(live)], False)
        else:
            made.clock.advance(size / 50)
            made.gate.tick(made.clock.now())
            made.carry_out()
    made.clock.advance(100)
    for _ in range(200):
        made.clock.advance(1)
        made.gate.tick(made.clock.now())
        made.carry_out()
    assert {one.state for one in tickets} <= {"done", "refused"}
    statistics = made.gate.statistics()
    assert statistics["in_flight"] == statistics["in_flight_cost"] == 0
    assert statistics["queue_waiting"] == statistics["queue_cost"] == 0
    assert len(made.refused) == sum(one.state == "refused" for one in tickets)


def test_a_severe_tail_holds_back_and_lets_go_again() -> None:
    made = plant(replicas=1, most=8)
    gate = made.gate
    now = 0.0
    for number in range(300):
        gate.tail.observe(1.0 if number % 20 == 0 else 0.1, long=False)
    low = Ticket(cost=10, deadline_at=100, priority="low")
    for _ in range(8):
        made.ask(within_s=100)
    gate.arrive(low, now)
    assert low.state == "waiting"
    change = gate.judge(now)
    made.carry_out()
    assert change is not None
    assert change.level == "severe"
    assert (low.state, low.reason) == ("refused", "low_priority")
    assert gate.hold > 0
    assert made.ask(priority="low").reason == "low_priority"
    for _ in range(5000):
        gate.tail.observe(0.1, long=False)
    assert gate.judge(now + 1) is None
    change = gate.judge(now + 20)
    assert change is not None
    assert change.level == "normal"
    assert (gate.hold, gate.min_priority) == (0.0, "low")


def test_a_severe_tail_refuses_nobody_while_there_is_room() -> None:
    made = plant(replicas=1, most=8)
    for number in range(300):
        made.gate.tail.observe(1.0 if number % 20 == 0 else 0.1, long=False)
    change = made.gate.judge(0.0)
    assert change is not None
    assert change.level == "severe"
    assert made.ask(tokens=5000, within_s=1000).state == "sent"
    assert made.ask(priority="low", within_s=1000).state == "sent"


def test_nobody_waits_for_engines_that_are_all_out() -> None:
    made = plant(replicas=2, most=1)
    first = [made.ask(within_s=100) for _ in range(3)]
    assert [one.state for one in first] == ["sent", "sent", "waiting"]
    for health in made.gate.health:
        health.probed(made.clock.now(), ok=False)
    made.gate.tick(made.clock.now())
    made.carry_out()
    assert (first[2].state, first[2].reason) == ("refused", "engines_out")
    late = made.ask(within_s=100)
    assert (late.state, late.reason) == ("refused", "engines_out")
    assert late.retry_after_s > 1.5
    for health in made.gate.health:
        health.probed(made.clock.now() + 1.0, ok=True)
    made.clock.advance(1.0)
    assert made.ask(within_s=100).state in ("sent", "waiting")
