"""Single flight: equal calls that come while one is under way wait for it.

The work belongs to the registry, not to whoever asked first: it goes on while anybody waits and
ends when nobody does. Everyone waits by their own deadline. What went wrong for reasons of the
first caller's own (its deadline, its quota, a cancellation of its own) is not given to the others:
one of them begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from forebay.kernel.clock import Deadline
from forebay.kernel.errors import DeadlineExceeded, RateLimited, Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OWN_ERRORS: tuple[type[BaseException], ...] = (DeadlineExceeded, TimeoutError, RateLimited)
"""Errors that say something of the caller for whom the work was done, and not of the work."""
MOST_FLIGHTS = 10_000
CLOSE_S = 5.0


class _Flight(Generic[V]):
    """Work under way and how many wait for it."""

    __slots__ = ("lingers", "task", "waiting")

    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0
        self.lingers = False


class Flights(Generic[K, V]):
    """The calls under way of one kind; confined to one event loop.

    Beyond ``most`` of them a call is made for its caller alone. Up to ``linger`` that nobody waits
    for any more go on, because their value will be asked for again; what they do must be bounded.
    """

    def __init__(self, most: int = MOST_FLIGHTS, linger: int = 0) -> None:
        self._most = most
        self._linger = linger
        self._lingering = 0
        self._flights: dict[K, _Flight[V]] = {}
        self._tasks: set[asyncio.Task[V]] = set()
        self._closed = False
        self.made = 0
        self.joined = 0

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    def __len__(self) -> int:
        return len(self._flights)

    def statistics(self) -> dict[str, int]:
        """Calls under way, calls made, and calls that found one under way."""
        return {"under_way": len(self._flights), "made": self.made, "joined": self.joined}

    async def run(
        self, key: K, deadline: Deadline, make: Callable[[], Awaitable[V]]
    ) -> tuple[V, bool]:
        """Return the value, and whether it was made for this caller.

        Raises what ``make`` raised, ``DeadlineExceeded`` when ``deadline`` comes first, and
        ``Unavailable`` when the work was cancelled from within or the registry is closed.
        """
        while True:
            self._admit(deadline)
            flight = self._flights.get(key)
            leads = flight is None
            if flight is None:
                self.made += 1
                if len(self._flights) >= self._most:
                    return await _alone(deadline, make), True
                flight = self._begin(key, make)
            else:
                self.joined += 1
            await self._wait(key, flight, deadline)
            if leads and flight.task.cancelled() and not self._closed:
                # Nobody cancelled this caller, so it must not look as if somebody had.
                raise Unavailable("the work was called off.")
            if leads or self._closed or not _own(flight.task):
                return flight.task.result(), leads
            # The first caller's own trouble: this one may make it.

    def _admit(self, deadline: Deadline) -> None:
        if self._closed:
            raise Unavailable("the server is stopping.")
        if deadline.expired():
            raise _too_late()

    def _begin(self, key: K, make: Callable[[], Awaitable[V]]) -> _Flight[V]:
        async def work() -> V:
            return await make()

        flight = _Flight(asyncio.get_running_loop().create_task(work()))
        self._flights[key] = flight
        self._tasks.add(flight.task)
        flight.task.add_done_callback(lambda _: self._landed(key, flight))
        flight.task.add_done_callback(self._ended)
        return flight

    def _ended(self, task: asyncio.Task[V]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # one that nobody waits for any more is no news

    async def _wait(self, key: K, flight: _Flight[V], deadline: Deadline) -> None:
        flight.waiting += 1
        try:
            await asyncio.wait((flight.task,), timeout=deadline.remaining())
        finally:
            flight.waiting -= 1
            abandoned = not flight.waiting and not flight.task.done()
            if abandoned and not self._lingers(flight):
                # Who comes now must not join what is about to end.
                self._landed(key, flight)
                flight.task.cancel()
        if not flight.task.done():
            raise _too_late()

    def _lingers(self, flight: _Flight[V]) -> bool:
        """Whether work that nobody waits for any more goes on."""
        if flight.lingers:
            return True
        if self._lingering >= self._linger:
            return False
        flight.lingers = True
        self._lingering += 1
        flight.task.add_done_callback(self._lingered)
        return True

    def _lingered(self, _task: asyncio.Task[V]) -> None:
        self._lingering -= 1

    def _landed(self, key: K, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def close(self) -> None:
        """End what is under way; whoever waits for it is cancelled with it."""
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            if not task.cancelling():  # a second time would cut its cleaning up short
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)


async def _alone(deadline: Deadline, make: Callable[[], Awaitable[V]]) -> V:
    try:
        async with asyncio.timeout(deadline.remaining()) as scope:
            return await make()
    except TimeoutError:
        if scope.expired():
            raise _too_late() from None
        raise


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the request's deadline passed before the work was done.")


def _own(task: asyncio.Task[V]) -> bool:
    """Whether the work failed for reasons of the caller who led it."""
    return task.cancelled() or isinstance(task.exception(), OWN_ERRORS)
