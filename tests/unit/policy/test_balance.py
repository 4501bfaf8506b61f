"""Replica choice and health."""

from __future__ import annotations

from collections import Counter

import pytest

from forebay.policy.balance import EjectionSettings, ReplicaHealth, ReplicaLoad, choose


def replicas(*costs: float) -> list[ReplicaLoad]:
    made = []
    for at, cost in enumerate(costs):
        load = ReplicaLoad(f"r{at}")
        load.took(cost)
        made.append(load)
    return made


def test_least_work_first_and_equals_take_turns() -> None:
    assert choose(replicas(50, 10, 30)).name == "r1"
    assert [choose(replicas(5, 5, 5), turn=turn).name for turn in range(3)] == ["r0", "r1", "r2"]
    big = replicas(30, 40)
    big[1].weight = 2
    assert choose(big).name == "r1"
    with pytest.raises(ValueError, match="no replica"):
        choose([])


def test_memory_that_others_fill_counts_as_work() -> None:
    loads = replicas(30, 30, 30)
    for load, use in zip(loads, (0.6, 0.1, 0.5), strict=True):
        load.kv_use = use
    assert choose(loads).name == "r1"
    loads[1].took(100)
    assert choose(loads).name == "r2"
    loads[0].kv_use = None
    assert choose(loads).name == "r0"
    loads[0].kv_use = 1.0
    assert loads[0].work() == pytest.approx(310)


def test_sessions_stay_and_spread_and_give_way_to_load() -> None:
    loads = replicas(10, 10, 10)
    homes = {f"s{n}": choose(loads, session=f"s{n}").name for n in range(600)}
    assert all(150 < count < 250 for count in Counter(homes.values()).values())
    fewer = [load for load in loads if load.name != "r1"]
    moved = sum(choose(fewer, session=s).name != home for s, home in homes.items() if home != "r1")
    assert moved == 0
    session = next(name for name, home in homes.items() if home == "r2")
    loads[2].took(1000)
    assert choose(loads, session=session).name != "r2"


def test_work_goes_back_to_nothing() -> None:
    load = ReplicaLoad("a")
    for cost in (0.1, 0.2, 0.3):
        load.took(cost)
    for cost in (0.3, 0.1, 0.2):
        load.gave_back(cost)
    assert (load.requests, load.cost) == (0, 0.0)


def test_failures_in_a_row_eject_and_one_trial_lets_back() -> None:
    health = ReplicaHealth(EjectionSettings(failures=2, rest_s=1, max_rest_s=3))
    for request in range(2):
        health.began(request, 0.0)
        health.ended(request, 0.0, ok=False)
    assert not health.admits(0.5)
    assert health.admits(1.0)
    health.began("trial", 1.0)
    assert not health.admits(1.0)
    health.ended("trial", 1.1, ok=False)
    assert not health.admits(3.0)
    assert health.admits(3.1)
    health.began("gone", 3.1)
    health.ended("gone", 3.2, ok=None)
    assert health.admits(3.2)
    health.began("good", 3.2)
    health.alive("good", 3.3)
    assert health.admits(3.3)
    assert health.ejections == 2


def test_failures_with_successes_between_do_not_eject() -> None:
    health = ReplicaHealth(EjectionSettings(failures=2))
    for request in range(20):
        health.began(request, 0.0)
        health.ended(request, 0.0, ok=request % 2 == 0)
    assert health.admits(0.0)


def test_a_hung_replica_is_found_by_silence() -> None:
    health = ReplicaHealth(EjectionSettings(stalled_s=2, rest_s=1))
    health.began("a", 0.0)
    health.began("b", 1.0)
    health.alive("a", 1.9)
    assert health.admits(2.9)
    assert not health.admits(3.1)
    assert health.admits(4.2)
    health.began("c", 4.2)
    assert not health.admits(6.0)
    assert not health.admits(6.3)  # the trial hangs too
    assert not health.admits(8.2)
    assert health.admits(8.3)


def test_no_client_tries_an_engine_that_looks_find_dead() -> None:
    health = ReplicaHealth(EjectionSettings(rest_s=1, max_rest_s=30))
    for second in range(40):
        health.probed(float(second), ok=False)
        assert not health.admits(second + 0.9)
        assert health.rests_s(second + 0.9) > 1.5
    health.probed(40.0, ok=True)
    assert health.state == "fit"


def test_without_looks_a_rest_ends_with_a_trial() -> None:
    health = ReplicaHealth(EjectionSettings(failures=1, rest_s=1))
    health.began("a", 0.0)
    health.ended("a", 0.0, ok=False)
    assert health.rests_s(0.25) == 0.75
    health.began("trial", 1.0)
    assert health.rests_s(1.0) > 0


def test_silence_is_judged_by_how_quickly_first_tokens_come() -> None:
    health = ReplicaHealth(EjectionSettings(stalled_s=20))
    health.began("slow prompt", 0.0)
    assert health.admits(19.0)
    health.expect(0.05)
    assert not health.admits(19.0)
    health.expect(60.0)
    assert health.stalled_s == 20


def test_probes_eject_and_let_back() -> None:
    health = ReplicaHealth(EjectionSettings(rest_s=1))
    health.probed(0.0, ok=False)
    assert not health.admits(0.5)
    health.probed(0.5, ok=True)
    assert not health.admits(0.9)
    health.probed(1.0, ok=True)
    assert health.state == "fit"


def test_silence_counts_from_when_the_engine_was_asked() -> None:
    health = ReplicaHealth(EjectionSettings(stalled_s=5))
    health.began("slow search", 0.0, asked=False)
    assert health.admits(60.0)
    health.asked("slow search", 60.0)
    assert health.admits(64.0)
    assert not health.admits(66.0)


def test_who_waits_where_nothing_moves_hangs_and_who_is_slow_beside_others_does_not() -> None:
    health = ReplicaHealth(EjectionSettings(stalled_s=2.0))
    speaks, silent, late = object(), object(), object()
    for one in (speaks, silent):
        health.asked(one, 0.0)
    health.alive(speaks, 1.5)
    assert health.hung(3.4) == (), "the replica speaks, one request on it has a long prompt"
    health.asked(late, 3.0)
    assert health.hung(3.6) == (silent, late), "who has a token already cannot go elsewhere"
    assert not health.admits(3.6)
    assert health.hung(3.7) == (silent, late), "also when it has been ejected"
    health.ended(silent, 3.7, ok=False)
    health.ended(late, 3.7, ok=None)
    assert health.hung(9.0) == ()
