"""What was worked out from a view of vectors, remembered while that view is the one in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import ref

V = TypeVar("V")


class ViewMemory(Generic[V]):
    """The last ``most`` values by key, each good for the very view it was made from.

    Views never change: a commit shows another one. A view is not held on to. Not for several
    threads at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[ref[object], V]] = OrderedDict()

    def get(self, view: object, key: Hashable) -> V | None:
        """What was kept for this view; None: nothing."""
        kept = self._kept.get(key)
        if kept is None or kept[0]() is not view:
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def keep(self, view: object, key: Hashable, value: V) -> None:
        """Remember it, in the place of what was used the longest ago."""
        self._kept[key] = ref(view), value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
