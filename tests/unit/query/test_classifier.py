"""The classifier: fitting, its file, what it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ConfigError
from forebay.query.classifier import KINDS, KindClassifier, fit
from tools.train_kinds import examples


def rows_and_kinds() -> tuple[np.ndarray, np.ndarray]:
    """Vectors that their kinds tell apart."""
    chance = np.random.default_rng(5)
    kinds = np.arange(120) % len(KINDS)
    rows = np.eye(8)[kinds] + 0.1 * chance.standard_normal((120, 8))
    return rows.astype(np.float32), kinds


def vectors(row: np.ndarray) -> Vectors:
    return Vectors((0,), len(row), row.astype("<f4").tobytes())


def test_it_learns_what_can_be_learned() -> None:
    rows, kinds = rows_and_kinds()
    classifier = KindClassifier("f", fit(rows, kinds))
    for row, kind in zip(rows, kinds, strict=True):
        shares = classifier.probabilities(vectors(row))
        assert shares is not None
        assert sum(shares.values()) == pytest.approx(1.0)
        assert max(shares, key=lambda name: shares[name]) == KINDS[kind]


def test_fitting_depends_on_the_data_alone() -> None:
    assert np.array_equal(fit(*rows_and_kinds()), fit(*rows_and_kinds()))


def test_another_size_is_not_judged() -> None:
    classifier = KindClassifier("f", fit(*rows_and_kinds()))
    assert classifier.probabilities(vectors(np.ones(9))) is None


def test_the_shipped_weights_are_of_the_builtin_embedder() -> None:
    assert KindClassifier.shipped().probabilities(vectors(np.ones(384))) is not None


@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04"])
def test_a_file_that_holds_none_says_so(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "kinds.npz"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="train_kinds"):
        KindClassifier.load(file)


def test_weights_for_other_kinds_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "kinds.npz"
    np.savez(file, fingerprint=np.array("f"), weights=np.ones((9, 2), np.float16))
    with pytest.raises(ConfigError, match="columns"):
        KindClassifier.load(file)


def test_examples_are_many_and_of_both_languages() -> None:
    shown = examples()
    count = Counter((one.kind, one.language) for one in shown)
    assert set(count) == {(kind, language) for kind in KINDS for language in ("en", "zh")}
    assert min(count.values()) >= 36
    assert len({one.text for one in shown}) == len(shown)
