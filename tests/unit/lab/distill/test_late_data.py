"""What late interaction learns from: the answers, the hardest others, some of the rest."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.lab.distill.late import initial_head
from forebay.lab.distill.late_data import (
    BESIDE,
    TRAINING,
    LateRow,
    calibrated,
    example_of,
    ordering_scores,
    scores_of,
    taught_by_states,
    thinned,
)

SIZE = 12


def row(relevant: tuple[int, ...], count: int = 40, seed: int = 0) -> LateRow:
    """Passages whose tokens are noise, but for a token of the question's in the relevant ones."""
    chance = np.random.default_rng(seed)
    query = chance.standard_normal((4, SIZE)).astype(np.float16)
    passages = [chance.standard_normal((6, SIZE)).astype(np.float16) for _ in range(count)]
    for at in relevant:
        passages[at][:4] = query
    documents = tuple(f"d{at}" for at in range(count))
    fused = tuple(np.linspace(0.5, 0.4, count).tolist())
    relevance = {f"d{at}": 1 for at in relevant}
    return LateRow("set", query, tuple(passages), documents, relevance, fused, held_out=False)


def test_answers_and_the_best_others_are_kept_and_some_of_the_rest() -> None:
    [kept] = thinned([row((20,))], seed=3)
    assert kept.documents[0] == "d20" and kept.documents[1:7] == tuple(f"d{i}" for i in range(6))
    assert len(set(kept.documents)) == 13
    assert all(6 <= int(name[1:]) <= 30 and name != "d20" for name in kept.documents[7:])
    assert [kept.fused[0]] == [row((20,)).fused[20]]
    assert thinned([row((20,))], seed=3)[0].documents == kept.documents
    assert len(thinned([row((0,), count=3)], seed=3)[0].documents) == 3


def test_all_dimensions_beside_the_search_are_a_teacher() -> None:
    rows = [row((5,), 10, seed) for seed in range(20)]
    taught = taught_by_states(rows)
    assert all(np.argmax(one.teacher) == 5 for one in taught)
    alike = msgspec.structs.replace(rows[0], fused=(0.0,) * 10)
    assert taught_by_states([alike, *rows[1:]])[0].teacher[0] < taught[0].teacher[0]


def test_what_orders_is_late_alone_or_beside_the_search() -> None:
    one = row((2,), 3)
    scores = [np.array([0.1, 0.2, 0.9])]
    [alone] = ordering_scores([one], scores, "alone")
    [beside] = ordering_scores([one], scores, "beside")
    assert alone.tolist() == pytest.approx([0.1, 0.2, 0.9])
    assert beside.tolist() == pytest.approx((np.array(one.fused) + BESIDE * scores[0]).tolist())


def test_the_curve_follows_labels_or_else_the_teacher() -> None:
    rows = [row((5,), 10, seed) for seed in range(20)]
    head = initial_head([example_of(one) for one in rows], TRAINING)
    scores = scores_of(head, rows)
    middle, width = calibrated(rows, scores)
    right = [one[5] for one in scores]
    wrong = [np.delete(one, 5).max() for one in scores]
    assert max(wrong) < middle < min(right) and width > 0
    doubting = tuple(-3.0 for _ in range(10))
    bare = [msgspec.structs.replace(one, relevance={}, teacher=doubting) for one in rows]
    assert calibrated(bare, scores)[0] > max(map(float, np.concatenate(scores)))
