"""Threads that give way: upkeep must not take the processor from searches."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_NICEST = 19
_NICENESS = 5
"""Above the process's own, which may give way itself. A third of the share of a thread that does
not give way; less would let a thread that holds a lock of the process wait too long for the
processor."""


def giving_way(make: Callable[[], T]) -> T:
    """Return what ``make`` returns; the threads it starts give way to others.

    On Linux niceness belongs to a thread and is inherited by those it starts; elsewhere it is
    the whole process's, and nothing is changed.
    """
    with ThreadPoolExecutor(1, initializer=_give_way) as once:
        return once.submit(make).result()


def _give_way() -> None:
    if sys.platform == "linux":
        # Without the right to do so, upkeep runs like everything else.
        with suppress(OSError):
            thread = threading.get_native_id()
            own = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(own + _NICENESS, _NICEST))
