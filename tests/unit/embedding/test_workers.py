"""The worker pool: urgent first, bounded, nothing runs that was cancelled."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager

import pytest

from forebay.embedding.workers import CALM_S, SHARE, PassagePace, WorkerPool, WorkerSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import Overloaded, Unavailable

_WAIT_S = 5


class Gate:
    """Work that records its item and holds until opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Event()
        self.ran: list[str] = []

    def __call__(self, item: str) -> str:
        self.ran.append(item)
        self.begun.set()
        assert self.open.wait(_WAIT_S)
        if item == "fail":
            raise ValueError(item)
        return item.upper()


@contextmanager
def blocked(
    settings: WorkerSettings,
) -> Iterator[tuple[WorkerPool[str, str], Gate, Future[str]]]:
    """A pool whose one thread is in the middle of the job ``first``."""
    gate = Gate()
    pool = WorkerPool(gate, settings, SystemClock(), name="test")
    first = pool.submit("first", urgent=False)
    assert gate.begun.wait(_WAIT_S)
    try:
        yield pool, gate, first
    finally:
        gate.open.set()
        pool.close()


def test_queries_overtake_passages_and_keep_their_own_order() -> None:
    with blocked(WorkerSettings(workers=1, query_workers=0)) as (pool, gate, _):
        jobs = [pool.submit(name, urgent=False) for name in ("p1", "p2")]
        jobs += [pool.submit(name, urgent=True) for name in ("q1", "q2")]
        gate.open.set()
        assert [job.result(_WAIT_S) for job in jobs] == ["P1", "P2", "Q1", "Q2"]
    assert gate.ran == ["first", "q1", "q2", "p1", "p2"]


def test_each_lane_is_bounded_alone() -> None:
    settings = WorkerSettings(
        workers=1, query_workers=0, max_waiting_queries=1, max_waiting_passages=2
    )
    with blocked(settings) as (pool, _, _):
        pool.submit("p1", urgent=False)
        pool.submit("p2", urgent=False)
        with pytest.raises(Overloaded) as refused:
            pool.submit("p3", urgent=False)
        assert refused.value.retry_after_s >= 1
        pool.submit("q1", urgent=True)
        with pytest.raises(Overloaded):
            pool.submit("q2", urgent=True)


def test_a_cancelled_job_frees_its_place_and_never_runs() -> None:
    settings = WorkerSettings(workers=1, query_workers=0, max_waiting_passages=1)
    with blocked(settings) as (pool, gate, _):
        assert pool.submit("dropped", urgent=False).cancel()
        assert pool.statistics().waiting == 0
        kept = pool.submit("kept", urgent=False)
        gate.open.set()
        assert kept.result(_WAIT_S) == "KEPT"
    assert "dropped" not in gate.ran


def test_a_failure_reaches_its_caller_and_the_thread_lives_on() -> None:
    with blocked(WorkerSettings(workers=1, query_workers=0)) as (pool, gate, first):
        failing, after = pool.submit("fail", urgent=False), pool.submit("after", urgent=False)
        gate.open.set()
        assert first.result(_WAIT_S) == "FIRST"
        with pytest.raises(ValueError, match="fail"):
            failing.result(_WAIT_S)
        assert after.result(_WAIT_S) == "AFTER"


def test_close_refuses_what_waits_and_finishes_what_runs() -> None:
    with blocked(WorkerSettings(workers=1, query_workers=0)) as (pool, gate, first):
        waiting = pool.submit("waiting", urgent=True)
        gone = pool.submit("gone", urgent=False)
        gone.cancel()
        gate.open.set()
        pool.close()
        assert first.result(0) == "FIRST"
        assert waiting.done()
        with pytest.raises((Unavailable, CancelledError)):
            gone.result(0)
        with pytest.raises(Unavailable):
            pool.submit("late", urgent=True)


def test_statistics_and_thread_preparation() -> None:
    prepared: list[str] = []
    pool = WorkerPool(
        str.upper,
        WorkerSettings(workers=1),
        SystemClock(),
        name="prep",
        prepare=lambda: prepared.append(threading.current_thread().name),
    )
    assert [pool.submit(text, urgent=False).result(_WAIT_S) for text in "ab"] == ["A", "B"]
    pool.close()
    seen = pool.statistics()
    assert (seen.workers, seen.done, seen.running, seen.waiting) == (2, 2, 0, 0)
    assert sorted(prepared) == ["prep-0", "prep-1"]


def test_a_query_thread_takes_queries_only() -> None:
    with blocked(WorkerSettings(workers=1, query_workers=1)) as (pool, gate, first):
        passage = pool.submit("passage", urgent=False)
        gate.begun.clear()
        query = pool.submit("query", urgent=True)
        assert gate.begun.wait(_WAIT_S)
        assert gate.ran == ["first", "query"]
        assert not passage.running()
        gate.open.set()
        assert [job.result(_WAIT_S) for job in (first, query)] == ["FIRST", "QUERY"]


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is per thread on Linux only")
def test_passage_threads_step_back() -> None:
    found: dict[str, int] = {}

    def note() -> None:
        here = threading.current_thread().name
        found[here] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    settings = WorkerSettings(workers=1, query_workers=1, passage_niceness=3)
    pool = WorkerPool(str.upper, settings, SystemClock(), name="nice", prepare=note)
    pool.close()
    base = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert found == {"nice-0": min(19, base + 3), "nice-1": base}


def test_while_queries_come_one_passage_runs_at_a_time_and_rests() -> None:
    pace, now = PassagePace(2), 10.0
    assert pace.rest_s(now) == 0  # nobody asks
    pace.began()
    assert pace.rest_s(now) == 0  # another beside it
    pace.asked(now)
    assert pace.rest_s(now) == CALM_S
    pace.ended(0.1, now + 0.1)
    assert pace.rest_s(now + 0.1) == pytest.approx(3 * 0.1)
    assert pace.rest_s(now + 0.2 + 3 * 0.1) <= 0
    pace.began()
    assert pace.rest_s(now + 0.6) == pytest.approx(CALM_S - 0.6)
    pace.ended(9.0, now + 0.7)
    assert pace.rest_s(now + CALM_S) == 0  # a long run is no reason to rest when nobody asks


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 16, 32])
def test_passages_take_an_eighth_of_the_machine_beside_queries(cores: int) -> None:
    pace, now, worked_s = PassagePace(cores), 0.0, 0.0
    ends: list[float] = []
    while now < 60.0:
        pace.asked(now)
        if pace.rest_s(now) <= 0:
            pace.began()
            ends.append(now + 0.08)
        elif ends and ends[0] - now <= pace.rest_s(now):
            now = ends.pop(0)
            worked_s += 0.08
            pace.ended(0.08, now)
        else:
            now += pace.rest_s(now)
    assert worked_s / now == pytest.approx(SHARE * cores, rel=0.03)


def test_passages_beside_queries_all_end() -> None:
    pool = WorkerPool(
        str.upper, WorkerSettings(workers=2, query_workers=1), SystemClock(), name="t"
    )
    jobs = [pool.submit(f"{at}", urgent=at % 3 == 0) for at in range(60)]
    pool.asked()
    assert [job.result(_WAIT_S) for job in jobs] == [f"{at}" for at in range(60)]
    pool.close()
    assert pool.statistics().running == 0
