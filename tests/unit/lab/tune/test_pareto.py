"""The front."""

from __future__ import annotations

import numpy as np

from forebay.lab.tune.pareto import front, order_by


def test_what_something_else_beats_is_not_on_the_front() -> None:
    # F3.5, as (requests a second, P99): IVF-PQ is faster and sooner than both graphs, and what it
    # loses in recall brings the graphs back.
    speed = np.asarray([(-1842.0, 63.0), (-1521.0, 117.0), (-2105.0, 48.0)])
    assert front(speed) == [2]
    recall = np.asarray([[-0.97], [-0.99], [-0.93]])
    assert front(np.hstack([speed, recall])) == [0, 1, 2]


def test_of_equal_points_the_first_is_kept() -> None:
    assert front(np.asarray([(1.0, 2.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)])) == [0, 2]


def test_the_front_of_nothing_is_empty() -> None:
    assert front(np.empty((0, 3))) == []


def test_the_front_is_what_no_pair_of_random_points_contradicts() -> None:
    points = np.random.default_rng(5).random((60, 3))
    kept = set(front(points))
    for one in range(60):
        beaten = any(
            (points[other] <= points[one]).all() and (points[other] < points[one]).any()
            for other in range(60)
        )
        assert (one in kept) is not beaten


def test_rows_are_ordered_by_one_cost() -> None:
    costs = np.asarray([(3.0, 0.0), (1.0, 1.0), (2.0, 2.0)])
    assert order_by(costs, [0, 1, 2], 0) == [1, 2, 0]
