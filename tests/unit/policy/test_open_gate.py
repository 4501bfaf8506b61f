"""Admission that is switched off: everybody goes through, only the deny list holds."""

from __future__ import annotations

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import PermissionDenied
from forebay.policy.admission import (
    AccessRule,
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    PoolRule,
)
from forebay.policy.balance import EjectionSettings
from forebay.policy.gate import GateSettings, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.open_gate import OpenGate
from forebay.policy.queue import QueueSettings
from forebay.policy.quota import Limit

STRICT = GateSettings(
    queue=QueueSettings(max_waiting=0), limit=LimitSettings(initial=1, least=1, most=1)
)


def ticket(within_s: float = 1.0) -> Ticket:
    made = Ticket(cost=100_000, deadline_at=within_s)
    made.input_tokens, made.output_tokens = 90_000, 10_000
    return made


def test_nothing_waits_and_nothing_is_refused() -> None:
    gate = OpenGate(STRICT, ["a", "b"])
    tickets = [ticket() for _ in range(1000)]
    for number, one in enumerate(tickets):
        gate.arrive(one, number / 1000)
    assert [len(gate.sent()), len(gate.refused())] == [1000, 0]
    assert [load.requests for load in gate.loads] == [500, 500]
    for number, one in enumerate(tickets):
        gate.progress(one, 1, 5 + number / 1000)
        gate.finish(one, 60.0, ok=True)
    assert gate.judge(60.0) is None
    assert gate.statistics()["in_flight"] == 0
    gate.signals(0, waiting=500, kv_use=1.0)
    gate.arrive(ticket(61.0), 60.0)
    assert len(gate.sent()) == 1


def test_a_hung_replica_is_left_alone_while_another_is_fit() -> None:
    settings = GateSettings(ejection=EjectionSettings(stalled_s=5.0))
    gate = OpenGate(settings, ["a", "b"])
    for _ in range(2):
        gate.arrive(ticket(100.0), 0.0)
    second = gate.sent()[1]
    gate.progress(second, 1, 9.0)
    gate.arrive(ticket(100.0), 10.0)
    assert [one.replica for one in gate.sent()] == [second.replica]
    lonely = OpenGate(settings, ["a"])
    for now in (0.0, 10.0, 20.0):
        lonely.arrive(ticket(100.0), now)
    assert len(lonely.sent()) == 3


def test_quotas_are_not_charged_but_the_deny_list_holds() -> None:
    clock = VirtualClock()
    settings = AdmissionSettings(
        enabled=False,
        limits=DimensionLimits(tenant=Limit(1.0, 1.0)),
        rules=(
            AccessRule("tenant", "banned", deny=True),
            AccessRule("tenant", "poor", limit=Limit(1.0, 1.0)),
        ),
    )
    gates = {"pool": OpenGate(STRICT, ["a"])}
    desk = Desk(settings, [PoolRule("pool", 10_000, 1_000)], gates, clock, clock)

    def ask(tenant: str) -> Ask:
        who = Claimant(tenant=tenant, tenant_limit=Limit(1.0, 1.0), max_in_flight=1)
        return Ask(who, "chat", "normal", deadline_at=10.0, input_tokens=5_000, cap=500)

    for tenant in ("shop", "shop", "poor"):
        entry = desk.reserve(ask(tenant))
        assert desk.enter(entry) is gates["pool"]
        assert (entry.ticket.state, entry.cap, entry.rate) == ("sent", 500, None)
    with pytest.raises(PermissionDenied, match="deny list"):
        desk.reserve(ask("banned"))
