"""Short slices for one thread only, and what lives long out of the collector's sight."""

from __future__ import annotations

import asyncio
import gc
import platform
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import pytest
import uvloop

from forebay.app import latency
from forebay.folding import variants
from forebay.generation.lexicon import lexicon

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """Run in a thread of its own, so that this process's main thread stays as it is."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_the_thread_that_asks_gets_short_slices_and_those_it_starts_do_not() -> None:
    def work() -> tuple[bool, int, int]:
        return latency.wake_promptly(), latency.slice_ns(), in_thread(latency.slice_ns)

    before = latency.slice_ns()
    granted, mine, child = in_thread(work)
    if not granted:
        pytest.skip("this system grants no slices")
    assert mine == latency.SLICE_NS
    assert child == before
    assert latency.slice_ns() == before


def test_a_system_that_does_not_know_slices_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not latency.wake_promptly()
    assert latency.slice_ns() == 0
    monkeypatch.undo()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not latency.wake_promptly()
    monkeypatch.undo()
    # Numbers of calls that no kernel has: as in a sandbox that refuses them.
    monkeypatch.setattr(latency, "_CALLS", dict.fromkeys(("x86_64", "aarch64"), (9_999, 9_999)))
    assert not latency.wake_promptly()


def test_settled_memory_is_out_of_the_collectors_sight() -> None:
    kept: list[dict[str, int]] = [{} for _ in range(1000)]
    try:
        latency.settle_memory()
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()


def test_a_loop_that_lists_no_generators_still_closes_a_lost_one() -> None:
    closed: list[str] = []

    async def letters() -> AsyncGenerator[str, None]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append("closed")

    async def work() -> str:
        lost = letters()
        first = await anext(lost)
        del lost
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return first

    before = sys.get_asyncgen_hooks()
    assert uvloop.run(latency.unlisted(work())) == "a"
    assert closed == ["closed"] and sys.get_asyncgen_hooks() == before


def test_tables_are_read_before_somebody_asks() -> None:
    latency.load_tables()
    tables = (variants._table, lexicon)
    before = [one.cache_info().misses for one in tables]
    assert variants.simplified("後") == "后"
    lexicon()
    assert [one.cache_info().misses for one in tables] == before
