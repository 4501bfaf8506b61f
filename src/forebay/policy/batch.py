"""How much work goes into a batch or a pool, from the slope of throughput and memory (F2.13).

slope < -0.15 and memory > 0.82: x 0.75; slope > 0.12 and memory < 0.65: x 1.2. Slope is the
relative first difference of throughput between two looks; memory the share in use (the engine's
KV cache, or the GPU's). Retrieval concurrency follows what generation can take, by Little's law:
N = decode throughput (requests/s) x retrieval time (s).
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta


class BatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds and factors; defaults are F2.13."""

    shrink_slope: Annotated[float, Meta(description="Falling faster than this …")] = -0.15
    shrink_memory: Annotated[float, Meta(description="… with more memory used: shrink.")] = 0.82
    shrink_factor: Annotated[float, Meta(description="Factor of shrinking.", gt=0, lt=1)] = 0.75
    grow_slope: Annotated[float, Meta(description="Rising faster than this …")] = 0.12
    grow_memory: Annotated[float, Meta(description="… with less memory used: grow.")] = 0.65
    grow_factor: Annotated[float, Meta(description="Factor of growing.", gt=1)] = 1.2
    least: Annotated[float, Meta(description="Smallest size.", gt=0)] = 1.0
    most: Annotated[float, Meta(description="Largest size.", gt=0)] = 1024.0
    period_s: Annotated[float, Meta(description="Seconds between two looks.", gt=0)] = 5.0


class BatchSize:
    """A size that follows throughput and memory."""

    __slots__ = ("_exact", "_last_at", "_last_rate", "_settings")

    def __init__(self, settings: BatchSettings, initial: float) -> None:
        self._settings = settings
        self._exact = min(settings.most, max(settings.least, initial))
        self._last_rate: float | None = None
        self._last_at = -math.inf

    @property
    def size(self) -> int:
        """The size now, at least 1."""
        return max(1, int(self._exact))

    def look(self, throughput: float, memory: float, now: float) -> int:
        """Take throughput (any unit, a second) and memory use (0..1); at most once a period."""
        if now - self._last_at < self._settings.period_s:
            return self.size
        last, self._last_rate, self._last_at = self._last_rate, throughput, now
        if last is None or last <= 0:
            return self.size
        slope = (throughput - last) / last
        settings = self._settings
        if slope < settings.shrink_slope and memory > settings.shrink_memory:
            self._exact *= settings.shrink_factor
        elif slope > settings.grow_slope and memory < settings.grow_memory:
            self._exact *= settings.grow_factor
        self._exact = min(settings.most, max(settings.least, self._exact))
        return self.size


def concurrency_for(rate_per_s: float, time_s: float, least: int = 1, most: int = 1024) -> int:
    """Little's law: how many are in work at once (F0.3: 120/s x 43 ms = 5.2, so 6)."""
    return min(most, max(least, math.ceil(rate_per_s * time_s - 1e-9)))
