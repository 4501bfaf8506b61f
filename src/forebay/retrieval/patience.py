"""How long a part works for one request, as against how long the process keeps it waiting.

A part is judged by its own work, from where that begins to where it ends, in the time that the
process kept: a loop that comes late to everything comes late to a part's result as well, and a
thread that waits for the interpreter has not been slow.

kept(t) = sum over the beats before t of min(what passed since the beat before, ``_MOST_S``)
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import PartFailed

_BEAT_S = 0.01
_MOST_S = 0.012
"""What a beat counts at most: a loop that is on time may still be two milliseconds late."""
_RESERVE = 0.5
"""Share of the time left that no single part may use up: the rungs below need some, too."""
_LATE = 8.0
"""So many time-outs on the clock are the end of patience with a process that is late itself."""
_LEAST_S = 1e-4


class KeptTime:
    """Seconds that pass while a process is on time; read from any thread, confined to one loop.

    It stands still while nobody runs it. ``now`` never exceeds what has passed on the clock.
    """

    __slots__ = ("_clock", "_holders", "_mark", "_timer")

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._holders = 0
        self._mark = (0.0, 0.0)
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def running(self, clock: Clock) -> Iterator[None]:
        """Let it run by ``clock`` while the block does."""
        self.start(clock)
        try:
            yield
        finally:
            self.stop()

    def start(self, clock: Clock) -> None:
        """Let it run; ``stop`` must follow."""
        self._holders += 1
        if self._holders == 1:
            self._clock = clock
            self._mark = (self._mark[0], clock.now())
            self._beat_after(_BEAT_S)

    def stop(self) -> None:
        """One holder less; the last lets it stand."""
        self._holders -= 1
        if not self._holders and self._timer is not None:
            self._timer.cancel()
            self._mark, self._clock = (self.now(), 0.0), None

    def now(self) -> float:
        """Seconds kept so far."""
        clock, (kept, at) = self._clock, self._mark
        return kept if clock is None else kept + min(_MOST_S, max(0.0, clock.now() - at))

    def _beat(self) -> None:
        if self._clock is not None:
            kept, at = self.now(), self._clock.now()
            passed_s, self._mark = at - self._mark[1], (kept, at)
            # As often as it is due: a loop whose turns are longer counts each of them.
            self._beat_after(max(0.0, 2 * _BEAT_S - passed_s))

    def _beat_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._beat)


class Trial:
    """One use of a part: ``async with`` it, ``begin`` and ``done`` where the part works.

    The block ends with ``TimeoutError`` when the part has worked for its time-out (``late``), when
    the process kept it waiting for too long, or when the client left too little time; ``failed``
    tells which.
    """

    def __init__(self, kept: KeptTime, ctx: RequestContext, timeout_ms: int) -> None:
        self._kept = kept
        self._clock = ctx.clock
        self._own_s = timeout_ms / 1000.0
        left_s = ctx.deadline.remaining() * _RESERVE
        self._hurried = left_s < self._own_s
        self._patience_s = min(left_s, _LATE * self._own_s)
        self._began_at = ctx.clock.now()
        self._worked: tuple[float, float | None] = (0.0, None)
        self._known: Callable[[], float] = _unknown
        self._cpu_at: float | None = None
        self._done = False
        self._given_up = False
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self.late = False

    @property
    def took_s(self) -> float:
        """Seconds that the part has worked so far."""
        took_s, since = self._worked
        return took_s if since is None else took_s + self._stretch_s(since)

    @property
    def waited_s(self) -> float:
        """Seconds since this began."""
        return self._clock.now() - self._began_at

    @property
    def is_done(self) -> bool:
        """Whether the part has done what it had to."""
        return self._done

    def failed(self, part: str) -> PartFailed:
        """What to tell when the block ended before the part did."""
        busy = self._given_up and not self.late and not self._hurried
        return PartFailed(
            part,
            f"{part}_load" if busy else f"{part}_timeout",
            late_s=self.waited_s,
            at_fault=self.late or not self._given_up,
            busy=busy,
        )

    def begin(self, known_s: Callable[[], float] | None = None, *, here: bool = False) -> None:
        """The part works from now on; ``known_s``: at most so long, as it knows itself.

        ``here``: in this thread, so that it worked at least as long as the thread used its CPU.
        """
        self._known = known_s or _unknown
        self._cpu_at = time.thread_time() if here else None
        self._worked = (self._worked[0], self._kept.now())

    def pause(self, known_s: float | None = None) -> None:
        """It waits for its turn; ``known_s``: it worked no longer than that."""
        took_s, since = self._worked
        if since is not None:
            known_s = math.inf if known_s is None else known_s
            cpu_s = 0.0 if self._cpu_at is None else time.thread_time() - self._cpu_at
            stretch_s = max(cpu_s, min(self._kept.now() - since, known_s))
            self._worked = (took_s + stretch_s, None)

    def done(self) -> None:
        """It has done what it had to: no time-out ends the block any more."""
        self.pause()
        self._done = True

    async def __aenter__(self) -> Trial:
        self._kept.start(self._clock)
        await self._scope.__aenter__()
        self._look()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._kept.stop()
        await self._scope.__aexit__(kind, error, trace)

    def _stretch_s(self, since: float) -> float:
        return min(self._kept.now() - since, self._known())

    def _look(self) -> None:
        """Give the part up when it is time; else look again when it may be."""
        if self._done:
            return
        own_s = self._own_s - self.took_s
        left_s = min(own_s, self._patience_s - self.waited_s)
        loop = asyncio.get_running_loop()
        if left_s > _LEAST_S:
            self._timer = loop.call_later(left_s, self._look)
            return
        self._given_up, self.late = True, own_s <= _LEAST_S
        self._scope.reschedule(loop.time())


def _unknown() -> float:
    return math.inf
