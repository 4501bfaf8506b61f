"""A small judge learns what a logistic model can, in both languages."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.judging.small import (
    FEATURES,
    SmallJudge,
    SmallModel,
    features,
    fit,
    load_small,
    logistic,
)
from forebay.lab.evaluate.target import Passage

PASSAGES = (
    Passage("ferry", "The ferry leaves at nine and carries 40 cars.", 0.8, "Ferry"),
    Passage("lock", "The lock is closed in January.", 0.4),
    Passage("sluice", "水闸每天早上八点打开。", 0.2),
)


def row(question: str, at: int) -> dict[str, float]:
    return dict(zip(FEATURES, features(question, PASSAGES)[at].tolist(), strict=True))


def test_features_say_what_question_and_passage_share() -> None:
    first, second = (row("When does the ferry leave with 40 cars?", at) for at in (0, 1))
    assert first["coverage"] == pytest.approx(3 / 7) and second["coverage"] == 0.0
    assert first["lead"] > 0 > second["lead"]
    assert (first["numbers_missing"], second["numbers_missing"]) == (0.0, 1.0)
    assert first["title_coverage"] == pytest.approx(1 / 7)
    assert (first["score"], second["score"]) == (1.0, 0.5)
    assert (first["rank"], second["rank"]) == (1.0, 0.5)
    assert first["foreign"] == 0.0 and row("ferry", 2)["foreign"] == 1.0


def test_chinese_is_read_by_characters() -> None:
    found = row("水闸几点打开？", 2)
    assert found["coverage"] == pytest.approx(5 / 6) and found["pair_coverage"] > 0
    assert found["closeness"] == pytest.approx(5 / 6) and found["foreign"] == 0.0


def test_repetition_is_noticed() -> None:
    table = features("ferry", [PASSAGES[0], PASSAGES[0], PASSAGES[1]])
    at = FEATURES.index("repeats")
    assert table[0, at] == 0.0 and table[1, at] == 1.0 and table[2, at] < 0.3


@pytest.mark.parametrize("question", ["", "?!", "…"])
def test_a_question_without_words_is_judged_too(question: str) -> None:
    assert np.isfinite(features(question, PASSAGES)).all()


def test_a_fit_finds_the_model_that_made_the_scores() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(2_000, len(FEATURES)))
    weights = rng.normal(size=len(FEATURES))
    model = fit(table, logistic(table @ weights - 0.5), {"questions": 1}, l2=1e-3)
    found = np.array(model.weights) / np.array(model.scales)
    assert found == pytest.approx(weights, abs=0.02)
    shift = float(np.array(model.means) @ found)
    assert model.bias - shift == pytest.approx(-0.5, abs=0.02)


def test_scores_that_are_all_alike_are_learnt_as_such() -> None:
    table = np.zeros((30, len(FEATURES)))
    model = fit(table, np.ones(30), {})
    assert all(math.isfinite(weight) for weight in (*model.weights, model.bias))


async def test_it_judges_in_the_order_of_the_passages() -> None:
    weights = tuple(float(name == "coverage") * 5 for name in FEATURES)
    size = len(FEATURES)
    judge = SmallJudge(SmallModel((0.0,) * size, (1.0,) * size, weights, -1.0))
    found = await judge.judge(Question("1", "水闸几点打开？", "zh"), PASSAGES)
    assert [one.place for one in found.verdicts][2] == 1
    assert found.verdicts[2].score > 0.9 > found.verdicts[0].score
    assert (await judge.judge(Question("1", "?", "en"), ())).verdicts == ()


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    size = len(FEATURES)
    model = SmallModel((0.0,) * size, (1.0,) * size, (0.5,) * size, 0.1, {"questions": 3})
    path = tmp_path / "judge.json"
    path.write_bytes(msgspec.json.encode(model))
    assert load_small(path) == model
    for wrong, told in (
        (b"{}", "is no small judge"),
        (msgspec.json.encode(msgspec.structs.replace(model, schema=9)), "another version"),
        (msgspec.json.encode(msgspec.structs.replace(model, weights=(1.0,))), "another version"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ConfigError, match=told):
            load_small(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_small(tmp_path / "none.json")
