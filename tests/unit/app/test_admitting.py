"""The gates that stand in front of what answers inside this process."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from forebay.app import admitting
from forebay.app.admitting import _hedgers, open_admission, pools_of
from forebay.app.settings import Settings
from forebay.generation.signals import EngineEye, EngineSignal
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, RateLimited
from forebay.kernel.quotas import QuotaCall, WorkPlaces
from forebay.policy.admission import Ask, Claimant
from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.quota import LeasedLedger, LedgerAuthority, QuotaLedger, SharedQuotas


def _gate_of(config: object) -> GateSettings:
    return pools_of(msgspec.convert(config, Settings))[0][2]


def _people(
    settings: GateSettings, people: int, cost: float, *, cold: tuple[int, float] = (0, 0.0)
) -> tuple[PoolGate, int]:
    """``people`` who each ask again at once; one core answers, now from a cache, now slowly.

    The first few, ``cold``, take so many seconds each.
    """
    chance = random.Random(7)
    gate = PoolGate(settings, ["local"])
    asks = [(chance.random() / 10, number) for number in range(people)]
    ends: list[tuple[float, int, Ticket]] = []
    free_at, refused, number, now = 0.0, 0, 0, 0.0

    def begin() -> None:
        nonlocal free_at, refused, number
        for ticket in gate.sent():
            number += 1
            warm_s = chance.choice((0.001, 0.01, 0.02, 0.04))
            work_s = warm_s if number > cold[0] else cold[1]
            free_at = max(free_at, now) + work_s
            heapq.heappush(ends, (free_at, number, ticket))
        for _ in gate.refused():
            refused += 1
            heapq.heappush(asks, (now + 1.0, 0))

    while now < 60.0:
        if ends and (not asks or ends[0][0] <= asks[0][0]):
            now, _, ticket = heapq.heappop(ends)
            gate.finish(ticket, now, ok=True)
            heapq.heappush(asks, (now + 0.001, 0))
        else:
            now, _ = heapq.heappop(asks)
            ticket = Ticket(cost=cost, deadline_at=now + 60.0)
            ticket.input_tokens, ticket.output_tokens = 2000, chance.randrange(10, 300)
            gate.arrive(ticket, now)
        begin()
        gate.judge(now)
        begin()
    return gate, refused


@pytest.mark.parametrize("people", [1, 8, 24])
def test_ordinary_use_of_one_machine_is_never_refused(people: int) -> None:
    found, refused = _people(_gate_of({}), people, 3000.0)
    assert refused == 0
    assert found.min_priority == "low"


@pytest.mark.parametrize("cold", [(8, 0.5), (24, 0.3), (200, 0.2), (2000, 0.15)])
def test_two_dozen_at_a_cold_start_are_all_answered(cold: tuple[int, float]) -> None:
    _, refused = _people(_gate_of({}), 24, 3000.0, cold=cold)
    assert refused == 0


def test_waiting_for_a_slot_of_a_slow_model_is_no_overload() -> None:
    gate = PoolGate(_gate_of({"generation": {"backend": "llama"}}), ["local"])
    waiting, now = [], 0.0
    for number in range(5):
        ticket = Ticket(cost=1500.0, deadline_at=300.0)
        ticket.input_tokens, ticket.output_tokens = 1400, 100 + number
        gate.arrive(ticket, now)
        waiting.append(ticket)
    for ticket in waiting:
        assert ticket.state == "sent"
        now += 8.0  # the prompt alone takes longer than an engine may be silent
        gate.tick(now)
        gate.finish(ticket, now, ok=True)
    assert gate.refused() == []


def test_other_settings_of_a_pool_leave_its_usual_gate() -> None:
    kept = {"admission": {"pools": {"extractive": {"tenants": ["default"]}}}}
    own = {"admission": {"pools": {"extractive": {"gate": {"shed": {"target_s": 0.3}}}}}}
    assert _gate_of(kept) == _gate_of({})
    assert _gate_of(own).shed.target_s == 0.3
    assert _gate_of(own).shed.max_wait_s == _gate_of({}).shed.max_wait_s == 5.0
    assert _gate_of(own).tail == _gate_of({}).tail


def test_a_gate_lets_in_no_more_than_there_may_be_connections() -> None:
    pool = {"name": "p", "base_urls": ["http://127.0.0.1:1/v1"], "model": "m"}
    config = {
        "generation": {"backend": "openai", "pools": [pool], "engine": {"max_connections": 6}}
    }
    limit = _gate_of(config).limit
    assert (limit.least, limit.initial, limit.most) == (1, 6, 6)
    roomy = {"generation": {"backend": "openai", "pools": [pool]}}
    assert _gate_of(roomy).limit.most == 256


def test_hedging_is_for_pools_that_want_it_and_have_two_replicas() -> None:
    urls = ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"]
    wide = {"model": "m", "base_urls": urls}
    config = {
        "generation": {
            "backend": "openai",
            "pools": [
                {"name": "two", **wide},
                {"name": "one", **wide, "base_urls": urls[:1]},
                {"name": "not", **wide},
            ],
        },
        "admission": {
            "pools": {
                "two": {"hedge": {"enabled": True}},
                "one": {"hedge": {"enabled": True}},
                "not": {"hedge": {}},
            }
        },
    }
    settings = msgspec.convert(config, Settings)
    gates = {rule.name: PoolGate(gate, names) for rule, names, gate in pools_of(settings)}
    assert {name.removesuffix("-long") for name in _hedgers(settings, gates)} == {"two"}


async def test_a_pool_is_kept_for_tenants_that_exist(tmp_path: Path) -> None:
    config = {"admission": {"pools": {"extractive": {"tenants": ["bank"]}}}}
    settings = msgspec.convert(config, Settings)
    with pytest.raises(ConfigError, match="kept for bank, who is none of the tenants"):
        async with open_admission(settings, SystemClock(), tmp_path):
            pass


POOL = {"base_urls": ["http://127.0.0.1:1/v1"], "model": "m"}


@pytest.mark.parametrize(
    ("pools", "sentence"),
    [
        ({"a": {"priorities": ["high"]}, "b": {"priorities": ["low"]}}, "of priority normal"),
        (
            {
                "a": {"priorities": ["high"], "spill_to": ["b"]},
                "b": {"priorities": ["low"]},
                "c": {},
            },
            "spills to b, which takes none of its priorities",
        ),
    ],
)
async def test_classes_without_a_pool_fail_at_start(
    tmp_path: Path, pools: dict[str, object], sentence: str
) -> None:
    engines = [{"name": name, **POOL} for name in pools]
    config = {
        "generation": {"backend": "openai", "pools": engines},
        "admission": {"pools": pools},
    }
    settings = msgspec.convert(config, Settings)
    with pytest.raises(ConfigError, match=sentence):
        async with open_admission(settings, SystemClock(), tmp_path):
            pass


async def test_profiles_are_for_tenants_and_routes_that_exist(tmp_path: Path) -> None:
    settings = msgspec.convert({"admission": {"tenant_profiles": {"bank": "code"}}}, Settings)
    with pytest.raises(ConfigError, match="tenant_profiles names bank"):
        async with open_admission(settings, SystemClock(), tmp_path):
            pass
    settings = msgspec.convert({"admission": {"route_profiles": {"sarch": "code"}}}, Settings)
    with pytest.raises(ConfigError, match=r"route_profiles names sarch.*; there are chat, search"):
        async with open_admission(settings, SystemClock(), tmp_path):
            pass


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.01)


async def test_processes_that_share_quotas_share_what_they_let_into_an_engine(
    tmp_path: Path,
) -> None:
    gate = {"limit": {"initial": 9, "most": 9}, "max_tokens": 9000}
    config = {
        "generation": {"backend": "openai", "pools": [{"name": "a", **POOL}]},
        "admission": {"pools": {"a": {"look_s": 0, "gate": gate}}},
    }
    clock, ledger = SystemClock(), LeasedLedger(1.0)
    ledger.count(3, clock.now())
    shared = cast(SharedQuotas, SimpleNamespace(ledger=ledger, places=object()))
    settings = msgspec.convert(config, Settings)
    async with open_admission(settings, clock, tmp_path, shared) as (admission, _):
        limit = admission.desk.gates["a"].limit
        assert (limit.limit, limit.processes) == (3, 3)
        assert admission._places is shared.places
        ledger.processes = 1
        await _until(lambda: limit.limit == 9)


async def test_the_keeper_of_the_quotas_knows_who_is_at_work_in_its_own_process(
    tmp_path: Path,
) -> None:
    clock = SystemClock()
    async with open_admission(Settings(), clock, tmp_path) as (admission, _):
        assert isinstance(admission.desk.ledger, QuotaLedger)
        who = Claimant(tenant="t", max_in_flight=2)
        authority = LedgerAuthority(admission.desk.ledger, clock, itself=1)
        call = QuotaCall(process="reader", places=(WorkPlaces("t", 2, 0, 2),), number=1)
        async with admission.admit(Ask(who, "chat", "normal", clock.now() + 9, 10, cap=1)):
            assert authority.carry_out(call).places == ((1, 0),)
            with pytest.raises(RateLimited, match="2 requests in work"):
                async with admission.admit(Ask(who, "chat", "normal", clock.now() + 9, 10, cap=1)):
                    pass
        again = QuotaCall(process="reader", places=(WorkPlaces("t", 2, 1, 1),), number=2)
        assert authority.carry_out(again).places == ((1, 0),)


async def test_engines_are_looked_at_and_what_they_show_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [EngineSignal(False), EngineSignal(True, waiting=0, kv_use=0.95), EngineSignal(True)]

    async def look(_eye: EngineEye, urls: tuple[str, ...]) -> list[EngineSignal]:
        assert len(urls) == len(seen)
        return seen

    monkeypatch.setattr(admitting, "look_at_all", look)
    pool = {**POOL, "name": "a", "base_urls": [f"http://127.0.0.1:{at}/v1" for at in (1, 2, 3)]}
    config = {
        "generation": {"backend": "openai", "pools": [pool]},
        "admission": {"pools": {"a": {"look_s": 0.01}}},
    }
    settings = msgspec.convert(config, Settings)
    async with open_admission(settings, SystemClock(), tmp_path) as (admission, _):
        for gate in admission.desk.gates.values():
            await _until(lambda gate=gate: gate.health[0].state == "ejected")  # type: ignore[misc]
            assert [load.full for load in gate.loads] == [False, True, False]
            assert [health.state for health in gate.health] == ["ejected", "fit", "fit"]
