"""Quantiles of what happened lately, in constant memory and constant time.

Values fall into geometric classes; the relative error of a quantile is at most ``growth - 1``.
Old values fade: whenever the weight reaches twice ``memory``, every class is halved, so the last
``memory`` values or so decide.
"""

from __future__ import annotations

import math


class RecentQuantiles:
    """Positive numbers in, quantiles out.

    ``least`` is the smallest value told apart from zero. Answers are upper edges of classes, so
    a quantile is never understated by more than rounding.
    """

    __slots__ = ("_base", "_counts", "_growth", "_least", "_memory", "count", "weight")

    def __init__(self, *, least: float, growth: float = 1.05, memory: int = 1000) -> None:
        if least <= 0 or growth <= 1 or memory < 1:
            raise ValueError("least must be over 0, growth over 1, memory at least 1")
        self._least = least
        self._growth = growth
        self._base = math.log(growth)
        self._memory = memory
        self._counts: dict[int, float] = {}
        self.count = 0
        self.weight = 0.0

    def add(self, value: float) -> None:
        """Note one value; zero and less count as ``least``."""
        place = 0 if value <= self._least else math.ceil(math.log(value / self._least) / self._base)
        self._counts[place] = self._counts.get(place, 0.0) + 1.0
        self.count += 1
        self.weight += 1.0
        if self.weight >= 2 * self._memory:
            self._fade()

    def at(self, share: float) -> float | None:
        """The value that ``share`` of the recent ones do not exceed; None before the first."""
        return self.several((share,))[0]

    def several(self, shares: tuple[float, ...]) -> tuple[float | None, ...]:
        """Quantiles of ascending ``shares`` in one pass."""
        if not self._counts:
            return (None,) * len(shares)
        found: list[float | None] = []
        places = sorted(self._counts)
        seen, index = 0.0, -1
        for share in shares:
            wanted = share * self.weight
            while seen < wanted - 1e-9 or index < 0:
                index += 1
                seen += self._counts[places[index]]
            found.append(self._least * self._growth ** places[index])
        return tuple(found)

    def _fade(self) -> None:
        faded = {place: weight / 2 for place, weight in self._counts.items()}
        self._counts = {place: weight for place, weight in faded.items() if weight > 1 / 1024}
        self.weight = sum(self._counts.values())
