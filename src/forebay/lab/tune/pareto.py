"""The Pareto front: points that no other point beats in everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def front(costs: Floats) -> list[int]:
    """Return the rows of ``costs`` (points, objectives; less is better) that none dominates.

    One point dominates another when it is nowhere worse and somewhere better. Of equal points
    the first is kept: what was tried first needs the smaller change.
    """
    kept: list[int] = []
    for row, point in enumerate(costs):
        nowhere_worse = (costs <= point).all(axis=1)
        better = nowhere_worse & (costs < point).any(axis=1)
        equal = nowhere_worse & ~better
        if not better.any() and not equal[:row].any():
            kept.append(row)
    return kept


def order_by(costs: Floats, rows: Sequence[int], objective: int) -> list[int]:
    """Return ``rows`` from the least to the greatest cost in one objective."""
    return sorted(rows, key=lambda row: (float(costs[row, objective]), row))
