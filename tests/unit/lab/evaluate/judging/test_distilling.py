"""A small judge is made of judgements, checked on questions it has not seen, and refused on few."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.judging.distilling import distill
from forebay.lab.evaluate.judging.verdicts import JudgedPassage, JudgedQuestion, Verdict
from forebay.lab.evaluate.target import Passage

WORDS = {
    "en": "ferry lock sluice dam gate pump crane valve rotor shaft barge quay".split(),
    "zh": "渡船 船闸 水闸 大坝 闸门 水泵 吊车 阀门 转子 主轴 驳船 码头".split(),
}


def judged(number: int, chance: random.Random, noise: float = 0.05) -> JudgedQuestion:
    """Three words are asked for; a passage is as good as the share of them that it holds."""
    language = "zh" if number % 2 else "en"
    words = WORDS[language]
    asked = chance.sample(words, 3)
    passages = []
    for rank in range(1, 6):
        said = chance.sample(words, 5)
        good = len(set(said) & set(asked)) / 3
        score = min(1.0, max(0.0, good + chance.gauss(0, noise)))
        text = "，".join(said) if language == "zh" else " ".join(said)
        passages.append(
            JudgedPassage(
                Passage("d", text, 1 / rank), Verdict(score, score), rank, int(good > 0.5)
            )
        )
    question = "".join(asked) if language == "zh" else " ".join(asked)
    return JudgedQuestion("s", str(number), f"{question} {number}", language, tuple(passages))


def test_a_small_judge_agrees_with_its_teacher_on_what_it_has_not_seen() -> None:
    chance = random.Random(1)
    model, found = distill([judged(number, chance) for number in range(300)], VirtualClock())
    assert found.trained_questions + found.held_out_questions == 300
    assert 60 <= found.held_out_questions <= 120
    assert found.correlation > 0.8 and found.small_with_judge.kappa > 0.6
    assert found.small_with_labels.pairwise > 0.85 and found.judge_with_labels.pairwise > 0.95
    assert model.trained_on == {
        "questions": found.trained_questions,
        "passages": 5 * found.trained_questions,
    }
    assert found.weights["coverage"] > 0 and set(found.weights) == set(model.features)


def test_which_questions_are_held_out_depends_on_their_text_alone() -> None:
    made = [judged(number, random.Random(number)) for number in range(120)]
    _, found = distill(made, VirtualClock())
    twice = [msgspec.structs.replace(one, set="other") for one in made]
    _, again = distill([*made, *twice], VirtualClock())
    assert again.held_out_questions == 2 * found.held_out_questions


def test_inconsistent_judgements_teach_nothing() -> None:
    made = [judged(number, random.Random(number)) for number in range(120)]
    wrong = [msgspec.structs.replace(one, consistency=0.2) for one in made]
    model, found = distill([*made, *wrong], VirtualClock())
    alone, _ = distill(made, VirtualClock())
    assert found.left_out == 120 and model == alone


@pytest.mark.parametrize("score", [0.0, 0.1, 1.0])
def test_a_judge_that_says_the_same_of_all_teaches_nothing_and_breaks_nothing(score: float) -> None:
    made = [judged(number, random.Random(number)) for number in range(120)]
    same = Verdict(score, score)
    flat = [
        msgspec.structs.replace(
            one,
            passages=tuple(msgspec.structs.replace(each, verdict=same) for each in one.passages),
        )
        for one in made
    ]
    model, found = distill(flat, VirtualClock())
    assert found.spread < 1e-9 and found.correlation == 0.0
    assert math.isnan(found.small_with_judge.kappa)
    assert found.small_with_labels.pairwise == pytest.approx(0.5, abs=0.02)
    assert all(math.isfinite(weight) for weight in (*model.weights, model.bias))
    assert msgspec.json.decode(msgspec.json.encode(found))["small_with_judge"]["kappa"] is None


def test_too_few_are_refused_and_told_of_those_left_out() -> None:
    made = [judged(number, random.Random(number)) for number in range(40)]
    wrong = [msgspec.structs.replace(one, consistency=0.0) for one in made]
    with pytest.raises(ConfigError, match=r"of each \(40 more contradict themselves\)"):
        distill([*made, *wrong], VirtualClock())


def test_too_few_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few; there must be 20 of each"):
        distill([judged(number, random.Random(number)) for number in range(40)], VirtualClock())
