"""One pool's waiting line by class, then by band of size; each line fair between its tenants.

Small bands that fit into the engines together go first, the smallest foremost; the others share
what is left by start-time fair queueing over their work (the smallest start tag first), so that
each size gets its part and none is starved. Inside a band the line is a ``FairQueue``: fair between
tenants, earliest deadline first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from forebay.kernel.context import Priority
from forebay.policy.queue import CLASSES, FairQueue, QueueSettings, Waiting

T = TypeVar("T")


class BandLine(Generic[T]):
    """Those of one class and band."""

    __slots__ = ("again_at", "band", "queue", "tag")

    def __init__(self, band: int, settings: QueueSettings) -> None:
        self.band = band
        self.queue: FairQueue[T] = FairQueue(settings)
        self.again_at = 0.0  # until then it is known that its first one finds no room
        self.tag = 0.0  # the virtual time at which its next one starts


class BandQueue(Generic[T]):
    """Bounded lines by class and band; each holds as many as the settings say."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._lines: dict[Priority, dict[int, BandLine[T]]] = {name: {} for name in CLASSES}
        self._virtual: dict[Priority, float] = dict.fromkeys(CLASSES, 0.0)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def cost(self) -> float:
        """Cost of all who wait."""
        return sum(line.queue.cost for lines in self._lines.values() for line in lines.values())

    def push(self, one: Waiting[T], now: float, weight: float = 1.0) -> tuple[Waiting[T], ...]:
        """Let ``one`` wait; return those to be refused for it, or ``(one,)`` itself."""
        line = self.line(one.priority, one.band)
        if not line.queue:
            line.tag = max(line.tag, self._virtual[one.priority])
        before = len(line.queue)
        refused = line.queue.push(one, now, weight)
        self.count += len(line.queue) - before
        return refused

    def line(self, priority: Priority, band: int) -> BandLine[T]:
        """The line of a class and band."""
        lines = self._lines[priority]
        found = lines.get(band)
        if found is None:
            found = lines[band] = BandLine(band, self._settings)
        return found

    def order(self, safe_to: int) -> list[BandLine[T]]:
        """Lines somebody waits in, as they are to be served; bands up to ``safe_to`` go first."""
        found = []
        for priority in CLASSES:
            live = [line for line in self._lines[priority].values() if line.queue]
            if len(live) > 1:
                live.sort(
                    key=lambda line: (
                        (0, line.band, 0.0) if line.band <= safe_to else (1, line.tag, line.band)
                    )
                )
            found += live
        return found

    def precede(self, priority: Priority, band: int, safe_to: int) -> bool:
        """Whether anybody waits who goes before a newcomer of this class and band."""
        if not self.count:
            return False
        for name in CLASSES:
            for number, line in self._lines[name].items():
                if line.queue and (name != priority or band > safe_to or number <= band):
                    return True
            if name == priority:
                return False
        return False

    def take(self, line: BandLine[T]) -> Waiting[T]:
        """Take the next one of a line in which somebody waits."""
        head = line.queue.pop()
        assert head is not None
        self.count -= 1
        self._virtual[head.priority] = max(self._virtual[head.priority], line.tag)
        line.tag += head.cost / max(head.weight, 1e-9)
        return head

    def remove(self, one: Waiting[T]) -> bool:
        """Take out one who left; False when it was not in line any more."""
        gone = self.line(one.priority, one.band).queue.remove(one)
        self.count -= gone
        return gone

    def waiting(self, band: int) -> int:
        """How many of a band wait, of all classes."""
        return sum(len(lines[band].queue) for lines in self._lines.values() if band in lines)

    def cost_before(self, priority: Priority) -> float:
        """Cost of all who wait in higher classes and in this one."""
        return sum(
            line.queue.cost
            for name in CLASSES[: CLASSES.index(priority) + 1]
            for line in self._lines[name].values()
        )

    def __iter__(self) -> Iterator[Waiting[T]]:
        for lines in self._lines.values():
            for line in lines.values():
                yield from line.queue

    def statistics(self) -> dict[str, float]:
        """Who waits, by class, and what they cost together."""
        waiting: dict[str, float] = {
            name: sum(len(line.queue) for line in self._lines[name].values()) for name in CLASSES
        }
        return {**waiting, "waiting": self.count, "cost": self.cost}
