"""What a request is charged, to whom and when: the desk on a virtual clock."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import Priority
from forebay.kernel.errors import ConfigError, ContextTooLong, RateLimited
from forebay.policy.admission import (
    AdmissionSettings,
    Ask,
    Claimant,
    Desk,
    DimensionLimits,
    PoolRule,
    PoolRules,
)
from forebay.policy.admission.settings import DIMENSIONS
from forebay.policy.cost import CostWeights
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.quota import Limit, QuotaWindow
from forebay.policy.shed import ShedSettings

WIDE, NARROW = Limit(1.0, 1000.0), Limit(1.0, 150.0)
HIGH: frozenset[Priority] = frozenset({"high"})
WHO = Claimant(key="k", user="u", tenant="t", line="l", ip="10.0.0.1")


def desk_of(settings: AdmissionSettings, wall: VirtualClock | None = None) -> Desk:
    clock = VirtualClock()
    gates = {"p": PoolGate(GateSettings(), ["r0"])}
    rules = [PoolRule("p", 100_000, 10_000)]
    return Desk(settings, rules, gates, clock, wall or clock)


def ask(tokens: int = 40, cap: int = 60, route: str = "chat", passages: int = 0) -> Ask:
    return Ask(WHO, route, "normal", 1e9, tokens, cap=cap, passages=passages)


def levels(desk: Desk) -> dict[str, float]:
    now = desk.clock.now()
    found = {}
    for claim in desk._book.claims(WHO, 0.0):
        left = desk.ledger.remaining([claim], now)
        assert left is not None
        found[claim.dimension] = left[1]
    return found


@pytest.mark.parametrize("tight", DIMENSIONS)
def test_every_dimension_pays_or_none_does(tight: str) -> None:
    limits = {name: NARROW if name == tight else WIDE for name in DIMENSIONS}
    desk = desk_of(AdmissionSettings(limits=DimensionLimits(**limits)))
    entry = desk.reserve(ask())
    before = levels(desk)
    assert before == {name: (50 if name == tight else 900) for name in DIMENSIONS}
    with pytest.raises(RateLimited) as refused:
        desk.reserve(ask())
    assert refused.value.retry_after_s == 50  # what is missing, at a token a second
    assert levels(desk) == before
    entry.prompt_tokens, entry.completion_tokens = 40, 10
    desk.leave(entry, ok=True)
    assert levels(desk) == {name: (100 if name == tight else 950) for name in DIMENSIONS}


def test_a_route_has_a_profile_of_its_own() -> None:
    limits = DimensionLimits(tenant=Limit(0.001, 10_000.0))
    routes = {"report": "document"}
    desk = desk_of(AdmissionSettings(limits=limits, profile="code", route_profiles=routes))
    assert desk.reserve(ask(100, 200)).cost == 1.0 * 100 + 1.5 * 200 + 0.3 * 300
    assert desk.reserve(ask(100, 200, "report")).cost == 0.5 * 100 + 0.7 * 200 + 2 * 300
    entry = desk.reserve(ask(100, 200, "report"))
    desk.enter(entry)
    entry.prompt_tokens, entry.completion_tokens = 80, 20
    before = levels(desk)["tenant"]
    desk.leave(entry, ok=True)
    used = 0.5 * 80 + 0.7 * 20 + 2 * 100
    assert levels(desk)["tenant"] - before == pytest.approx(entry.cost - used)


def test_own_factors_charge_a_tenant_or_a_route_and_change_nothing_for_the_engines() -> None:
    own = {"half": CostWeights(0.5, 0.5), "by_length": CostWeights(0.0, 0.0, 1.5)}
    settings = AdmissionSettings(
        limits=DimensionLimits(tenant=Limit(0.001, 10_000.0)),
        profiles=own,
        route_profiles={"report": "by_length"},
        tenant_profiles={"cheap": "half"},
    )
    desk = desk_of(settings)
    assert desk.reserve(ask(100, 200)).cost == 300
    assert desk.reserve(ask(100, 200, "report")).cost == 450
    cheap = msgspec.structs.replace(ask(100, 200), who=Claimant(tenant="cheap"))
    entry = desk.reserve(cheap)
    assert entry.cost == 150
    assert entry.ticket.cost == 300
    with pytest.raises(ConfigError, match="all 0"):
        CostWeights(0.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match=r"no cost profile 'gold'; use tokens, .*, half"):
        AdmissionSettings(profiles={"half": CostWeights(0.5, 0.5)}, profile="gold")


def test_a_tenants_profile_goes_before_its_routes_and_changes_while_running() -> None:
    limits = DimensionLimits(tenant=Limit(0.001, 10_000.0))
    routes = {"report": "document"}
    settings = AdmissionSettings(
        limits=limits, route_profiles=routes, tenant_profiles={"t": "code", "other": "summary"}
    )
    desk = desk_of(settings)
    code = 1.0 * 100 + 1.5 * 200 + 0.3 * 300
    assert desk.reserve(ask(100, 200)).cost == code
    assert desk.reserve(ask(100, 200, "report")).cost == code
    assert desk.price(WHO, "report", 100)[1] == 1.3 * 100
    desk.replace(AdmissionSettings(limits=limits, route_profiles=routes))
    assert desk.reserve(ask(100, 200, "report")).cost == 0.5 * 100 + 0.7 * 200 + 2 * 300
    with pytest.raises(ConfigError, match="no cost profile 'gold'"):
        AdmissionSettings(tenant_profiles={"t": "gold"})


def test_pools_take_the_classes_they_are_for() -> None:
    rules = PoolRules(
        [
            PoolRule("short", 1000, 200),
            PoolRule("long", 8000, 2000, priorities=frozenset({"normal", "low"})),
            PoolRule("urgent", 4000, 1000, spill_to=("long", "short"), priorities=HIGH),
        ]
    )

    def chosen(tokens: int, output: int, priority: Priority) -> list[str]:
        return [rule.name for rule in rules.choose("t", tokens, output, priority)]

    assert chosen(100, 100, "high") == ["urgent", "short"], "no spill into what is closed to it"
    assert chosen(100, 100, "normal") == ["long"], "what is for its class goes before the rest"
    assert chosen(3000, 3000, "high") == ["urgent"]
    assert rules.longest("t", "high") == 4000
    assert rules.longest("t") == 8000
    with pytest.raises(ContextTooLong, match="4000"):
        chosen(5000, 10, "high")


def test_planned_passages_give_way_to_the_prompt_that_was_built() -> None:
    desk = desk_of(AdmissionSettings(limits=DimensionLimits(tenant=Limit(1e-6, 10_000.0))))
    entry = desk.reserve(ask(40, 60, passages=5))
    assert levels(desk)["tenant"] == pytest.approx(10_000 - (40 + 200 + 5 * 400 + 60))
    desk.enter(entry)
    assert entry.gate is not None
    load = entry.gate.loads[entry.ticket.replica]
    assert load.cost == 40 + 200 + 5 * 400 + 60
    desk.built(entry, 900)  # the question and the passages are in it, once
    assert load.cost == entry.ticket.cost == 900 + 60
    assert levels(desk)["tenant"] == pytest.approx(10_000 - (900 + 60))
    entry.prompt_tokens, entry.completion_tokens = 900, 25
    desk.leave(entry, ok=True)
    assert levels(desk)["tenant"] == pytest.approx(10_000 - 925)


def test_quotas_shrink_at_the_peak_and_grow_in_quiet_hours() -> None:
    windows = (QuotaWindow("09:00", "11:30", 0.5), QuotaWindow("00:00", "06:00", 2.0))
    limits = DimensionLimits(tenant=Limit(1e-6, 1000.0))
    wall = VirtualClock()
    desk = desk_of(AdmissionSettings(limits=limits, windows=windows, load_factor=0.8), wall)

    def at(text: str) -> int:
        wall.advance(datetime.fromisoformat(f"2026-12-01T{text}").timestamp() - wall.now())
        entry = desk.reserve(ask())
        desk.leave(entry, None)
        assert entry.rate is not None
        return entry.rate.limit_tokens

    assert [at(text) for text in ("05:00", "08:00", "10:00", "12:00")] == [1600, 800, 400, 800]


def test_who_is_refused_is_told_when_the_line_will_have_been_worked_off() -> None:
    shed = ShedSettings(target_s=1e6, interval_s=1e6, max_wait_s=4.0)
    gate = PoolGate(GateSettings(limit=LimitSettings(initial=1, most=1), shed=shed), ["r0"])
    now, work_s = 0.0, 0.25
    refused: list[Ticket] = []

    def arrive() -> None:
        ticket = Ticket(cost=100, deadline_at=now + 100)
        ticket.output_tokens = ticket.expected_tokens = 100
        gate.arrive(ticket, now)
        refused.extend(gate.refused())

    arrive()
    for _ in range(200):  # one is worked off each quarter of a second, two come
        [working] = gate.sent()
        now += work_s
        arrive()
        arrive()
        gate.finish(working, now, ok=True)
    last = refused[-1]
    assert last.reason == "queue_delay"
    line_s = len(gate.queue) * work_s
    assert 3.0 < line_s <= 4.5
    assert last.retry_after_s == pytest.approx(line_s, rel=0.15)
