"""Candidates as examples: targets, weights, halves, measures."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.lab.distill.light import LightTraining, first_parameters
from forebay.lab.distill.light_data import (
    LightRow,
    calibrated,
    curves_of,
    examples_of,
    is_held_out,
    measured,
    ndcg_of,
    scores_of,
)

SMALL = LightTraining(dimensions=4)


def row(group: str, relevant: tuple[int, ...], count: int = 4, seed: int = 0) -> LightRow:
    chance = np.random.default_rng(seed)
    features = chance.standard_normal((count, 5)).astype(np.float32)
    features[:, -2] = 0.0
    features[:, 0] = np.linspace(1, 0, count)
    documents = tuple(f"d{number}" for number in range(count))
    return LightRow(
        group,
        f"question {seed}",
        features,
        chance.standard_normal(6).astype(np.float32),
        chance.standard_normal((count, 6)).astype(np.float32),
        documents,
        {documents[place]: 1 for place in relevant},
        False,
    )


def test_labels_share_evenly_and_a_teacher_by_its_scores() -> None:
    labelled = row("a", (1, 2))
    taught = msgspec.structs.replace(row("a", (), 3), teacher=(0.0, 2.0, 0.0))
    made = examples_of([labelled, taught, row("a", ())])
    assert made.target.shape == (2, 4), "a row that says nothing is left out"
    assert made.target[0].tolist() == [0.0, 0.5, 0.5, 0.0]
    assert made.target[1].sum() == pytest.approx(1.0) and made.target[1].argmax() == 1
    assert made.mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    soft = examples_of([taught], temperature=4.0)
    assert soft.target[0].max() < made.target[1].max()


def test_labels_beside_a_teacher_are_heard_by_half() -> None:
    both = msgspec.structs.replace(row("a", (1, 2)), teacher=(0.0, 0.0, 0.0, 0.0))
    assert examples_of([both]).target[0].tolist() == pytest.approx([0.125, 0.375, 0.375, 0.125])
    assert examples_of([both], label_share=0.0).target[0].tolist() == pytest.approx([0.25] * 4)
    assert examples_of([both], label_share=1.0).target[0].tolist() == [0.0, 0.5, 0.5, 0.0]


def test_a_row_whose_sentences_were_read_is_learned_without_them_too() -> None:
    rows = [row("a", (0,), 8, seed=n) for n in range(9)]
    read = [msgspec.structs.replace(one, features=one.features.copy()) for one in rows]
    for one in read:
        one.features[:, -2] = 1.0
    made = examples_of([*read, *rows[:2]])
    assert made.features[:, 0, -2].tolist() == [1.0] * 9 + [0.0] * 11
    assert not made.features[11:, :, -3].any() and made.features[:11, :, -3].all()
    parameters = first_parameters(made, SMALL)
    assert len(curves_of(parameters, rows)) == 1
    plain, with_sentences = curves_of(parameters, read)
    assert with_sentences == calibrated(parameters, read) and np.isfinite(plain).all()


def test_groups_weigh_by_the_square_root_of_their_questions() -> None:
    rows = [*(row("large", (0,), seed=n) for n in range(16)), row("small", (0,))]
    weight = examples_of(rows).weight
    assert weight[-1] == pytest.approx(4 * weight[0])
    assert weight.mean() == pytest.approx(1.0)


def test_halves_are_told_by_the_text_alone() -> None:
    texts = [f"question {number}" for number in range(400)]
    held = sum(map(is_held_out, texts))
    assert 150 < held < 250
    assert [is_held_out(text) for text in texts] == [is_held_out(text) for text in texts]


def test_measures_are_of_the_order_by_scores() -> None:
    rows = [row("a", (3,)), row("b", (0,))]
    up = [np.arange(4, dtype=np.float32)] * 2
    assert ndcg_of(rows, None, 10).tolist() == pytest.approx([1 / np.log2(5), 1.0])
    assert ndcg_of(rows, up, 10).tolist() == pytest.approx([1.0, 1 / np.log2(5)])
    found = measured(rows, up, 10)
    assert found["a"].gain > 0 > found["b"].gain
    assert found["a"].questions == 1


def test_scores_of_rows_do_not_depend_on_their_neighbours() -> None:
    rows = [row("a", (0,), 4, seed=1), row("a", (1,), 2, seed=2)]
    parameters = first_parameters(examples_of(rows), LightTraining(dimensions=4))
    together = scores_of(parameters, rows)
    assert [len(scores) for scores in together] == [4, 2]
    assert scores_of(parameters, rows[1:])[0] == pytest.approx(together[1])
    middle, width = calibrated(parameters, rows)
    assert np.isfinite(middle) and width > 0


def test_without_labels_relevance_is_what_the_teacher_told() -> None:
    rows = [row("a", (), 8, seed=n) for n in range(40)]
    parameters = first_parameters(examples_of([row("a", (0,), 8)]), SMALL)
    scores = scores_of(parameters, rows)
    taught = [
        msgspec.structs.replace(one, teacher=tuple((3 * (own - own.mean()) - 2).tolist()))
        for one, own in zip(rows, scores, strict=True)
    ]
    middle, width = calibrated(parameters, taught)
    told = 1 / (1 + np.exp(-np.concatenate([one.teacher for one in taught])))
    found = 1 / (1 + np.exp(-(np.concatenate(scores) - middle) / width))
    assert found.mean() == pytest.approx(told.mean(), abs=0.02)
    assert (found < 0.3).mean() == pytest.approx((told < 0.3).mean()), (
        "a floor drops what the teacher thinks little of"
    )
    labelled = msgspec.structs.replace(taught[0], relevance={"d0": 1})
    assert calibrated(parameters, [labelled, *taught]) == calibrated(parameters, [labelled])
