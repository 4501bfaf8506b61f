"""Calibration: percentiles of unrelated pairs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.embedding.calibration import PERCENTILES, CosineCalibration, calibrate
from forebay.kernel.documents import Vectors


def crowded(count: int, *, pull: float = 4.0) -> Vectors:
    """Unit vectors around a common direction, as e5's are."""
    rows = np.random.default_rng(3).standard_normal((count, 32)) + pull * np.eye(32)[0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Vectors(tuple(range(count)), 32, rows.astype("<f4").tobytes())


def test_percentiles_match_all_pairs() -> None:
    vectors = crowded(150)
    found = calibrate(vectors, fingerprint="f")
    assert found is not None
    rows = np.frombuffer(vectors.data, "<f4").reshape(-1, 32)
    pairs = (rows @ rows.T)[np.triu_indices(150, 1)]
    assert found.fingerprint == "f"
    assert found.pairs > 5_000
    for percentile in (5, 50, 95):
        expected = np.percentile(pairs, percentile)
        assert found.cosine_at(percentile) == pytest.approx(expected, abs=0.02)


def test_deterministic_and_stored_as_plain_data() -> None:
    first, second = calibrate(crowded(40)), calibrate(crowded(40))
    assert first == second
    assert msgspec.json.decode(msgspec.json.encode(first), type=CosineCalibration) == first


def test_percentile_and_cosine_are_inverse_and_monotone() -> None:
    found = calibrate(crowded(200))
    assert found is not None
    for percentile in PERCENTILES:
        assert found.percentile_of(found.cosine_at(percentile)) == pytest.approx(percentile)
    grid = [found.percentile_of(c) for c in np.linspace(-1, 1, 200)]
    assert grid == sorted(grid)
    assert (grid[0], grid[-1]) == (0.0, 100.0)
    assert found.z_score(found.mean + 2 * found.deviation) == pytest.approx(2)


def test_repeated_passages_do_not_count() -> None:
    vectors = crowded(20)
    doubled = Vectors(tuple(range(40)), 32, vectors.data * 2)
    found = calibrate(doubled)
    assert found is not None
    assert found.cosines[-1] < 0.9999


def test_too_little_to_say() -> None:
    assert calibrate(crowded(7)) is None
    same = Vectors(tuple(range(9)), 32, crowded(1).data * 9)
    assert calibrate(same) is None
