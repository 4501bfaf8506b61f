"""Runs: deterministic, in time order, independent parts, conversations, replays, bounds, speed."""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forebay.lab.workload.decoding import convert
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.request import PlannedRequest

LIGHT = {
    "name": "light",
    "share": 95,
    "input_tokens": {"distribution": "lognormal", "mean": 24},
    "output_tokens": 32,
    "deadline_s": 2.0,
}
HEAVY = {"name": "heavy", "share": 5, "input_tokens": 8_000, "output_tokens": 2_000}
POISSON = {"kind": "poisson", "rate": 200.0}


def workload(folder: Path = Path(), **values: Any) -> Workload:
    return Workload(convert(values, WorkloadSpec, "w"), folder)


def first(planned: Workload, count: int, seed: int = 1) -> list[PlannedRequest]:
    return list(itertools.islice(planned.requests(seed), count))


def mix(rate: float = 200.0, **options: Any) -> Workload:
    arrivals = {"kind": "poisson", "rate": rate} | options
    return workload(arrivals=arrivals, kinds=[LIGHT, HEAVY])


def test_a_seed_gives_the_same_requests_and_another_others() -> None:
    assert first(mix(), 10_000) == first(mix(), 10_000) != first(mix(), 10_000, seed=2)


def test_requests_are_numbered_in_time_order_and_end_with_the_duration() -> None:
    requests = list(mix(duration_s=20).requests(3))
    assert [request.index for request in requests] == list(range(len(requests)))
    times = [request.at_s for request in requests]
    assert times == sorted(times) and times[-1] < 20
    assert abs(len(requests) - 4_000) < 3 * math.sqrt(4_000)


def test_a_count_ends_a_run_too() -> None:
    assert len(list(mix(count=777).requests(1))) == 777


def test_kinds_have_their_shares_and_settings() -> None:
    requests = first(mix(), 50_000)
    heavy = [request for request in requests if request.kind == "heavy"]
    assert abs(len(heavy) - 2_500) < 3 * math.sqrt(50_000 * 0.05 * 0.95)
    assert {(one.input_tokens, one.output_tokens, one.deadline_s) for one in heavy} == {
        (8_000, 2_000, None)
    }
    assert {one.deadline_s for one in requests if one.kind == "light"} == {2.0}


def test_another_rate_changes_times_and_nothing_else() -> None:
    slow, fast = first(mix(100.0), 5_000), first(mix(200.0), 5_000)
    assert [(one.kind, one.input_tokens) for one in slow] == [
        (one.kind, one.input_tokens) for one in fast
    ]
    assert [one.at_s for one in slow] == pytest.approx([2 * one.at_s for one in fast])


def test_tenants_change_nothing_of_what_is_asked() -> None:
    tenants = [{"name": "a", "priority": "high"}, {"name": "b", "share": 3, "users": 5}]
    with_tenants = workload(arrivals=POISSON, kinds=[LIGHT, HEAVY], tenants=tenants)
    plain, named = first(mix(), 2_000), first(with_tenants, 2_000)
    assert [(one.at_s, one.kind, one.input_tokens) for one in plain] == [
        (one.at_s, one.kind, one.input_tokens) for one in named
    ]
    assert Counter(one.tenant for one in named).keys() == {"a", "b"}
    assert {one.priority for one in named if one.tenant == "a"} == {"high"}


def test_a_kinds_priority_goes_before_its_tenants() -> None:
    planned = workload(
        arrivals=POISSON,
        kinds=[LIGHT | {"priority": 3}],
        tenants=[{"name": "a", "priority": "high"}],
    )
    assert {one.priority for one in first(planned, 50)} == {3}


def chat(**options: Any) -> Workload:
    kind = {
        "name": "chat",
        "input_tokens": 30,
        "output_tokens": 50,
        "system_prompt_tokens": 100,
        "conversation": {"turns": 4, "think_s": 5.0},
    }
    return workload(arrivals={"kind": "poisson", "rate": 5.0}, kinds=[kind | options])


def by_session(requests: list[PlannedRequest]) -> list[list[PlannedRequest]]:
    sessions: dict[str, list[PlannedRequest]] = {}
    for request in requests:
        sessions.setdefault(request.session, []).append(request)
    return list(sessions.values())


def test_conversations_grow_turn_by_turn() -> None:
    requests = first(chat(), 2_000)
    times = [request.at_s for request in requests]
    assert times == sorted(times)
    assert [request.index for request in requests] == list(range(2_000))
    whole = [turns for turns in by_session(requests) if len(turns) == 4]
    assert len(whole) > 300
    for turns in whole:
        assert [one.turn for one in turns] == [0, 1, 2, 3] and {one.turns for one in turns} == {4}
        assert [one.input_tokens for one in turns] == [130, 210, 290, 370]
        assert [one.history_tokens for one in turns] == [0, 180, 260, 340]
        gaps = [later.at_s - one.at_s for one, later in itertools.pairwise(turns)]
        assert gaps == pytest.approx([5.0] * 3)


def test_a_turn_finds_all_that_was_said_before_in_a_prefix_cache() -> None:
    requests = first(chat(), 2_000)
    for turns in by_session(requests):
        for one, later in itertools.pairwise(turns):
            filled = one.input_tokens + one.output_tokens
            assert len(one.prefix) == filled // 16
            assert later.prefix[: len(one.prefix)] == one.prefix
    starts = [turns[0].prefix for turns in by_session(requests)]
    # 96 tokens of the system prompt are everybody's, what follows is one conversation's own.
    assert len({start[:6] for start in starts}) == 1
    own = [number for start in starts for number in start[6:]]
    assert len(own) == len(set(own)) and max(own) < 0


def test_a_conversation_ends_before_it_outgrows_its_cap() -> None:
    requests = first(chat(input_cap_tokens=250), 1_000)
    assert max(one.input_tokens for one in requests) == 210
    assert {one.turns for one in requests} == {2}


def test_conversations_beside_single_requests() -> None:
    kinds = [LIGHT, {"name": "chat", "input_tokens": 5, "conversation": {"turns": 2}}]
    requests = first(workload(arrivals=POISSON, kinds=kinds), 3_000)
    assert {one.session for one in requests if one.kind == "light"} == {""}
    assert all(one.session for one in requests if one.kind == "chat")


def test_a_closed_loop_has_requests_without_end() -> None:
    planned = workload(closed_loop={"users": 3, "think_s": 2.0}, kinds=[LIGHT])
    requests = first(planned, 10_000)
    assert {one.at_s for one in requests} == {0.0}
    assert planned.closed_loop is not None
    assert list(itertools.islice(planned.closed_loop.thinking_s(1), 3)) == [2.0] * 3


def trace(folder: Path) -> None:
    (folder / "t.jsonl").write_text(
        '{"timestamp": 0, "input_length": 5000, "output_length": 900, "hash_ids": [1, 2]}\n'
        '{"timestamp": 500, "input_length": 100, "output_length": 0}\n'
        '{"timestamp": 900, "input_length": 100, "output_length": 10, "hash_ids": [1]}\n'
    )


def test_a_replay_keeps_the_traces_requests(tmp_path: Path) -> None:
    trace(tmp_path)
    planned = workload(tmp_path, arrivals={"kind": "trace", "file": "t.jsonl"})
    one, other = planned.requests(1)
    assert (one.at_s, one.input_tokens, one.output_tokens) == (0, 5_000, 900)
    assert (one.kind, one.prefix, one.prefix_block_tokens) == ("trace", (1, 2), 512)
    assert (other.index, other.at_s) == (1, 0.9)


def test_kinds_sort_and_cap_what_is_replayed(tmp_path: Path) -> None:
    trace(tmp_path)
    planned = workload(
        tmp_path,
        arrivals={"kind": "trace", "file": "t.jsonl"},
        kinds=[
            {"name": "short", "deadline_s": 2, "disconnect": {"share": 1, "after_tokens": 3}},
            {
                "name": "long",
                "trace_min_tokens": 1_000,
                "output_cap_tokens": 500,
                "priority": "low",
            },
        ],
        tenants=[{"name": "a", "key": "k"}],
    )
    one, other = planned.requests(1)
    assert (one.kind, one.output_tokens, one.priority, one.key) == ("long", 500, "low", "k")
    assert (other.kind, other.deadline_s, other.disconnect_after_tokens) == ("short", 2, 3)


def test_a_trace_may_give_times_alone(tmp_path: Path) -> None:
    trace(tmp_path)
    planned = workload(
        tmp_path, arrivals={"kind": "trace", "file": "t.jsonl", "use": "times"}, kinds=[HEAVY]
    )
    assert [(one.at_s, one.input_tokens) for one in planned.requests(1)] == [
        (0, 8_000),
        (0.9, 8_000),
    ]


def test_names_in_the_request_log_choose_kinds_and_tenants(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"time":"2026-03-01T10:00:00Z","logger":"forebay.access","tenant":"vip","kind":"faq",'
        '"prompt_tokens":9,"completion_tokens":5,"deadline_ms":700}\n'
    )
    values: dict[str, Any] = {"arrivals": {"kind": "trace", "file": "log.jsonl"}}
    (plain,) = workload(tmp_path, **values).requests(1)
    assert (plain.kind, plain.tenant, plain.key, plain.deadline_s) == ("faq", "vip", "", 0.7)
    values["tenants"] = [{"name": "vip", "key": "secret", "priority": "high"}]
    values["kinds"] = [{"name": "rest"}, {"name": "faq", "deadline_s": 9}]
    (named,) = workload(tmp_path, **values).requests(1)
    assert (named.kind, named.key, named.priority, named.deadline_s) == (
        "faq", "secret", "high", 0.7,
    )  # fmt: skip


@pytest.mark.parametrize(
    "planned",
    [
        pytest.param(mix(), id="mix"),
        pytest.param(chat(), id="chat"),
    ],
)
def test_memory_does_not_grow(planned: Workload) -> None:
    requests = planned.requests(1)
    tracemalloc.start()
    try:
        for _ in itertools.islice(requests, 6_000):
            pass
        tracemalloc.reset_peak()
        early = tracemalloc.get_traced_memory()[0]
        for _ in itertools.islice(requests, 18_000):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < early + 6 * 2**20


def test_a_run_is_drawn_fast_enough_for_virtual_time() -> None:
    # Some 1,400,000 requests a second on an idle core; 200,000 are asked for.
    requests = mix().requests(1)
    start = time.process_time()
    for _ in itertools.islice(requests, 100_000):
        pass
    assert 100_000 / (time.process_time() - start) > 200_000
