"""How often keys were asked for lately, in little memory: a count-min sketch that ages.

Four rows of counters up to 15, and only the smallest of a key's four is raised (conservative
update). Once in a period all are halved, so that old fame fades (TinyLFU).
"""

from __future__ import annotations

_ROWS = 4
_MOST = 15
_HALVED = bytes(value >> 1 for value in range(256))


class FrequencySketch:
    """Estimates are never under the true count since the last halving, and seldom over it."""

    __slots__ = ("_added", "_mask", "_period", "_rows", "_width")

    def __init__(self, max_bytes: int) -> None:
        width = max(16, max_bytes // _ROWS)
        self._width = 1 << (width.bit_length() - 1)
        self._mask = self._width - 1
        self._rows = tuple(bytearray(self._width) for _ in range(_ROWS))
        self._added = 0
        self._period = self._width

    @property
    def size_bytes(self) -> int:
        """Memory of the counters."""
        return _ROWS * self._width

    def age_every(self, additions: int) -> None:
        """Set the period; not under a row's width, over which halving costs next to nothing."""
        self._period = max(self._width, additions)

    def add(self, key: bytes) -> None:
        """The key was asked for once more."""
        one, two, three, four = self._rows
        mask = self._mask
        h = hash(key)
        step = (h >> 32) | 1
        a, b, c, d = h & mask, (h + step) & mask, (h + 2 * step) & mask, (h + 3 * step) & mask
        least = min(one[a], two[b], three[c], four[d])
        if least < _MOST:
            if one[a] == least:
                one[a] += 1
            if two[b] == least:
                two[b] += 1
            if three[c] == least:
                three[c] += 1
            if four[d] == least:
                four[d] += 1
        self._added += 1
        if self._added >= self._period:
            self._halve()

    def estimate(self, key: bytes) -> int:
        """About how often the key was asked for lately, 15 at most."""
        one, two, three, four = self._rows
        mask = self._mask
        h = hash(key)
        step = (h >> 32) | 1
        return min(
            one[h & mask],
            two[(h + step) & mask],
            three[(h + 2 * step) & mask],
            four[(h + 3 * step) & mask],
        )

    def clear(self) -> None:
        """Forget everything."""
        for row in self._rows:
            row[:] = bytes(self._width)
        self._added = 0

    def _halve(self) -> None:
        for row in self._rows:
            row[:] = row.translate(_HALVED)
        self._added //= 2
