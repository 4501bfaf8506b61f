"""The light encoder of queries: what it says of a query, its file, and what it is fitted by."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.embedding.light import LightDescription, LightEncoder
from forebay.embedding.light_fit import LEAST_TEXTS, LightTraining, fit_light, question_like

TOLD = LightDescription("f" * 16, 10, 100, 0.7)


def encoder() -> LightEncoder:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], np.float32)
    return LightEncoder.of(TOLD, np.array([3, 5, 9]), rows, np.array([1.0, 3.0, 1.0], np.float32))


def test_a_query_is_the_weighted_sum_of_its_tokens_at_unit_length() -> None:
    vector, known = encoder().encode([3, 5])
    assert known == 1.0 and vector.shape == (1, 2)
    assert np.allclose(vector, np.array([[1.0, 3.0]]) / np.sqrt(10.0), atol=1e-2)


def test_unknown_tokens_weigh_as_the_median_of_the_known() -> None:
    vector, known = encoder().encode([4, 5, 1000])
    assert np.allclose(vector, [[0.0, 1.0]]) and known == pytest.approx(3.0 / 5.0)


@pytest.mark.parametrize("tokens", [[], [4], [1000], [3, 9]])
def test_what_has_no_direction_is_known_for_nothing(tokens: list[int]) -> None:
    vector, known = encoder().encode(tokens)
    assert known == 0.0 and not vector.any()


def test_a_file_gives_the_same_encoder(tmp_path: Path) -> None:
    path = tmp_path / "light" / "one.npz"
    encoder().write(path)
    found = LightEncoder.read(path)
    assert found is not None and found.description == TOLD and found.tokens == 3
    assert np.array_equal(found.encode([3, 5, 7])[0], encoder().encode([3, 5, 7])[0])
    assert [one.name for one in path.parent.iterdir()] == ["one.npz"]


def test_a_file_that_is_none_of_ours_is_none(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    assert LightEncoder.read(path) is None
    encoder().write(path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert LightEncoder.read(path) is None
    np.savez(tmp_path / "other.npz", ids=np.arange(3))
    assert LightEncoder.read(tmp_path / "other.npz") is None


def teacher(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows and weights that are to be found again."""
    chance = np.random.default_rng(seed)
    weights = np.where(np.arange(40) < 5, 0.05, 1.0)
    return chance.normal(size=(40, 16)).astype(np.float32), weights.astype(np.float32)


def taught(seed: int, texts: int) -> tuple[list[list[int]], NDArray[np.float32]]:
    rows, weights = teacher(1)
    chance = np.random.default_rng(seed)
    tokens = [chance.integers(0, 40, chance.integers(2, 9)).tolist() for _ in range(texts)]
    sums = np.stack([weights[text] @ rows[text] for text in tokens])
    return tokens, (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)


def test_fitting_finds_the_vectors_of_texts_it_has_not_seen() -> None:
    training = LightTraining(epochs=12, rate=2e-2)
    before = fit_light(*taught(2, 2000), LightTraining(epochs=0))
    fitted = fit_light(*taught(2, 2000), training)
    assert before is not None and fitted is not None
    assert fitted.cosine > 0.95 > before.cosine
    encoder = LightEncoder.of(TOLD, fitted.ids, fitted.rows, fitted.weights)
    tokens, wanted = taught(3, 50)
    found = np.concatenate([encoder.encode(text)[0] for text in tokens])
    assert float((found * wanted).sum(axis=1).mean()) > 0.95
    assert fitted.weights[:5].max() < fitted.weights[5:].min(), "what says nothing weighs little"


def test_the_same_texts_give_the_same_encoder_and_few_give_none() -> None:
    one, two = (fit_light(*taught(2, 200), LightTraining(epochs=1)) for _ in range(2))
    assert one is not None and two is not None and np.array_equal(one.rows, two.rows)
    assert fit_light(*taught(2, LEAST_TEXTS - 1), LightTraining()) is None


def test_a_fit_ends_within_a_batch_when_it_is_stopped() -> None:
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) == 3

    assert fit_light(*taught(2, 2000), LightTraining(), stopped) is None
    assert len(asked) == 3


@pytest.mark.parametrize(
    "sentence",
    ["The boiler is serviced once a year by the technician.", "退货需要在收到商品后七天内申请。"],
)
def test_pieces_are_put_as_questions_in_the_sentences_language(sentence: str) -> None:
    asked = {question_like(sentence, random.Random(seed)) for seed in range(50)}
    assert len(asked) > 20
    han = "退" in sentence
    assert all(any("\u4e00" <= one <= "\u9fff" for one in text) == han for text in asked)
    assert any(text.endswith("？" if han else "?") for text in asked)


@pytest.mark.parametrize("sentence", ["", "a", "。", "中", "?!", "   ", "x" * 500])
def test_odd_sentences_are_put_as_questions_too(sentence: str) -> None:
    assert all(question_like(sentence, random.Random(seed)) for seed in range(20))
