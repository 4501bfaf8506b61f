"""Sequences that wait for admission: first come first served, or by priority."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from forebay.lab.sim.sequence import Sequence


class FifoWaiting:
    """In order of arrival; what was preempted goes to the head."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: OrderedDict[Sequence, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def head(self) -> Sequence | None:
        """Who is next."""
        return next(iter(self._queue), None)

    def push(self, sequence: Sequence) -> None:
        """Queue a new arrival."""
        self._queue[sequence] = None

    def push_back(self, sequence: Sequence) -> None:
        """Queue what was preempted."""
        self._queue[sequence] = None
        self._queue.move_to_end(sequence, last=False)

    def remove(self, sequence: Sequence) -> None:
        """Take it out, wherever it stands."""
        del self._queue[sequence]


class PriorityWaiting:
    """Lowest ``priority`` first, ties by arrival.

    What leaves out of turn stays in the heap until it surfaces, or until such leftovers are the
    greater part.
    """

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []
        self._members: set[Sequence] = set()

    def __len__(self) -> int:
        return len(self._members)

    def head(self) -> Sequence | None:
        """Who is next."""
        heap = self._heap
        while heap:
            sequence = heap[0][2]
            if sequence in self._members:
                return sequence
            heapq.heappop(heap)
        return None

    def push(self, sequence: Sequence) -> None:
        """Queue a new arrival, or what was preempted."""
        self._members.add(sequence)
        heapq.heappush(self._heap, (sequence.priority, sequence.order, sequence))

    push_back = push

    def remove(self, sequence: Sequence) -> None:
        """Take it out, wherever it stands."""
        self._members.discard(sequence)
        heap = self._heap
        if heap and heap[0][2] is sequence:
            heapq.heappop(heap)
        elif len(heap) > 2 * len(self._members) + 16:
            self._heap = [entry for entry in heap if entry[2] in self._members]
            heapq.heapify(self._heap)


def in_priority_order(sequence: Sequence) -> tuple[int, int]:
    """The key by which priority scheduling admits; the greatest is preempted first."""
    return sequence.priority, sequence.order
