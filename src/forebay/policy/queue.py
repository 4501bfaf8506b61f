"""One pool's waiting line: by class, fair between tenants by cost, earliest deadline inside.

Between classes, strict order: a high one never waits for a normal one. Between the tenants of a
class, start-time fair queueing (Goyal, Vin, Cheng 1996): a tenant's next request starts at
S = max(V, F of its previous one) and ends at F = S + cost / weight, where V is the start tag of
what was taken last; the smallest S goes first. So backlogged tenants get cost in proportion to
their weights, whatever the sizes of their requests, and one that was idle gains no credit.
Within a tenant, the earliest deadline first.

A full line is shared out by the same tags: whoever would be served last leaves it, so that a tenant
that floods it keeps out its own requests and not those of others.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from forebay.kernel.context import Priority

T = TypeVar("T")
CLASSES: tuple[Priority, ...] = ("high", "normal", "low")


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of a waiting line."""

    max_waiting: Annotated[int, Meta(description="Requests that may wait at once.", ge=0)] = 256
    max_waiting_cost: Annotated[
        float, Meta(description="Tokens of waiting requests in all; 0: no bound.", ge=0.0)
    ] = 0.0


class Waiting(Generic[T]):
    """One request in line; ``item`` is the caller's own."""

    __slots__ = (
        "band",
        "cost",
        "deadline_at",
        "item",
        "priority",
        "queued_at",
        "state",
        "tag",
        "tenant",
        "weight",
    )

    def __init__(
        self, item: T, *, tenant: str, priority: Priority, cost: float, deadline_at: float
    ) -> None:
        self.item = item
        self.tenant = tenant
        self.priority = priority
        self.cost = cost
        self.deadline_at = deadline_at
        self.band = 0
        self.queued_at = 0.0
        self.state = "new"
        self.tag = 0.0  # the virtual time of its start, as it was when it came
        self.weight = 1.0


class _Line(Generic[T]):
    """A tenant's waiting requests in one class, earliest deadline first."""

    __slots__ = (
        "cost",
        "finish",
        "heap",
        "live",
        "ordered",
        "start",
        "tenant",
        "weight",
    )

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.weight = 1.0
        self.heap: list[tuple[float, int, Waiting[T]]] = []
        self.live = 0
        self.cost = 0.0
        self.start = 0.0
        self.finish = 0.0
        self.ordered = False

    def head(self) -> Waiting[T]:
        """The earliest deadline of a line somebody waits in."""
        while self.heap[0][2].state != "waiting":
            heapq.heappop(self.heap)
        return self.heap[0][2]

    def cost_until(self, deadline_at: float) -> float:
        """Cost of those who are due until then, in time linear in the line's length."""
        return sum(
            one.cost
            for due_at, _, one in self.heap
            if due_at <= deadline_at and one.state == "waiting"
        )

    def tidy(self) -> None:
        """Drop those who left, once they are the most."""
        if len(self.heap) > 2 * self.live + 16:
            self.heap = [entry for entry in self.heap if entry[2].state == "waiting"]
            heapq.heapify(self.heap)


class _Class(Generic[T]):
    """The tenants of one class in order of their start tags."""

    __slots__ = (
        "cost",
        "lines",
        "live",
        "order",
        "tags",
        "virtual",
        "waiting",
        "weight",
    )

    def __init__(self) -> None:
        self.lines: dict[str, _Line[T]] = {}
        self.order: list[tuple[float, int, _Line[T]]] = []
        self.tags: list[tuple[float, int, Waiting[T]]] = []  # the latest first
        self.virtual = 0.0
        self.live = 0
        self.cost = 0.0
        self.waiting = 0  # tenants somebody of whom waits, and their weights
        self.weight = 0.0

    def tag(self, tenant: str, deadline_at: float) -> float:
        """When a newcomer of this tenant would start, in virtual time: after who is due earlier."""
        line = self.lines.get(tenant)
        if line is None:
            return self.virtual
        if line.live:
            return line.start + line.cost_until(deadline_at) / line.weight
        return max(self.virtual, line.finish)

    def last(self) -> Waiting[T] | None:
        """Who would be served last; None when nobody waits."""
        while self.tags and self.tags[0][2].state != "waiting":
            heapq.heappop(self.tags)
        return self.tags[0][2] if self.tags else None

    def first(self) -> _Line[T]:
        """The line to be served next, of a class in which somebody waits."""
        while not self.order[0][2].live:
            heapq.heappop(self.order)[2].ordered = False
        return self.order[0][2]

    def tidy(self) -> None:
        """Forget tenants whose last service lies behind the virtual time, now and then.

        They would start at the virtual time if they came back: forgetting changes nothing.
        """
        if self.live == 0:
            self.lines.clear()
            self.order.clear()
            self.tags.clear()
            self.virtual = self.cost = self.weight = 0.0
            return
        if len(self.tags) > 2 * self.live + 64:
            self.tags = [entry for entry in self.tags if entry[2].state == "waiting"]
            heapq.heapify(self.tags)
        if len(self.order) > 2 * self.live + 64:
            for _, _, line in self.order:
                line.ordered = line.live > 0
            self.order = [entry for entry in self.order if entry[2].live]
            heapq.heapify(self.order)
        if len(self.lines) > 2 * self.live + 64:
            self.lines = {
                name: line
                for name, line in self.lines.items()
                if line.live or line.ordered or line.finish > self.virtual
            }


class FairQueue(Generic[T]):
    """A bounded waiting line; calls take time logarithmic in its length, ``push`` in its tenant's.

    Whoever waits leaves by ``pop`` or by ``remove``: deadlines order the line, they do not end a
    wait by themselves.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._classes: dict[Priority, _Class[T]] = {name: _Class() for name in CLASSES}
        self._numbers = itertools.count()
        self.count = 0
        self.cost = 0.0

    def __len__(self) -> int:
        return self.count

    def push(self, one: Waiting[T], now: float, weight: float = 1.0) -> tuple[Waiting[T], ...]:
        """Let ``one`` wait; return those to be refused for it, or ``(one,)`` itself.

        ``weight`` is the tenant's share. Room is made by lower classes, then by those of its own
        who would be served after it.
        """
        group = self._classes[one.priority]
        one.tag, one.weight = group.tag(one.tenant, one.deadline_at), weight
        refused: list[Waiting[T]] = []
        while not self._fits(one.cost):
            worst = self._worst(one)
            if worst is None:
                for other in refused:  # nobody is pushed out in vain
                    self._enter(other)
                one.state = "refused"
                return (one,)
            self._leave(worst, "refused")
            refused.append(worst)
        one.queued_at = now
        self._enter(one)
        return tuple(refused)

    def peek(self) -> Waiting[T] | None:
        """Who would be taken next; None when nobody waits."""
        for name in CLASSES:
            group = self._classes[name]
            if group.live:
                return group.first().head()
        return None

    def pop(self) -> Waiting[T] | None:
        """Take the next one; None when nobody waits."""
        for name in CLASSES:
            group = self._classes[name]
            if group.live:
                line = group.first()
                start, _, _ = heapq.heappop(group.order)
                line.ordered = False
                head = line.head()
                heapq.heappop(line.heap)
                group.virtual = max(group.virtual, start)
                line.finish = start + head.cost / line.weight
                self._leave(head, "taken")
                if line.live:
                    self._order(group, line)
                return head
        return None

    def remove(self, one: Waiting[T]) -> bool:
        """Take out one who left; False when it was not in line any more."""
        if one.state != "waiting":
            return False
        self._leave(one, "gone")
        return True

    def cost_before(self, priority: Priority) -> float:
        """Cost of all who wait in higher classes and in this one."""
        return sum(self._classes[name].cost for name in CLASSES[: CLASSES.index(priority) + 1])

    def cost_ahead(
        self, tenant: str, priority: Priority, deadline_at: float, weight: float = 1.0
    ) -> float:
        """About the cost that is served before a newcomer of ``tenant``.

        All of the higher classes. Of its own what every tenant is given until the newcomer's turn
        comes, and a request of each that is at its turn already: whoever floods the line waits for
        all he sent, the others do not. The urgent do not wait for the patient of their tenant.
        """
        group = self._classes[priority]
        before = self.cost_before(priority)
        if not group.live:
            return before
        weights = group.weight + (0.0 if self._waits(group, tenant) else weight)
        turns = (group.tag(tenant, deadline_at) - group.virtual) * weights
        return min(before, before - group.cost + turns + group.waiting * group.cost / group.live)

    def __iter__(self) -> Iterator[Waiting[T]]:
        for group in self._classes.values():
            for line in group.lines.values():
                for _, _, one in line.heap:
                    if one.state == "waiting":
                        yield one

    def statistics(self) -> dict[str, float]:
        """Who waits, by class, and what they cost together."""
        waiting: dict[str, float] = {name: self._classes[name].live for name in CLASSES}
        return {**waiting, "waiting": self.count, "cost": self.cost}

    def _fits(self, cost: float) -> bool:
        bound = self._settings.max_waiting_cost
        if self.count >= self._settings.max_waiting:
            return False
        return not bound or self.count == 0 or self.cost + cost <= bound

    def _worst(self, one: Waiting[T]) -> Waiting[T] | None:
        """Who leaves a full line for ``one``."""
        for name in reversed(CLASSES[CLASSES.index(one.priority) :]):
            last = self._classes[name].last()
            if last is not None and (name != one.priority or last.tag > one.tag):
                return last
        return None

    @staticmethod
    def _waits(group: _Class[T], tenant: str) -> bool:
        line = group.lines.get(tenant)
        return line is not None and line.live > 0

    def _enter(self, one: Waiting[T]) -> None:
        group = self._classes[one.priority]
        line = group.lines.get(one.tenant)
        if line is None:
            line = group.lines[one.tenant] = _Line(one.tenant)
        group.weight += one.weight - (line.weight if line.live else 0.0)
        group.waiting += not line.live
        line.weight = one.weight
        one.state = "waiting"
        number = next(self._numbers)
        heapq.heappush(line.heap, (one.deadline_at, number, one))
        heapq.heappush(group.tags, (-one.tag, -number, one))
        for part in (line, group):
            part.live += 1
            part.cost += one.cost
        self.count += 1
        self.cost += one.cost
        if not line.ordered:
            self._order(group, line)

    def _leave(self, one: Waiting[T], state: str) -> None:
        group = self._classes[one.priority]
        line = group.lines[one.tenant]
        one.state = state
        for part in (line, group):
            part.live -= 1
            part.cost -= one.cost
        if not line.live:
            group.waiting -= 1
            group.weight -= line.weight
        self.count -= 1
        self.cost = self.cost - one.cost if self.count else 0.0
        line.tidy()
        group.tidy()

    def _order(self, group: _Class[T], line: _Line[T]) -> None:
        line.start = max(group.virtual, line.finish)
        line.ordered = True
        heapq.heappush(group.order, (line.start, next(self._numbers), line))
