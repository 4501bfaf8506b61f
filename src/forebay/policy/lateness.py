"""How far plans are off, and how much of the time that clients allow is planned for.

Two shares of the allowed time follow what ends late: ``margin``, within which safe requests must
end where larger ones are let in, and ``ease``, within which the others must. Both go up a little
while hardly anybody is nearly late and down more when somebody is (additive increase and decrease,
once in ``ADAPT_S``: what many learn at once is one mistake). Beside them, for each size, how much
longer than planned it takes of late (``stretch``).
"""

from __future__ import annotations

from forebay.policy.bands import ONE_SIZE
from forebay.policy.quantiles import RecentQuantiles

NEAR = 0.85
"""Of its time, from which an answer counts as nearly late."""
MAX_LATE, LESS, MORE, ADAPT_S = 0.04, 0.06, 0.015, 0.2
"""Share of late ones that is accepted; steps down and up; seconds between two."""
MIN_SHARE, MAX_MARGIN, MAX_EASE = 0.4, 0.85, 1.5
USUAL, MAX_STRETCH = 0.6, 3.0
"""Quantile of taken over planned by which plans are stretched, and how far at most."""


class Lateness:
    """See the module; ``ended`` teaches it."""

    def __init__(self) -> None:
        self.margin = 0.75
        self.ease = 1.0
        self._ends = {True: (0.0, 0, 0), False: (0.0, 0, 0)}  # since when, how many, how many late
        self._sizes: dict[int, _Size] = {}

    def ended(self, share: float, *, safe: bool, now: float) -> None:
        """Note one that took ``share`` of its time; infinite: it never ended."""
        began_at, ended, late = self._ends[safe]
        ended, late = ended + 1, late + (share > NEAR)
        if now - began_at < ADAPT_S:
            self._ends[safe] = (began_at, ended, late)
            return
        self._ends[safe] = (now, 0, 0)
        step = -LESS if late > MAX_LATE * ended else MORE
        if safe:
            self.margin = min(MAX_MARGIN, max(MIN_SHARE, self.margin + step))
        else:
            self.ease = min(MAX_EASE, max(MIN_SHARE, self.ease + step))

    def missed(self, band: int, ratio: float, in_flight: int) -> None:
        """Note how much longer than planned one took, and how many were at work beside it."""
        found = self._sizes.get(band // ONE_SIZE)
        if found is None:
            found = self._sizes[band // ONE_SIZE] = _Size()
        found.ended(ratio, in_flight)

    def stretch(self, band: int, in_flight: int) -> float:
        """How much longer than planned such a request takes; less in less company than usual."""
        found = self._sizes.get(band // ONE_SIZE)
        if found is None or found.factor <= 1:
            return 1.0
        return 1 + (found.factor - 1) * min(1.0, in_flight / max(1.0, found.company))

    def statistics(self) -> dict[str, float]:
        """Both shares."""
        return {"margin": self.margin, "ease": self.ease}


class _Size:
    """Requests of one size."""

    __slots__ = ("_seen", "company", "factor")

    def __init__(self) -> None:
        self._seen = RecentQuantiles(least=0.1, memory=60)
        self.company = 0.0
        self.factor = 1.0

    def ended(self, ratio: float, in_flight: int) -> None:
        self._seen.add(ratio)
        self.company += 0.05 * (in_flight - self.company)
        if self._seen.count % 8 == 0:
            self.factor = min(MAX_STRETCH, max(1.0, self._seen.at(USUAL) or 1.0))
