"""Who is refused because of time: a standing queue's members, and who could not finish anyway.

``DelayShedder`` is CoDel (RFC 8289): when the least delay over an ``interval`` stays above
``target``, the queue stands rather than absorbs a burst; members are then dropped at a rate that
rises with the square root of their number until the delay is below the target again.

``DrainRate`` is how fast a pool works off cost while others wait, which is all it can do: the rate
of a pool that is not full says nothing. Forecasts of waits and the honest ``retry-after`` come
from it.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.policy.quantiles import RecentQuantiles

DECAY_FLOOR = 1e-9
UNLEARNED_RATIO = 50.0
"""Prompt tokens that take as long as one written token, until it is known better."""
SAFE_SHARE, MOST_SAFETY, SAFETY_EVERY = 0.9, 3.0, 10
LEAST_RATIO, MOST_RATIO = 5.0, 500.0
SURE, LEAST_SURE_S = 0.6, 0.5
"""Of the interval after which a line stands, where it is known what those behind it can do; a burst
may be as long in any case."""
CROWD_S, MOST_CROWD_S = 10.0, 320.0
"""How long a short line is that of a crowd, which is refused for most of its part; then it is tried
whether it grows again, and if so twice as long."""
RATIO_AFTER = 200
"""Requests before the ratio is learned: a limit's base is measured by it and must not jump."""


class ShedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What delay is tolerated, and for how long."""

    target_s: Annotated[
        float,
        Meta(
            description="Queue delay that is always fine, in seconds; the most that anybody is let "
            "in to while the line stands.",
            gt=0.0,
        ),
    ] = 0.02
    interval_s: Annotated[
        float,
        Meta(
            description="How long the line must not empty until it stands, and the delay stay "
            "above the target before anybody in it is shed.",
            gt=0.0,
        ),
    ] = 0.5
    max_wait_s: Annotated[
        float,
        Meta(
            description="Whoever would wait longer is refused at the door, also in a burst.",
            gt=0.0,
        ),
    ] = 1.5
    few_waiting: Annotated[
        int,
        Meta(
            description="A line that stays shorter is not held to the target, however slow it is; "
            "after a longer one has stood it is for ten seconds, and longer if that happens again.",
            ge=0,
        ),
    ] = 0
    few_wait_s: Annotated[
        float,
        Meta(description="Longest wait in a line so short; max_wait_s where that is more.", ge=0.0),
    ] = 0.0


class DelayShedder:
    """Decides for each one that is taken from a queue whether it is served or shed.

    A burst may fill the line up to ``max_wait_s``. A line that has not been empty for an interval
    in one piece is no burst: the door then keeps it at the target, so that who cannot be served
    hears so at once and who is let in waits shortly.

    ``few_waiting`` people who ask again when they are answered make a line that never empties and
    never grows; they are left alone. Those who keep coming, answered or not, make one that grows
    and stands: from then on a line of few is no better than any other.
    """

    __slots__ = (
        "_above_since",
        "_crowd_s",
        "_crowd_until",
        "_drops",
        "_empty_since",
        "_next_at",
        "_settings",
        "_waiting_since",
        "dropping",
        "shed",
    )

    def __init__(self, settings: ShedSettings) -> None:
        self._settings = settings
        self._above_since: float | None = None
        self._next_at = 0.0
        self._drops = 0
        self._waiting_since = math.inf
        self._empty_since = -math.inf
        self._crowd_s = CROWD_S
        self._crowd_until = -math.inf
        self.dropping = False
        self.shed = 0

    def most_wait_s(
        self, now: float, *, excused: bool, sure: bool = False, waiting: float = math.inf
    ) -> float:
        """How long a newcomer may be going to wait, ``waiting`` others in line.

        ``excused``: the line has another reason. ``sure``: it is known to have none.
        """
        if excused and self._waiting_since < now:
            self._waiting_since = now
        most_s = self._settings.max_wait_s
        if self._few(waiting, now):
            return max(most_s, self._settings.few_wait_s)
        interval_s = self._settings.interval_s
        if sure:
            interval_s = min(interval_s, max(LEAST_SURE_S, SURE * interval_s))
        if now - self._waiting_since >= interval_s:
            most_s = min(most_s, self._settings.target_s)
            if waiting >= self._settings.few_waiting:
                self._crowd(now)
        return most_s

    def occupied(self, now: float, waiting: float = math.inf) -> None:
        """Somebody waits."""
        if self._few(waiting, now):
            return
        if now - self._empty_since >= self._settings.interval_s:
            self._waiting_since = now
        self._empty_since = math.inf

    def sheds(self, waited_s: float, now: float, waiting: float = math.inf) -> bool:
        """Whether the one that waited so long and would be served now is shed instead.

        ``waiting`` are still behind it. A few are no overload (RFC 8289 lets one packet be, too).
        """
        if waited_s < self._settings.target_s or self._few(waiting, now):
            self._above_since = None
            self.dropping = False
            return False
        if self._above_since is None:
            self._above_since = now
        if not self.dropping:
            if now - self._above_since < self._settings.interval_s:
                return False
            self.dropping = True
            # A queue that stood a moment ago is still near the rate that was needed then.
            recent = now - self._next_at < 16 * self._settings.interval_s
            self._drops = max(1, self._drops - 2) if recent and self._drops > 2 else 1
        elif now < self._next_at:
            return False
        else:
            self._drops += 1
        self._next_at = now + self._settings.interval_s / math.sqrt(self._drops)
        self.shed += 1
        return True

    def _few(self, waiting: float, now: float) -> bool:
        """Whether those who wait are all there are."""
        return waiting < self._settings.few_waiting and now >= self._crowd_until

    def _crowd(self, now: float) -> None:
        """A line of many stands: for a while a short one is what is left of it."""
        if now >= self._crowd_until:
            again = now - self._crowd_until < self._crowd_s
            self._crowd_s = min(2 * self._crowd_s, MOST_CROWD_S) if again else CROWD_S
            self._crowd_until = now + self._crowd_s

    def emptied(self, now: float, waiting: int = 0) -> None:
        """Somebody left the line; as good as nobody waits any more if it is short."""
        if waiting and not self._few(waiting, now):
            return
        self._above_since = None
        self.dropping = False
        if self._empty_since > now:
            self._empty_since = now
        elif now - self._empty_since >= self._settings.interval_s:
            self._waiting_since = math.inf


class DrainRate:
    """Cost worked off a second while somebody waited, over roughly the last ``memory_s`` of that.

    Call ``at`` whenever the line fills or empties and ``done`` for each settled request.
    """

    __slots__ = ("_at", "_busy", "_busy_s", "_cost", "_memory_s", "_seen")

    def __init__(self, memory_s: float = 5.0) -> None:
        self._memory_s = memory_s
        self._cost = 0.0
        self._busy_s = 0.0
        self._busy = False
        self._at = 0.0
        self._seen = 0

    def at(self, now: float, *, busy: bool) -> None:
        """Time went on; from now somebody waits or nobody does."""
        if self._busy:
            passed_s = max(0.0, now - self._at)
            kept = math.exp(-passed_s / self._memory_s)
            self._cost *= kept
            self._busy_s = self._busy_s * kept + passed_s
        self._busy = busy
        self._at = now

    def done(self, cost: float, now: float) -> None:
        """So much was worked off."""
        self.at(now, busy=self._busy)
        if self._busy:
            self._cost += cost
            self._seen += 1

    def rate(self) -> float | None:
        """Cost a second; None until there is evidence."""
        if self._seen < 8 or self._busy_s < DECAY_FLOOR or self._cost <= 0:
            return None
        return self._cost / self._busy_s

    def wait_s(self, cost: float) -> float | None:
        """Seconds in which ``cost`` is worked off at the present rate."""
        rate = self.rate()
        return None if rate is None else cost / rate


class ServiceForecast:
    """How long a request will take once it is served, learned: a + b x input + c x output.

    A least-squares fit over recent requests (weights fade by ``forget`` a request), solved from
    running sums; no coefficient is let under zero. Until ``learn_after`` requests have been seen
    the answer is None and nobody is refused on its account.
    """

    __slots__ = ("_forget", "_learn_after", "_m", "_misses", "_seen", "_v", "safety")

    def __init__(self, *, forget: float = 0.995, learn_after: int = 20) -> None:
        self._forget = forget
        self._learn_after = learn_after
        self._m = [0.0] * 6  # upper triangle of sum w x x', x = (1, input, output)
        self._v = [0.0] * 3  # sum w x y
        self._seen = 0
        self._misses = RecentQuantiles(least=0.1, memory=200)
        self.safety = 1.0

    def ended(self, input_tokens: float, output_tokens: float, took_s: float) -> None:
        """Note a request that ran to its end, and how far from the forecast it was."""
        forecast_s = self.forecast_s(input_tokens, output_tokens)
        if forecast_s:
            self._misses.add(took_s / forecast_s)
            if self._misses.count % SAFETY_EVERY == 0:
                usual = self._misses.at(SAFE_SHARE)
                assert usual is not None
                self.safety = min(MOST_SAFETY, max(1.0, usual))
        self.observe(input_tokens, output_tokens, took_s)

    def safe_s(self, input_tokens: float, output_tokens: float) -> float:
        """Seconds within which nine of ten such requests end; 0 while too little is known."""
        return (self.forecast_s(input_tokens, output_tokens) or 0.0) * self.safety

    def observe(self, input_tokens: float, output_tokens: float, took_s: float) -> None:
        """Note how long it took to come this far."""
        f, m, v = self._forget, self._m, self._v
        i, o = input_tokens, output_tokens
        for at, value in enumerate((1.0, i, o, i * i, i * o, o * o)):
            m[at] = m[at] * f + value
        for at, value in enumerate((took_s, i * took_s, o * took_s)):
            v[at] = v[at] * f + value
        self._seen += 1

    def forecast_s(self, input_tokens: float, output_tokens: float) -> float | None:
        """Seconds such a request probably takes; None while too little is known."""
        if self._seen < self._learn_after:
            return None
        if not self._varied():
            # One shape tells nothing of others but their proportion.
            n, mean_input, mean_output = self._m[:3]
            usual = self.steps(mean_input / n, mean_output / n)
            return self._v[0] / n * self.steps(input_tokens, output_tokens) / usual
        a, b, c = self._coefficients()
        return a + b * input_tokens + c * output_tokens

    def steps(self, input_tokens: float, output_tokens: float) -> float:
        """The work in units of one written token: input x b / c + output.

        An overload stretches both coefficients alike, so time over steps compares requests of any
        shape. The ratio is the learned one where lengths vary enough to tell, within sane bounds.
        """
        ratio = UNLEARNED_RATIO
        if self._seen >= RATIO_AFTER and self._varied() and self._inputs_varied():
            _, b, c = self._coefficients()
            if b > 0 and c > 0:
                ratio = min(MOST_RATIO, max(LEAST_RATIO, c / b))
        return max(1.0, input_tokens / ratio + output_tokens)

    def _varied(self) -> bool:
        """Whether output lengths deviate by a third of their mean or more."""
        n, _, so, _, _, oo = self._m
        return oo * n > 1.1 * so * so

    def _inputs_varied(self) -> bool:
        """The same of input lengths: of nearly equal ones the part of each token is chance."""
        n, si, _, ii, _, _ = self._m
        return ii * n > 1.1 * si * si

    def _coefficients(self) -> tuple[float, float, float]:
        n, si, so, ii, io, oo = self._m
        y, yi, yo = self._v
        # A little ridge, scaled to each term, keeps constant inputs solvable.
        ii, oo = ii * (1 + 1e-6) + 1e-9, oo * (1 + 1e-6) + 1e-9
        # Centre on the means, then solve two by two.
        cii, cio, coo = ii - si * si / n, io - si * so / n, oo - so * so / n
        cyi, cyo = yi - si * y / n, yo - so * y / n
        b, c = _two_by_two((cii, cio, coo), (cyi, cyo))
        a = (y - b * si - c * so) / n
        return (max(0.0, a), b, c) if a >= 0 else (0.0, *_two_by_two((ii, io, oo), (yi, yo)))


def _two_by_two(m: tuple[float, float, float], v: tuple[float, float]) -> tuple[float, float]:
    """Non-negative least squares for two coefficients."""
    p, q, r = m
    det = p * r - q * q
    if det > 1e-9 * max(p * r, 1e-30):
        b, c = (v[0] * r - v[1] * q) / det, (v[1] * p - v[0] * q) / det
        if b >= 0 and c >= 0:
            return b, c
    alone_b = max(0.0, v[0] / p) if p > 0 else 0.0
    alone_c = max(0.0, v[1] / r) if r > 0 else 0.0
    # The better of the two: it explains more of the sum of squares.
    return (alone_b, 0.0) if alone_b * v[0] >= alone_c * v[1] else (0.0, alone_c)
