"""The knee."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.lab.tune.knee import distances, knee


def test_the_knee_of_a_curve_is_where_its_slope_is_that_of_the_chord() -> None:
    # (t, (1 - sqrt t)^2): the sum of gains is 1 + 2 sqrt t - 2 t, greatest at t = 1/4.
    t = np.linspace(0, 1, 101)
    front = np.column_stack([t, (1 - np.sqrt(t)) ** 2])
    assert t[knee(front)] == pytest.approx(0.25)
    assert distances(front).max() == pytest.approx(0.5 / math.sqrt(2))


def test_units_do_not_move_it() -> None:
    t = np.linspace(0, 1, 101)
    front = np.column_stack([1000 * t + 7, 1e-6 * (1 - np.sqrt(t)) ** 2])
    assert t[knee(front)] == pytest.approx(0.25)


def test_three_objectives_and_one_that_says_nothing() -> None:
    ends = [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)]
    front = np.asarray([*ends, (0.3, 0.3, 0.3)])
    assert knee(front) == 3
    assert distances(front)[:3] == pytest.approx([0.0, 0.0, 0.0])
    flat = np.asarray([(0.0, 1.0, 5.0), (0.2, 0.2, 5.0), (1.0, 0.0, 5.0)])
    assert knee(flat) == 1


def test_as_logarithms_the_middle_of_f2_8_is_its_knee() -> None:
    # nprobe 8, 32, 128: P99 of F2.8, with recall as it saturates.
    p99_ms, recall = np.asarray([18.0, 43.0, 117.0]), np.asarray([0.80, 0.93, 0.96])
    assert knee(np.column_stack([-recall, np.log(p99_ms)])) == 1


def test_one_point_is_its_own_knee_and_none_has_none() -> None:
    assert knee(np.asarray([(1.0, 2.0)])) == 0
    assert knee(np.asarray([(1.0, 2.0), (1.0, 2.0)])) == 0
    with pytest.raises(ValueError, match="no knee"):
        knee(np.empty((0, 2)))
