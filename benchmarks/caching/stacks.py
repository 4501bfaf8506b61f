"""Looks at what another thread is doing, so that the process survives it.

    python benchmarks/caching/stacks.py [--collecting] [--seconds 6]

Asks a thread for the stack of another whose functions and coroutines end all the time, in a process
whose garbage runs Python code when it is collected. ``--collecting`` leaves the collector on while
it looks: CPython 3.11 then hands out what are no frames, or dies. Prints a line if it ends well.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

MOST_DEEP = 24
COLLECT_EVERY = 40
"""Allocations between collections: some of the frames of a look come to be the last of them."""
GIVES_AWAY_S = 0.0003
LOOK_S = 0.0001


def files(thread: int) -> list[str]:
    """Source files on the stack of a thread, innermost first; none if it has ended.

    A frame's object is made when it is first asked for. Before Python 3.12 that allocation may
    collect garbage, whose finalisers and callbacks let other threads run: the frame has ended when
    its object is filled in, and what is read of it is memory that belongs to others by then. So
    nothing may be collected meanwhile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _files(thread)
    finally:
        if collects:
            gc.enable()


def _files(thread: int) -> list[str]:
    found: list[str] = []
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the only way
    while frame is not None:
        found.append(frame.f_code.co_filename)
        frame = frame.f_back
    return found


class _Cycle:
    """Garbage that only the collector finds, and whose end lets other threads run."""

    def __init__(self, looker: int) -> None:
        self._looker = looker
        self._own = self

    def __del__(self) -> None:
        if threading.get_ident() == self._looker:
            time.sleep(GIVES_AWAY_S)


class _Looker(threading.Thread):
    """Looks at another thread's stack all the time."""

    def __init__(self, look: Callable[[int], list[str]], thread: int) -> None:
        super().__init__(daemon=True)
        self._look = look
        self._thread = thread
        self.looks = 0
        self.no_frames = 0

    def run(self) -> None:
        """Never ends."""
        while True:
            _Cycle(threading.get_ident())
            try:
                self._look(self._thread)
            except AttributeError:
                self.no_frames += 1
            self.looks += 1
            time.sleep(LOOK_S)


def _callables() -> tuple[list[Callable[..., int]], list[Callable[..., Coroutine[Any, Any, int]]]]:
    """Functions and coroutines of as many sizes of frame, which call each other."""
    names: dict[str, Any] = {}
    sizes = range(1, MOST_DEEP + 1)
    for size in sizes:
        locals_ = "".join(f"v{i}, " for i in range(size))
        values = "".join(f"[depth, {i}], " for i in range(size))
        exec(
            f"def plain{size}(depth, others, chance):\n"
            f"    {locals_} = {values}\n"
            "    return depth and v0[0] + chance.choice(others)(depth - 1, others, chance)\n"
            f"async def awaited{size}(depth, others, chance):\n"
            f"    {locals_} = {values}\n"
            "    return depth and v0[0] + await chance.choice(others)(depth - 1, others, chance)\n",
            names,
        )
    return [names[f"plain{i}"] for i in sizes], [names[f"awaited{i}"] for i in sizes]


def main() -> None:
    """Be looked at for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collecting", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    faulthandler.enable()
    looker = _Looker(_files if options.collecting else files, threading.get_ident())
    plain, awaited = _callables()
    chance = random.Random(options.seed)
    gc.set_threshold(COLLECT_EVERY, 5, 5)
    looker.start()
    calls = 0
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        calls += 1
        chance.choice(plain)(chance.randrange(MOST_DEEP), plain, chance)
        try:
            chance.choice(awaited)(chance.randrange(MOST_DEEP), awaited, chance).send(None)
        except StopIteration:
            continue
    print(json.dumps({"calls": calls, "looks": looker.looks, "no_frames": looker.no_frames}))


if __name__ == "__main__":
    main()
