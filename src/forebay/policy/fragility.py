"""The fragility watch: three signs that retrieval is about to drag answers down with it (F0.2).

| sign | of | normal | fragile |
|---|---|---|---|
| spread | one search: deviation of the pairwise cosines among its first five hits | calibrated | |
| confidence | all: variance of the first hit's confidence, last 200 | < 0.03 | > 0.12 |
| unsupported | one answer: share of statements that no passage supports | < 0.05 | > 0.35 |

Cosines of some embedders are crowded, so bounds of the spread are percentiles among the corpus's
own neighbourhoods, not numbers; without a calibration that sign is silent. Each sign is judged per
request and watched as a rolling figure (mean spread, variance, mean share).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError

Sign = Literal["spread", "confidence", "unsupported"]
Level = Literal["normal", "warn", "fragile"]
SIGNS: tuple[Sign, ...] = ("spread", "confidence", "unsupported")


class Bounds(msgspec.Struct, frozen=True):
    """Up to ``normal`` all is well; over ``fragile`` it is not; in between lies the warning."""

    normal: float
    fragile: float

    def level(self, value: float) -> Level:
        """Where ``value`` lies."""
        if value > self.fragile:
            return "fragile"
        return "warn" if value > self.normal else "normal"


class FragilitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as fragile, and what is done about it."""

    enabled: Annotated[
        bool, Meta(description="Watch signs of fragile retrieval and act on them.")
    ] = False
    spread_normal_percentile: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Up to this percentile of the corpus's own neighbourhoods, hits whose "
            "cosines differ are normal.",
        ),
    ] = 95.0
    spread_fragile_percentile: Annotated[
        float, Meta(ge=0, le=100, description="Over this percentile they are fragile.")
    ] = 99.5
    confidence_normal: Annotated[
        float, Meta(ge=0, description="Variance of the first hit's confidence that is normal.")
    ] = 0.03
    confidence_fragile: Annotated[
        float, Meta(ge=0, description="Variance of the first hit's confidence that is fragile.")
    ] = 0.12
    unsupported_normal: Annotated[
        float, Meta(ge=0, le=1, description="Share of unsupported statements that is normal.")
    ] = 0.05
    unsupported_fragile: Annotated[
        float, Meta(ge=0, le=1, description="Share of unsupported statements that is fragile.")
    ] = 0.35
    window: Annotated[int, Meta(ge=10, description="Requests in a rolling figure.")] = 200
    least: Annotated[int, Meta(ge=2, description="Requests before a rolling figure is judged.")] = (
        50
    )
    widen: Annotated[
        float,
        Meta(ge=1, le=10, description="How many times as many hits a fragile search asks for."),
    ] = 2.0

    def __post_init__(self) -> None:
        pairs = (
            (self.spread_normal_percentile, self.spread_fragile_percentile),
            (self.confidence_normal, self.confidence_fragile),
            (self.unsupported_normal, self.unsupported_fragile),
        )
        if any(normal >= fragile for normal, fragile in pairs):
            raise ConfigError("fragility: fragile must begin above normal.", param="fragility")

    @property
    def confidence(self) -> Bounds:
        """Of the first hit's confidence."""
        return Bounds(self.confidence_normal, self.confidence_fragile)

    @property
    def unsupported(self) -> Bounds:
        """Of unsupported statements."""
        return Bounds(self.unsupported_normal, self.unsupported_fragile)


class Rolling:
    """Mean and variance of the last ``window`` values, in constant time a value."""

    __slots__ = ("_squares", "_sum", "_values")

    def __init__(self, window: int) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._sum = self._squares = 0.0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Note one value; the oldest goes."""
        if len(self._values) == self._values.maxlen:
            oldest = self._values[0]
            self._sum -= oldest
            self._squares -= oldest * oldest
        self._values.append(value)
        self._sum += value
        self._squares += value * value

    @property
    def mean(self) -> float:
        """0 before the first value."""
        return self._sum / len(self._values) if self._values else 0.0

    @property
    def variance(self) -> float:
        """Of the values there are (divided by their number); 0 before the first."""
        if not self._values:
            return 0.0
        return max(0.0, self._squares / len(self._values) - self.mean**2)


class FragilityChange(msgspec.Struct, frozen=True):
    """A sign's rolling figure entered another level."""

    kb: str
    sign: Sign
    level: Level
    was: Level
    value: float


class FragilityWatch:
    """The signs of one knowledge base; ``changed`` hears when a rolling figure changes level.

    A level is left for a better one only when half a window has passed since it was entered, so
    that a figure at a bound does not flap.
    """

    __slots__ = (
        "_bounds",
        "_changed",
        "_kb",
        "_rolling",
        "_settings",
        "_since",
        "counts",
        "levels",
    )

    def __init__(
        self, kb: str, settings: FragilitySettings, changed: Callable[[FragilityChange], None]
    ) -> None:
        self._kb = kb
        self._settings = settings
        self._changed = changed
        self._rolling = {sign: Rolling(settings.window) for sign in SIGNS}
        self._since = dict.fromkeys(SIGNS, 0)
        self._bounds: dict[Sign, Bounds] = {
            "confidence": settings.confidence,
            "unsupported": settings.unsupported,
        }
        self.levels: dict[Sign, Level] = dict.fromkeys(SIGNS, "normal")
        self.counts: dict[Sign, int] = dict.fromkeys(SIGNS, 0)

    def searched(
        self, confidence: float | None, spread: float | None, bounds: Bounds | None
    ) -> tuple[Sign, ...]:
        """Note one search; return which signs say that it, or what came lately, is fragile.

        ``confidence`` is the first hit's, 0..1 (None: nothing found); ``spread`` with its
        calibrated ``bounds`` (None: not known).
        """
        signs: list[Sign] = []
        if spread is not None and bounds is not None:
            self._bounds["spread"] = bounds
            self._note("spread", spread)
            if bounds.level(spread) == "fragile":
                signs.append("spread")
        if confidence is not None:
            self._note("confidence", confidence)
            if self.levels["confidence"] == "fragile":
                signs.append("confidence")
        for sign in signs:
            self.counts[sign] += 1
        return tuple(signs)

    def answered(self, unsupported: float) -> bool:
        """Note the share of an answer's statements without support; whether it is fragile."""
        self._note("unsupported", unsupported)
        fragile = self._settings.unsupported.level(unsupported) == "fragile"
        self.counts["unsupported"] += fragile
        return fragile

    def statistics(self) -> dict[str, float]:
        """Rolling figures and how often each sign was fragile."""
        figures: dict[str, float] = {
            sign: self._figure(sign) for sign in SIGNS if len(self._rolling[sign])
        }
        return {**figures, **{f"{sign}_fragile": float(n) for sign, n in self.counts.items()}}

    def _figure(self, sign: Sign) -> float:
        rolling = self._rolling[sign]
        return rolling.variance if sign == "confidence" else rolling.mean

    def _note(self, sign: Sign, value: float) -> None:
        rolling = self._rolling[sign]
        rolling.add(value)
        self._since[sign] += 1
        if len(rolling) < self._settings.least:
            return
        figure, was = self._figure(sign), self.levels[sign]
        level = self._bounds[sign].level(figure)
        order = ("normal", "warn", "fragile")
        better = order.index(level) < order.index(was)
        if level == was or (better and self._since[sign] < self._settings.window // 2):
            return
        self.levels[sign] = level
        self._since[sign] = 0
        self._changed(FragilityChange(self._kb, sign, level, was, figure))
