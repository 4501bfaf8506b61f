"""Work that tells how old its request is, for pools that take the oldest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turn(Generic[T]):
    """One piece of work of a request that began at ``since``, in seconds of its clock."""

    __slots__ = ("_work", "since")

    def __init__(self, since: float, work: Callable[[], T]) -> None:
        self.since = since
        self._work = work

    def __call__(self) -> T:
        """Do the work."""
        return self._work()
