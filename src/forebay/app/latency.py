"""What keeps the event loop from waiting: for the processor, and for the garbage collector."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from forebay.folding.variants import simplified
from forebay.generation.lexicon import lexicon

T = TypeVar("T")
SLICE_NS = 100_000
"""The shortest slice Linux grants an ordinary thread (sched(7): 0.1 ms to 100 ms)."""

_TRADITIONAL = "\u5f8c"

_OTHER = 0
_RESET_ON_FORK = 0x01
# sched_setattr and sched_getattr, which the C library does not wrap everywhere.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}


class _Attributes(ctypes.Structure):
    """``struct sched_attr`` of sched_setattr(2), in its first version (48 bytes)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("slice_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def wake_promptly() -> bool:
    """Ask for short slices for the calling thread, and return whether they were granted.

    It gets no more of the processor than before, but it runs as soon as it wakes, where others
    would first finish their turn of some milliseconds (Linux 6.12 and later; elsewhere nothing
    happens). Threads and processes it starts keep ordinary slices.
    """
    attributes = _read()
    if attributes is None or attributes.policy != _OTHER:
        return False  # where there is a policy, the operator has chosen it for the whole process
    attributes.slice_ns = SLICE_NS
    attributes.flags |= _RESET_ON_FORK
    calls = _CALLS[platform.machine()]
    refused: int = ctypes.CDLL(None).syscall(calls[0], 0, ctypes.byref(attributes), 0)
    return refused == 0 and slice_ns() == SLICE_NS


async def unlisted(work: Coroutine[Any, Any, T]) -> T:
    """Do ``work`` on a loop that keeps no list of the asynchronous generators on it.

    To enter each in a weak set and to take it off again costs an answer of ten of them a
    twentieth of its processor time. The list is for generators that nobody closed when the loop
    ends; whoever opens one here closes it, and one that is lost is still closed by its finaliser.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=hooks.finalizer)
    try:
        return await work
    finally:
        sys.set_asyncgen_hooks(*hooks)


def slice_ns() -> int:
    """The calling thread's slice in nanoseconds; 0 where it cannot be known."""
    attributes = _read()
    return 0 if attributes is None else int(attributes.slice_ns)


def _read() -> _Attributes | None:
    calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        return None
    attributes = _Attributes()
    size = ctypes.sizeof(attributes)
    refused: int = ctypes.CDLL(None).syscall(calls[1], 0, ctypes.byref(attributes), size, 0)
    return None if refused else attributes


def load_tables() -> None:
    """Read what would else be read at its first use, by the loop beside the first answers.

    A tenth of a second of CPU for the characters that are folded, milliseconds for the words.
    """
    simplified(_TRADITIONAL)
    lexicon()


def settle_memory() -> None:
    """Take what lives as long as the process out of the garbage collector's sight.

    A full collection stops every thread and looked at all modules and models again: 60 to 200 ms
    beside a busy server. Call it once things are open, before requests come.
    """
    gc.collect()
    gc.freeze()
