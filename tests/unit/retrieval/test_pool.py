"""The search threads take the oldest request's work, and end what they are handed."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from threading import Event

import pytest

from forebay.kernel.turns import Turn
from forebay.retrieval.pool import OldestFirst


class Held:
    """A pool of one thread that is busy until the block ends."""

    def __init__(self) -> None:
        self.pool = OldestFirst(1)
        self._go, began = Event(), Event()

        def hold() -> None:
            began.set()
            self._go.wait(30)

        self.pool.submit(hold)
        assert began.wait(30)

    def __enter__(self) -> OldestFirst:
        return self.pool

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self.pool.shutdown()


def test_the_oldest_request_goes_first_and_what_tells_no_age_is_the_youngest() -> None:
    done: list[object] = []
    with Held() as pool:
        pool.submit(Turn(3.0, lambda: done.append(3)))
        pool.submit(done.append, "plain")
        pool.submit(Turn(5.0, lambda: done.append(5)))
        pool.submit(Turn(1.0, lambda: done.append("1a")))
        pool.submit(Turn(1.0, lambda: done.append("1b")))
    assert done == ["1a", "1b", 3, "plain", 5]


def test_results_errors_and_cancelling() -> None:
    with Held() as pool:
        given_up = pool.submit(Turn(0.0, lambda: 1))
        assert given_up.cancel()
        good, bad = pool.submit(max, 1, 2), pool.submit(Turn(0.0, lambda: 1 // 0))
    assert good.result() == 2
    with pytest.raises(ZeroDivisionError):
        bad.result()


def test_what_waits_at_the_end_is_dropped_or_done() -> None:
    held = Held()
    with held as pool:
        waits: Future[int] = pool.submit(Turn(1.0, lambda: 7))
    assert waits.result(0) == 7
    with pytest.raises(RuntimeError, match="shutdown"):
        held.pool.submit(Turn(1.0, lambda: 7))
    held = Held()
    with held as pool:
        waits = pool.submit(Turn(1.0, lambda: 7))
        pool.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waits.result(0)
