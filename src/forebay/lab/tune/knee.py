"""The knee of a front: where giving up a little more buys least.

Each objective is put on a scale from 0 (the front's worst) to 1 (its best). In two dimensions the
front's ends are then (0, 1) and (1, 0), and the knee is the point farthest above the chord between
them (Satopaa and others, "Kneedle", 2011); in more, the one farthest above the plane through the
points that are best in one objective and worst in all others (Das, 1999): both are the point with
the greatest sum of scaled gains, (sum - 1) / sqrt(n) away. Costs that span orders of magnitude
(latency, memory) come as logarithms, so that halving counts the same anywhere: that is how F2.8
(nprobe 8, 32, 128) and F3.5 (M 16 to 64) are read.
"""

from __future__ import annotations

import math

import numpy as np

from forebay.lab.tune.pareto import Floats


def distances(costs: Floats) -> Floats:
    """Return how far each row of a front (points, objectives; less is better) is above the chord.

    Objectives in which all points are alike say nothing and are left out. Negative below it.
    """
    spans = costs.max(axis=0) - costs.min(axis=0)
    told = spans > 0
    if not told.any():
        return np.zeros(len(costs))
    gains = (costs.max(axis=0)[told] - costs[:, told]) / spans[told]
    above: Floats = (gains.sum(axis=1) - 1.0) / math.sqrt(int(told.sum()))
    return above


def knee(costs: Floats) -> int:
    """Return the row of the knee; the first of equals. ``ValueError`` for a front of nothing."""
    if not len(costs):
        raise ValueError("a front of nothing has no knee")
    return int(np.argmax(distances(costs)))
