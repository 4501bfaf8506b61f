"""What is learned from requests: what follows what, what is asked often, for each segment apart."""

from __future__ import annotations

import random
from collections.abc import Hashable

import msgspec
import pytest

from forebay.cache.prewarm import PAUSE_S, Asked, BackOff, Learner, PrewarmSettings, Question

HOUR = 3600.0


def question(text: str, tenant: str = "t", groups: tuple[str, ...] | None = None) -> Question:
    return Question(tenant, groups, "", "kb", text, 5)


def asked(
    at: float, text: str, who: str = "u", tenant: str = "t", cold_s: float | None = 0.02
) -> Asked:
    return Asked(at, who, "fact-normal", question(text, tenant), cold_s)


def learner(**changes: float) -> Learner:
    settings = msgspec.structs.replace(PrewarmSettings(enabled=True), **changes)
    return Learner(settings, HOUR)


def walk(model: Learner, times: int, *texts: str, tenant: str = "t", at: float = 0.0) -> float:
    """Users who ask one after the other, each all of the texts."""
    for turn in range(times):
        for text in texts:
            at += 10.0
            model.learn(asked(at, text, f"{tenant}{turn}", tenant))
        at += PAUSE_S / 10
    return at


def test_probabilities_are_probabilities() -> None:
    chance = random.Random(1)
    model: BackOff[int] = BackOff()
    for _ in range(2000):
        first, second = chance.randrange(3), chance.randrange(5)
        model.learn([(), ("a", first), ("b", first, chance.randrange(2))], second)
    contexts: list[list[Hashable]] = [[()], [(), ("a", 1)], [(), ("a", 1), ("b", 1, 0)]]
    for context in contexts:
        found = model.foretell(context, 10)
        assert sum(confidence for _, confidence in found) <= 1.0 + 1e-9
        assert [one[1] for one in found] == sorted((one[1] for one in found), reverse=True)


def test_a_context_seen_once_is_not_trusted() -> None:
    model: BackOff[str] = BackOff()
    model.learn([(), ("after", "a")], "b")
    assert model.foretell([(), ("after", "a")], 1)[0][1] < 0.85
    for _ in range(9):
        model.learn([(), ("after", "a")], "b")
    assert model.foretell([(), ("after", "a")], 1)[0][1] >= 0.85


def test_an_unknown_context_falls_back() -> None:
    model: BackOff[str] = BackOff()
    model.learn([(), ("after", "a")], "b")
    assert model.foretell([(), ("after", "z")], 1)[0][0] == "b"
    assert model.foretell([("other",)], 1) == []


def test_memory_is_bounded_and_what_is_frequent_stays() -> None:
    model: BackOff[int] = BackOff(most=1000)
    for number in range(20_000):
        model.learn([("rare", number)], number)
        model.learn([("often",)], number % 3)
    assert len(model) <= 1000
    assert {symbol for symbol, _ in model.foretell([("often",)], 3)} == {0, 1, 2}


def test_a_walk_that_repeats_is_foretold() -> None:
    model = learner()
    at = walk(model, 20, "how do I return it?", "who pays the postage?", "when is it refunded?")
    model.learn(asked(at, "How do I return it", "new"))
    found = model.next("new", question(""), at)
    assert [one.question.text for one in found] == ["who pays the postage?"]
    assert found[0].confidence >= 0.85


def test_what_has_no_order_is_not_foretold() -> None:
    model, chance = learner(), random.Random(1)
    at = 0.0
    for number in range(3000):
        at += 1.0
        model.learn(asked(at, f"question {chance.randrange(20)}", f"u{number % 50}"))
        assert not model.next(f"u{number % 50}", question(""), at)


def test_nobody_is_foretold_what_another_segment_asks() -> None:
    model = learner()
    at = walk(model, 50, "one?", "two?", tenant="a")
    model.learn(asked(at, "one?", "x", "b"))
    assert model.next("x", question("", "b"), at) == []
    assert all(one.question.tenant in ("a", "b") for one in model.hot(2, at, 100))
    assert not any(one.question.tenant == "b" for one in model.hot(2, at, 100))


def test_who_was_silent_begins_anew() -> None:
    model = learner()
    at = walk(model, 20, "one?", "two?")
    model.learn(asked(at, "one?", "x"))
    assert model.next("x", question(""), at + PAUSE_S - 1)
    assert not model.next("x", question(""), at + PAUSE_S + 1)


def test_quick_searches_are_not_worth_it() -> None:
    model = learner(min_ms=5.0)
    for number in range(40):
        model.learn(asked(number, "one?", f"u{number}", cold_s=0.001))
        model.learn(asked(number, "two?", f"u{number}", cold_s=0.001))
    model.learn(asked(50.0, "one?", "x", cold_s=None))
    assert not model.next("x", question(""), 50.0)
    assert not model.hot(2, 50.0, 10)


def test_hot_is_what_is_asked_within_a_life_with_confidence() -> None:
    model = learner()
    for minute in range(120):
        model.learn(asked(minute * 60.0, "often?", f"u{minute}"))
        if minute in (0, 60):
            model.learn(asked(minute * 60.0, "rarely?", f"u{minute}"))
    found = model.hot(2, 2 * HOUR, 10)
    assert [one.question.text for one in found] == ["often?"]
    # A day of silence later nothing is sure any more.
    assert model.hot(2, 40 * 24 * HOUR, 10) == []


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_stages(stage: int) -> None:
    model = learner()
    at = 0.0
    for turn in range(20):
        for number in range(30):
            at += 1.0
            model.learn(asked(at, f"question {number}?", f"u{number}-{turn}"))
    assert len(model.hot(stage, at, 1000)) == 30
    assert len(model.hot(stage, at, 3)) == 3
    last = model.hot(2, at, 1)[0].question.text
    assert last == "question 29?"


def test_what_follows_something_comes_first_at_first() -> None:
    model = learner()
    at = 0.0
    for turn in range(10):
        for number in range(12):
            at += 1.0
            model.learn(asked(at, f"often {number}?", f"a{number}-{turn}"))
            model.learn(asked(at, f"often {number}?", f"b{number}-{turn}"))
    for turn in range(9):
        at += 1.0
        model.learn(asked(at, "often 0?", f"c{turn}"))
        model.learn(asked(at, "then?", f"c{turn}"))
    first = [{one.question.text for one in model.hot(stage, at, 6)} for stage in (0, 1)]
    assert "then?" in first[0] and "then?" not in first[1]


def test_a_clock_that_is_set_back_makes_nothing_likelier() -> None:
    sure = []
    for back in (0.0, HOUR):
        model = learner(confidence=0.0)
        for number in range(40):
            model.learn(asked(1e6 + 100.0 * number, "seldom" if number % 20 else "often"))
        model.learn(asked(1e6 + 4000.0 - back, "often"))
        found = model.hot(2, 1e6 + 4010.0 - back, 10)
        sure.append({one.question.text: one.confidence for one in found})
    assert sure[0] == pytest.approx(sure[1], abs=0.02)


def test_statistics_and_odd_times() -> None:
    model = learner()
    model.learn(asked(100.0, "one?"))
    model.learn(asked(50.0, "one?"))  # a clock that was set back
    assert model.statistics()["questions"] == 1
    assert model.hot(0, 0.0, 10) == [] or model.hot(0, 0.0, 10)[0].confidence <= 1.0
    assert model.next_kind("u", question(""), 60.0) is not None
