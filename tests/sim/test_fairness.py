"""Tenants in front of one engine that is too small for all: who gets how much of it.

Virtual time and the production desk or gate; the engine writes 1,600 tokens a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.policy.admission import AdmissionSettings, Ask, Claimant, Desk, Entry, PoolRule
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.queue import QueueSettings
from forebay.policy.shed import ShedSettings
from forebay.telemetry.ids import begin_trace
from forebay.telemetry.metrics import Metrics
from forebay.telemetry.report import RequestReport

SLOTS, STEP_S = 16, 0.01
CAPACITY = SLOTS / STEP_S
FULL = LimitSettings(initial=SLOTS, most=SLOTS)
WARM_S = 10.0


class Tenant:
    """Asks at random for ``demand`` tokens a second, in requests of about ``size`` tokens."""

    def __init__(self, demand: float, size: int = 20, weight: float = 1.0) -> None:
        self.demand = demand
        self.size = size
        self.weight = weight
        self.asked = self.served = 0.0


def contend(tenants: Mapping[str, Tenant], seconds: float = 70.0) -> None:
    """Let the tenants ask a gate with its defaults; the first seconds are not counted."""
    clock, draw = VirtualClock(), Random(1)
    gate = PoolGate(GateSettings(limit=FULL), ["engine"])

    def carry_out() -> None:
        gate.refused()
        for ticket in gate.sent():
            clock.call_at(clock.now() + STEP_S, partial(first, ticket))
            clock.call_at(clock.now() + STEP_S * ticket.output_tokens, partial(end, ticket))

    def first(ticket: Ticket) -> None:
        gate.first_token(ticket, clock.now())

    def end(ticket: Ticket) -> None:
        gate.finish(ticket, clock.now(), ok=True)
        if WARM_S < clock.now() <= ticket.deadline_at:
            tenants[ticket.tenant].served += ticket.cost
        carry_out()

    def ask(name: str) -> None:
        tenant = tenants[name]
        tokens = max(1, round(tenant.size * draw.uniform(0.5, 1.5)))
        ticket = Ticket(cost=tokens, deadline_at=clock.now() + 5.0, tenant=name)
        ticket.output_tokens = ticket.expected_tokens = tokens
        ticket.weight = tenant.weight
        if clock.now() > WARM_S:
            tenant.asked += tokens
        gate.arrive(ticket, clock.now())
        carry_out()
        later(name)

    def later(name: str) -> None:
        each_s = tenants[name].size / tenants[name].demand
        clock.call_at(clock.now() + draw.expovariate(1 / each_s), partial(ask, name))

    for name in tenants:
        later(name)
    clock.run_until(seconds)


def test_who_floods_keeps_out_nobody_but_himself() -> None:
    quiet = {f"quiet {number}": Tenant(0.7 * CAPACITY / 11) for number in range(10)}
    flood = Tenant(10 * CAPACITY)
    contend({"flood": flood, **quiet})
    for tenant in quiet.values():
        assert tenant.served >= 0.95 * tenant.asked
    # What they leave is his.
    assert flood.served + sum(one.served for one in quiet.values()) >= 0.93 * CAPACITY * 60


def test_equal_tokens_whatever_the_number_and_the_size_of_requests() -> None:
    tenants = {"many": Tenant(5 * CAPACITY), "few": Tenant(CAPACITY), "big": Tenant(CAPACITY, 100)}
    contend(tenants, 130.0)
    served = [one.served for one in tenants.values()]
    assert max(served) / min(served) < 1.05, served


def test_weights_are_kept_under_contention() -> None:
    tenants = {"one": Tenant(3 * CAPACITY), "two": Tenant(3 * CAPACITY, weight=2.0)}
    contend(tenants)
    assert tenants["two"].served / tenants["one"].served == pytest.approx(2, rel=0.05)


def report(tenant: str, tokens: int, clock: VirtualClock) -> RequestReport:
    ctx = RequestContext(
        request_id="r", principal=Principal(tenant), deadline=Deadline.after(9, clock), clock=clock
    )
    return RequestReport(
        request_id="r", method="POST", route="chat", status=200, outcome="ok", ended_at=0.0,
        arrived_at=0.0, duration_s=0.1, client="", trace=begin_trace(None), ctx=ctx,
        prompt_tokens=tokens, completion_tokens=1,
    )  # fmt: skip


@pytest.mark.slow
def test_five_thousand_tenants_share_by_tokens() -> None:
    tenants, clock, draw = 5000, VirtualClock(), Random(9)
    patient = ShedSettings(target_s=1e6, interval_s=1e6, max_wait_s=1e6)
    queue = QueueSettings(max_waiting=20_000)
    # All wait from the first moment on, before anybody knows how quickly they are served.
    settings = GateSettings(queue=queue, limit=FULL, shed=patient)
    gate = PoolGate(settings, ["engine"])
    desk = Desk(AdmissionSettings(), [PoolRule("p", 4096, 4096)], {"p": gate}, clock, clock)
    sizes = [draw.choice((10, 15, 20)) for _ in range(tenants)]
    served: dict[str, float] = defaultdict(float)
    entries: dict[Ticket, Entry] = {}

    def ask(number: int) -> None:
        name = f"tenant {number}"
        asked = Ask(Claimant(tenant=name), "chat", "normal", 1e9, sizes[number] - 1, cap=1)
        entry = desk.reserve(asked)
        entries[entry.ticket] = entry
        desk.enter(entry)

    for number in range(tenants):
        ask(number)
        ask(number)
    total = -2.0 * 20 * SLOTS  # the first went to free places, when nobody contended
    while total < tenants * 500:
        assert not gate.refused()
        for ticket in gate.sent():
            entry = entries.pop(ticket)
            clock.advance(STEP_S / SLOTS)
            entry.prompt_tokens, entry.completion_tokens = ticket.input_tokens, 1
            desk.leave(entry, ok=True)
            total += ticket.cost
            if total > 0:
                served[ticket.tenant] += ticket.cost
            ask(int(ticket.tenant.split()[1]))
    assert len(served) == tenants
    fair = sum(served.values()) / tenants
    assert 0.95 * fair <= min(served.values())
    assert max(served.values()) <= 1.05 * fair


def test_five_thousand_tenants_make_a_bounded_number_of_series() -> None:
    metrics, clock = Metrics(), VirtualClock()
    for number in range(5000):
        metrics.finished(report(f"tenant {number}", 10, clock))
    page = metrics.render().decode()
    samples = [one for each in text_string_to_metric_families(page) for one in each.samples]
    named = {one.labels["tenant"] for one in samples if "tenant" in one.labels}
    assert len(named) == 101
    assert "other" in named
    assert len(samples) < 1500
