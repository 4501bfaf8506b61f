"""Training of the late-interaction head: exact slopes, and a head that learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from forebay.lab.distill.late import (
    Floats,
    LateExample,
    LateHead,
    LateTraining,
    initial_head,
    late_scores,
    loss_and_slopes,
    train_late,
)

SETTINGS = LateTraining(dimensions=8, epochs=15, batch=8, learning_rate=0.02, seed=3)


def states(random: np.random.Generator, tokens: int, inputs: int = 12) -> Floats:
    return random.standard_normal((tokens, inputs)).astype(np.float64)


def example(random: np.random.Generator, teacher: bool) -> LateExample:
    passages = tuple(states(random, tokens) for tokens in (3, 5, 2))
    scores = tuple(random.standard_normal(3).tolist()) if teacher else ()
    prior = tuple(random.standard_normal(3).tolist()) if teacher else ()
    return LateExample(states(random, 4), passages, (False, True, False), scores, prior)


def precise(head: LateHead) -> LateHead:
    values: Any = {name: value.astype(np.float64) for name, value in head.arrays().items()}
    return LateHead(**values)


@pytest.mark.parametrize("teacher_share", [0.0, 0.5, 1.0])
def test_slopes_are_those_of_the_loss(teacher_share: float) -> None:
    random = np.random.default_rng(5)
    examples = [example(random, teacher=index != 1) for index in range(3)]
    head = precise(initial_head(examples, SETTINGS))
    head.weight += 0.1 * random.standard_normal(head.weight.shape)
    _, slopes = loss_and_slopes(head, examples, teacher_share)
    step = 1e-6
    for name, values in head.arrays().items():
        flat, slope = values.reshape(-1), slopes[name].reshape(-1)
        for place in random.permutation(flat.size)[:10]:
            kept = flat[place]
            flat[place] = kept + step
            above, _ = loss_and_slopes(head, examples, teacher_share)
            flat[place] = kept - step
            below, _ = loss_and_slopes(head, examples, teacher_share)
            flat[place] = kept
            assert slope[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7)


def matching(random: np.random.Generator, count: int) -> list[LateExample]:
    """The relevant passage holds a query token's first half; the second half is noise."""
    made = []
    for _ in range(count):
        query = states(random, 3).astype(np.float32)
        passages = [states(random, 4).astype(np.float32) for _ in range(4)]
        right = int(random.integers(4))
        for row in range(3):
            passages[right][row, :4] = query[row, :4]
        relevant = tuple(place == right for place in range(4))
        made.append(LateExample(query, tuple(passages), relevant))
    return made


def accuracy(head: LateHead, examples: Sequence[LateExample]) -> float:
    return float(
        np.mean(
            [
                each.relevant[int(late_scores(head, each.query, each.passages).argmax())]
                for each in examples
            ]
        )
    )


def test_a_head_learns_which_part_of_a_state_matters() -> None:
    random = np.random.default_rng(11)
    training, others = matching(random, 400), matching(random, 120)
    losses: list[float] = []
    head = train_late(training, SETTINGS, lambda _, loss: losses.append(loss))
    assert losses[-1] < losses[0] / 2
    assert accuracy(head, others) > accuracy(initial_head(training, SETTINGS), others) + 0.05
    assert accuracy(head, others) > 0.9


def test_a_teacher_alone_is_followed() -> None:
    random = np.random.default_rng(12)
    taught = [
        LateExample(e.query, e.passages, (False,) * 4, tuple(4.0 * r for r in e.relevant))
        for e in matching(random, 400)
    ]
    head = train_late(taught, msgspec.structs.replace(SETTINGS, teacher_share=1.0))
    assert accuracy(head, matching(random, 120)) > 0.9


def test_the_same_examples_give_the_same_head() -> None:
    examples = matching(np.random.default_rng(13), 10)
    short = msgspec.structs.replace(SETTINGS, epochs=1)
    first, second = train_late(examples, short), train_late(examples, short)
    for name, values in first.arrays().items():
        assert np.array_equal(values, second.arrays()[name])
