"""The search for the knee: numbers in, number out.

Doubling from a start until a rate is not healthy (halving, when already the first is not), then
bisection by the geometric mean, so that precision is relative. A step's verdict is an exact
one-sided binomial test (Clopper and Pearson, 1934) of its goodput share against the wanted one.
"""

from __future__ import annotations

import math
from typing import Literal

Verdict = Literal["healthy", "overloaded", "undecided"]
_MAX_HALVINGS = 10


class KneeSearch:
    """Ask ``rate`` what to try, ``tell`` whether it was healthy; ``low`` is the knee so far."""

    def __init__(self, start: float, highest: float, resolution: float) -> None:
        self._highest = highest
        self._resolution = resolution
        self._rate: float | None = min(start, highest)
        self._halvings = 0
        self.low: float | None = None
        self.high: float | None = None

    @property
    def rate(self) -> float | None:
        """The next rate to try; None when the search is over."""
        return self._rate

    def tell(self, healthy: bool) -> None:
        """The verdict on ``rate``."""
        assert self._rate is not None
        if healthy:
            self.low = self._rate
        else:
            self.high = self._rate
        self._rate = self._next()

    def _next(self) -> float | None:
        low, high = self.low, self.high
        if low is None:
            assert high is not None
            self._halvings += 1
            return high / 2 if self._halvings <= _MAX_HALVINGS else None
        if high is None:
            return min(low * 2, self._highest) if low < self._highest else None
        if high <= low * (1 + self._resolution):
            return None
        return math.sqrt(low * high)


def judge(good: int, meant: int, share: float, confidence: float) -> Verdict:
    """Whether at least ``share`` of requests are good, as far as ``meant`` of them can say."""
    if meant == 0:
        return "undecided"
    bad, rate = meant - good, 1 - share
    if _at_most(bad, meant, rate) <= 1 - confidence:
        return "healthy"
    if bad and 1 - _at_most(bad - 1, meant, rate) <= 1 - confidence:
        return "overloaded"
    return "undecided"


def _at_most(count: int, trials: int, chance: float) -> float:
    """P(X <= count) of a binomial X, summed term by term in logarithms."""
    if chance <= 0:
        return 1.0
    if chance >= 1:
        return 1.0 if count >= trials else 0.0
    log_p, log_q = math.log(chance), math.log1p(-chance)
    log_n = math.lgamma(trials + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(
                log_n
                - math.lgamma(k + 1)
                - math.lgamma(trials - k + 1)
                + k * log_p
                + (trials - k) * log_q
            )
            for k in range(count + 1)
        ),
    )
