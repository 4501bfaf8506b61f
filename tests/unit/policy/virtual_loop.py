"""An event loop whose time moves only when nothing else is left to do: hours in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from forebay.kernel.clock import VirtualClock

T = TypeVar("T")
P = ParamSpec("P")


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock; nothing outside ever happens."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits for something that will never come")
        if timeout > 0:
            self._clock.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """``clock`` is the loop's own time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(_Selector(self.clock))

    def time(self) -> float:
        return self.clock.now()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on a loop of its own, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, in virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run


class LoopClock:
    """The time of whatever loop runs; nothing, as on a new virtual one, before it does."""

    def now(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0


def virtual_clock() -> VirtualClock:
    """The clock of the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.clock
