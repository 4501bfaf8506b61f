"""When requests are sent: by the schedule whatever happened before, or by users who wait.

Open loop: an arrival does not wait for answers, so a server that stalls is charged for all that
was meant to start meanwhile. Closed loop: each user waits for the answer, thinks, asks again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from forebay.lab.bench.desk import Desk
from forebay.lab.workload.plan import ClosedLoop as Users
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Sessions

_LOOKAHEAD = 64
_SPARE_S = 0.002
"""Requests ahead are written only while the next send is at least this far away."""
_AT_ONCE = 64
"""Sends before answers get their turn, when the generator is behind."""
_SPREAD_S = 1.0


class Loop(Protocol):
    """One way to offer the load."""

    async def run(self) -> None:
        """Return when the last request has ended."""
        ...

    def stop(self) -> None:
        """Send nothing more; those under way still end."""
        ...


class _Guarded:
    """A future that ends the run, and callbacks whose errors end it too."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()

    def guard(self, step: Callable[[], None]) -> None:
        if self.over.done():
            return
        try:
            step()
        except Exception as error:  # a callback has no caller: ``run`` raises whatever it is
            self.over.set_exception(error)


class OpenLoop:
    """Sends each request at its time; later turns of a session when their answer is there."""

    def __init__(self, desk: Desk, requests: Iterator[PlannedRequest]) -> None:
        self._desk = desk
        desk.ended = self._ended
        self._requests = requests
        self._more = True
        self._stopped = False
        self._ahead: deque[tuple[PlannedRequest, bytes | None]] = deque()
        self._turns: list[tuple[float, int, PlannedRequest]] = []
        self._order = itertools.count()
        self._sessions = Sessions()
        self._under_way = 0
        self._guarded = _Guarded()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        self._tick()
        try:
            await self._guarded.over
        finally:
            self._cancel_timer()

    def stop(self) -> None:
        self._stopped = True
        self._more = False
        self._ahead.clear()
        self._turns.clear()
        self._tick()

    def _tick(self) -> None:
        self._guarded.guard(self._send_due)

    def _send_due(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._ahead:
                self._look_ahead()
            if not self._send_next(self._desk.now_s()):
                break
        while len(self._ahead) < _LOOKAHEAD and self._more and self._spare_s() > _SPARE_S:
            self._look_ahead()
        self._wait()

    def _send_next(self, now_s: float) -> bool:
        """Send the earliest request if it is due."""
        if self._turns and self._turns[0][0] <= now_s:
            at_s, _, planned = heapq.heappop(self._turns)
            self._send(planned, at_s, None)
            return True
        if not self._ahead or self._ahead[0][0].at_s > now_s:
            return False
        planned, payload = self._ahead.popleft()
        start_s = self._sessions.offer(planned)
        if start_s is not None and start_s <= now_s:
            self._send(planned, start_s, payload)
        elif start_s is not None:
            self._push(planned, start_s)
        return True

    def _send(self, planned: PlannedRequest, at_s: float, payload: bytes | None) -> None:
        self._under_way += 1
        self._desk.send(planned, at_s, payload)

    def _ended(self, planned: PlannedRequest, at_s: float) -> None:
        self._under_way -= 1
        following = self._sessions.answered(planned, at_s)
        if following is not None and not self._stopped:
            self._push(*following)
            self._tick()
        elif not self._more and not self._under_way:
            self._tick()

    def _push(self, planned: PlannedRequest, at_s: float) -> None:
        heapq.heappush(self._turns, (at_s, next(self._order), planned))

    def _look_ahead(self) -> None:
        """Draw the next request, and write it unless it says what answers have yet to say."""
        planned = next(self._requests, None) if self._more else None
        if planned is None:
            self._more = False
            return
        self._ahead.append((planned, None if planned.turn else self._desk.prepare(planned)))

    def _next_at_s(self) -> float:
        first = self._turns[0][0] if self._turns else math.inf
        return min(first, self._ahead[0][0].at_s) if self._ahead else first

    def _spare_s(self) -> float:
        return self._next_at_s() - self._desk.now_s()

    def _wait(self) -> None:
        self._cancel_timer()
        spare_s = self._spare_s()
        if math.isfinite(spare_s):
            # Whole milliseconds, up: the loop's timers have no finer ones, and none is early.
            delay_s = max(0, math.ceil(spare_s * 1000)) / 1000
            self._timer = self._guarded.loop.call_later(delay_s, self._tick)
        elif not self._under_way and not self._guarded.over.done():
            self._guarded.over.set_result(None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ClosedLoop:
    """``users`` who ask, wait, think and ask again until the time or the questions are over.

    A user's next question is meant to start when its thinking ends. The first ones are spread
    over a second, for users do not arrive in step.
    """

    def __init__(
        self,
        desk: Desk,
        requests: Iterator[PlannedRequest],
        closed_loop: Users,
        thinking_s: Iterator[float],
    ) -> None:
        self._desk = desk
        desk.ended = self._ended
        self._requests = requests
        self._users = closed_loop.users
        self._until_s = math.inf if closed_loop.duration_s is None else closed_loop.duration_s
        self._thinking_s = thinking_s
        self._working = 0
        self._thinking: dict[int, asyncio.TimerHandle] = {}
        self._order = itertools.count()
        self._stopped = False
        self._guarded = _Guarded()

    async def run(self) -> None:
        spread_s = min(_SPREAD_S, self._until_s / 10)
        for number in range(self._users):
            self._working += 1
            self._later(number / self._users * spread_s)
        await self._guarded.over

    def stop(self) -> None:
        self._stopped = True
        for user in tuple(self._thinking):
            self._thinking.pop(user).cancel()
            self._leave()

    def _later(self, at_s: float) -> None:
        """A user asks at ``at_s``, or leaves when that is too late."""
        if at_s >= self._until_s or self._stopped:
            self._leave()
            return
        delay_s = max(0, math.ceil((at_s - self._desk.now_s()) * 1000)) / 1000
        user = next(self._order)
        self._thinking[user] = self._guarded.loop.call_later(
            delay_s, self._guarded.guard, partial(self._ask, user, at_s)
        )

    def _ask(self, user: int, at_s: float) -> None:
        del self._thinking[user]
        planned = None if self._stopped else next(self._requests, None)
        if planned is None:
            self._leave()
        else:
            self._desk.send(planned, at_s)

    def _ended(self, planned: PlannedRequest, at_s: float) -> None:
        self._guarded.guard(partial(self._think, at_s))

    def _think(self, at_s: float) -> None:
        self._later(at_s + next(self._thinking_s))

    def _leave(self) -> None:
        self._working -= 1
        if not self._working and not self._guarded.over.done():
            self._guarded.over.set_result(None)
