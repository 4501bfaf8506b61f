"""When a second replica is asked, and what its outcome leaves behind."""

from __future__ import annotations

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import HedgeOutcome
from forebay.policy.admission import Admission, AdmissionSettings, Ask, Claimant, Desk, PoolRule
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.hedge import Hedger, HedgeSettings
from forebay.policy.limit import LimitSettings
from forebay.policy.retry import RetrySettings


def gate_of(replicas: int = 2, slots: int = 2, burst: float = 10.0) -> PoolGate:
    return PoolGate(
        GateSettings(
            limit=LimitSettings(initial=slots, most=slots),
            retry=RetrySettings(share=0.0, burst=burst),
        ),
        [f"r{number}" for number in range(replicas)],
    )


def sent(gate: PoolGate) -> Ticket:
    ticket = Ticket(cost=10.0, deadline_at=100.0)
    gate.arrive(ticket, 0.0)
    gate.sent()
    assert ticket.state == "sent"
    return ticket


def in_work(gate: PoolGate) -> list[int]:
    return [load.requests for load in gate.loads]


def test_late_is_later_than_most_first_tokens() -> None:
    hedger = Hedger(gate_of(), HedgeSettings(least_requests=20))
    for number in range(19):
        hedger.observe(0.1 if number else 3.0)
    assert hedger.after_s() is None
    hedger.observe(0.1)
    late_s = hedger.after_s()
    assert late_s is not None
    assert late_s == pytest.approx(0.1, rel=0.06)
    quick = Hedger(gate_of(), HedgeSettings(least_requests=1))
    quick.observe(0.001)
    assert quick.after_s() == 0.05


@pytest.mark.parametrize("outcome", ["won", "lost", "failed", "alone"])
def test_whatever_comes_of_it_everything_is_given_back(outcome: HedgeOutcome) -> None:
    gate = gate_of()
    hedger = Hedger(gate, HedgeSettings())
    ticket = sent(gate)
    first = ticket.replica
    second = hedger.begin(ticket, 1.0)
    assert second == 1 - first
    assert in_work(gate) == [1, 1]
    hedger.ended(ticket, second, outcome, 2.0)
    goes_on = second if outcome in ("won", "alone") else first
    assert ticket.replica == goes_on
    assert in_work(gate)[goes_on] == 1
    assert sum(in_work(gate)) == 1
    gate.finish(ticket, 3.0, ok=True)
    assert in_work(gate) == [0, 0]
    assert hedger.statistics() == {f"hedges_{outcome}": 1}


def test_only_into_free_room_within_the_budget_and_beside_nobody_who_waits() -> None:
    alone = gate_of(replicas=1)
    assert Hedger(alone, HedgeSettings()).begin(sent(alone), 1.0) is None
    full = gate_of(slots=1)
    tickets = [sent(full), sent(full)]
    assert Hedger(full, HedgeSettings()).begin(tickets[0], 1.0) is None
    poor = gate_of(burst=1.0)
    hedger = Hedger(poor, HedgeSettings())
    first, other = sent(poor), sent(poor)
    assert hedger.begin(first, 1.0) is not None
    assert hedger.begin(other, 1.0) is None
    asked = gate_of()
    late = sent(asked)
    again = Hedger(asked, HedgeSettings())
    assert again.begin(late, 100.0) is None, "no time is left"
    assert again.begin(late, 1.0) is not None
    assert again.begin(late, 1.0) is None, "two attempts are enough"
    crowded = gate_of(slots=1)
    tickets = [sent(crowded), sent(crowded)]
    waiting = Ticket(cost=10.0, deadline_at=100.0)
    crowded.arrive(waiting, 0.0)
    assert waiting.state == "waiting"
    assert Hedger(crowded, HedgeSettings()).begin(tickets[0], 1.0) is None


async def test_a_permit_moves_to_the_replica_that_goes_on() -> None:
    gate = gate_of()
    clock = VirtualClock(10.0)
    desk = Desk(AdmissionSettings(), (PoolRule("p", 4096, 1024),), {"p": gate}, clock, clock)
    admission = Admission(desk, hedgers={"p": Hedger(gate, HedgeSettings(least_requests=1))})
    ask = Ask(Claimant(tenant="t"), "chat", "normal", clock.now() + 9, input_tokens=10, cap=5)
    async with admission.admit(ask) as permit:
        hedging = permit.hedging
        assert hedging is not None
        assert hedging.after_s() is None
        first = permit.replica
        second = hedging.begin()
        assert second == 1 - first
        hedging.ended(second, "won")
        assert permit.replica == second
        permit.began(10)
        clock.advance(0.25)
        permit.token()
        late_s = hedging.after_s()
        assert late_s is not None
        assert 0.25 <= late_s < 0.27
        permit.produced(10, 1, whole=True)
    assert in_work(gate) == [0, 0]
    assert admission.statistics()["p"]["hedges_won"] == 1
