"""Sums of step times that lie on a straight line, and their inverse, in closed form.

Step j of a run takes ``intercept + slope * (context + j * growth)`` seconds.
"""

from __future__ import annotations

import math


def line_seconds(
    intercept: float, slope: float, context: float, growth: float, steps: int
) -> float:
    """The first ``steps`` steps together."""
    return steps * (intercept + slope * (context + 0.5 * growth * (steps - 1)))


def line_steps(
    intercept: float, slope: float, context: float, growth: float, seconds: float
) -> int:
    """How many whole steps fit ``seconds``, within one for rounding (callers correct it).

    From ``half * n^2 + (first - half) * n = seconds`` with ``first`` the first step's time and
    ``half`` half of what each step adds; of the root's two forms the one without cancellation.
    """
    half = 0.5 * slope * growth
    linear = intercept + slope * context - half
    root = math.sqrt(linear * linear + 4 * half * seconds)
    if linear > 0:
        return int(2 * seconds / (linear + root))
    return int((root - linear) / (2 * half))
