"""The threads that search: they take work of the request that began first.

A question comes several times: for words, for vectors, to be ordered anew. In order of arrival each
time it would stand behind the beginnings of all younger ones, and all would end late together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Lock
from typing import Any, ParamSpec, TypeVar

import faiss

from forebay.kernel.turns import Turn

P = ParamSpec("P")
T = TypeVar("T")
_Waiting = tuple[float, int, Future[Any], Callable[[], Any]]


class OldestFirst(ThreadPoolExecutor):
    """Runs each ``Turn`` before those of younger requests; FAISS's own threads are switched off.

    What is no ``Turn`` counts as being as young as the youngest request yet.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "search", faiss.omp_set_num_threads, (1,))
        self._waiting: list[_Waiting] = []
        self._numbers = count()
        self._youngest = 0.0
        self._changing = Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See ``Executor``."""
        future: Future[T] = Future()
        with self._changing:
            since = fn.since if isinstance(fn, Turn) else self._youngest
            self._youngest = max(self._youngest, since)
            job: _Waiting = (since, next(self._numbers), future, partial(fn, *args, **kwargs))
            # A thread that is free at once waits for the lock.
            super().submit(self._next)
            heapq.heappush(self._waiting, job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ``Executor``."""
        if cancel_futures:
            with self._changing:
                dropped, self._waiting = self._waiting, []
                for _, _, future, _ in dropped:
                    future.cancel()
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _next(self) -> None:
        with self._changing:
            if not self._waiting:
                return
            _, _, future, work = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            # Whatever went wrong belongs to the caller who waits, not to this thread.
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            # The error's traceback keeps this frame.
            del future
