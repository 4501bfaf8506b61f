"""Text around hits is read beside the loop, and not beyond the request's deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from forebay.app.runtime import Reading
from forebay.app.widening import open_widening
from forebay.context import ContextSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import DeadlineExceeded
from forebay.testing.index_feed import MemoryIndexFeed


class Threads:
    """A pool that may hang."""

    def __init__(self, *, hangs: bool) -> None:
        self._hangs = hangs
        self.ran_in: list[threading.Thread] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        if self._hangs:
            await asyncio.Event().wait()

        def noted() -> Any:
            self.ran_in.append(threading.current_thread())
            return work()

        return await asyncio.to_thread(noted)


class Record(MemoryIndexFeed):
    def document(self, kb: str, document_id: str) -> Any:
        return type("Info", (), {"characters": 1})

    def document_text(self, kb: str, document_id: str) -> str:
        raise AssertionError("a hit alone needs no document")


def opened(threads: Threads, record: Record, tokens: int) -> Any:
    reading = type("Reading", (), {"threads": threads, "reader": record})
    return open_widening(cast(Reading, reading), ContextSettings(surrounding_tokens=tokens))


def context(seconds: float) -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="r",
        principal=Principal(),
        deadline=Deadline.after(seconds, clock),
        clock=clock,
    )


def hits(record: Record) -> Sequence[Any]:
    [chunk_id] = record.add("A pump.")
    [row] = record.rows("kb", [chunk_id])
    return (Hit(row, 1.0),)


def test_no_tokens_no_reading() -> None:
    assert opened(Threads(hangs=False), Record(4), 0) is None


async def test_passages_are_read_beside_the_loop() -> None:
    threads, record = Threads(hangs=False), Record(4)
    found = hits(record)
    assert await opened(threads, record, 9).widen(context(5), "kb", found) == found
    assert threads.ran_in and threads.ran_in[0] is not threading.main_thread()


async def test_the_deadline_ends_the_wait() -> None:
    record = Record(4)
    with pytest.raises(DeadlineExceeded):
        await opened(Threads(hangs=True), record, 9).widen(context(0.01), "kb", hits(record))
