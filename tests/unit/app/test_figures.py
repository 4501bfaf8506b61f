"""Figures of a writer and its workers, over the folder's socket."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay.app import figures as module
from forebay.app.figures import Collected, FiguresOfAll, FiguresOfWorker, Shown
from forebay.kernel.clock import SystemClock
from forebay.store.remote import WriterServer
from forebay.telemetry.metrics import Metrics

WORKER = 4_000_001


def counted(requests: int) -> Metrics:
    metrics = Metrics()
    metrics.watch_in_flight(lambda: requests, 10)
    for _ in range(requests):
        metrics.shed("full")
    return metrics


def value(page: bytes, name: str) -> float:
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels in ({}, {"reason": "full"}):
                return float(sample.value)
    raise AssertionError(name)


@pytest.fixture
def everyone(monkeypatch: pytest.MonkeyPatch) -> FiguresOfAll:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    everyone = FiguresOfAll(100)
    everyone.over(counted(1))
    return everyone


async def test_a_worker_that_answers_is_added(everyone: FiguresOfAll) -> None:
    asked: list[int] = []

    def ask(process: int) -> None:
        asked.append(process)
        everyone.take(Shown(process, counted(len(asked)).page()))

    everyone.ask = ask
    everyone.started(WORKER)
    assert value(await everyone.page(), "forebay_shed_total") == 2
    page = await everyone.page()
    assert asked == [WORKER, WORKER]
    assert value(page, "forebay_shed_total") == 3
    assert value(page, "forebay_requests_in_flight") == 3
    assert value(page, "forebay_metrics_missing_processes") == 0


async def test_counters_of_silent_and_ended_workers_never_fall(everyone: FiguresOfAll) -> None:
    asked: list[int] = []
    everyone.ask = asked.append
    everyone.started(WORKER)
    page = await everyone.page()
    assert value(page, "forebay_shed_total") == 1
    assert value(page, "forebay_metrics_missing_processes") == 1
    everyone.take(Shown(WORKER, counted(4).page()))
    page = await everyone.page()
    assert (value(page, "forebay_shed_total"), asked) == (5, [WORKER, WORKER])
    assert value(page, "forebay_requests_in_flight") == 1
    await everyone.page()
    assert asked == [WORKER, WORKER], "a worker that stands still is not asked again and again"
    everyone.ended(WORKER)
    everyone.take(Shown(WORKER, counted(9).page()))
    page = await everyone.page()
    assert value(page, "forebay_shed_total") == 5
    assert value(page, "forebay_metrics_missing_processes") == 0
    everyone.started(WORKER + 1)
    everyone.take(Shown(WORKER + 1, counted(2).page()))
    everyone.ended(WORKER + 1)
    assert value(await everyone.page(), "forebay_shed_total") == 7


async def test_a_worker_that_ends_while_it_is_asked_is_not_waited_for(
    everyone: FiguresOfAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 30.0)
    everyone.started(WORKER)

    def ask(process: int) -> None:
        asyncio.get_running_loop().call_soon(everyone.ended, process)

    everyone.ask = ask
    async with asyncio.timeout(5):
        await everyone.page()


@pytest.fixture
async def folder(everyone: FiguresOfAll) -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        server = WriterServer(Path(place), everyone.handlers())
        await server.start()
        yield Path(place)
        await server.close()


async def test_a_worker_shows_its_figures_and_answers_for_all(
    everyone: FiguresOfAll, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 5.0)
    worker = FiguresOfWorker(folder, SystemClock())
    page = worker.over(counted(2))
    everyone.started(os.getpid())
    everyone.over(Metrics())
    async with asyncio.TaskGroup() as group:

        def ask(_process: int) -> None:
            group.create_task(worker.show())

        everyone.ask = ask
        collected = await everyone.collect()
        # Writer and worker are one process here: the worker's page took the writer's place.
        assert list(collected.answered) == [os.getpid()]
        assert value(await page(), "forebay_shed_total") == 2


async def test_without_the_writer_a_worker_shows_its_own_and_what_others_counted(
    tmp_path: Path,
) -> None:
    worker = FiguresOfWorker(tmp_path, SystemClock())
    page = worker.over(counted(2))
    alone = await page()
    assert value(alone, "forebay_shed_total") == 2
    assert value(alone, "forebay_metrics_missing_processes") == 1
    worker._seen = Collected(
        {os.getpid(): counted(1).page(), 1: counted(3).page()}, {2: counted(4).page()}, 1
    )
    alone = await page()
    assert value(alone, "forebay_shed_total") == 9
    assert value(alone, "forebay_requests_in_flight") == 2
    assert value(alone, "forebay_metrics_missing_processes") == 2


def test_what_crosses_the_socket_comes_back_as_it_was() -> None:
    collected = Collected({1: counted(1).page()}, {}, 1, counted(2).page())
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(collected))
    assert msgspec.convert(plain, Collected, str_keys=True) == collected
