"""The load from words of the command line: defaults, files with changes, contradictions."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from forebay.app.loads import ANSWER_TOKENS, DURATION_S, RATE_PER_S, LoadWords, build_load
from forebay.kernel.errors import ConfigError
from forebay.lab.workload.arrivals import GammaArrivals, PoissonArrivals, PulseArrivals

FILE = """
[arrivals]
kind = "constant"
rate = 3
duration_s = 4

[[kinds]]
name = "light"
input_tokens = 10
"""
CLOSED = FILE.replace('[arrivals]\nkind = "constant"\nrate = 3', "[closed_loop]\nusers = 2")


def written(tmp_path: Path, text: str = FILE) -> Path:
    path = tmp_path / "load.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_said_is_gentle() -> None:
    load = build_load(LoadWords())
    assert load.spec.arrivals == PoissonArrivals(rate=RATE_PER_S, duration_s=DURATION_S)
    assert [kind.name for kind in load.spec.kinds] == ["light"]


def test_words_shape_the_load() -> None:
    load = build_load(LoadWords(arrivals="gamma", rate=5.0, duration=2.0, deadline=0.5))
    assert load.spec.arrivals == GammaArrivals(rate=5.0, duration_s=2.0)
    assert load.spec.kinds[0].deadline_s == 0.5


def test_the_exam_brings_its_own_course() -> None:
    assert isinstance(build_load(LoadWords(mix="exam")).spec.arrivals, PulseArrivals)


def test_questions_of_a_file_get_room_and_no_deadline(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text("What is a forebay?\nWhat is a surge tank?\n", encoding="utf-8")
    load = build_load(LoadWords(queries=path, rate=2.0))
    (kind,) = load.spec.kinds
    assert (kind.name, kind.output_tokens, kind.deadline_s) == ("query", ANSWER_TOKENS, None)
    first, second = islice(load.requests(1), 2)
    assert [first.text, second.text] == ["What is a forebay?", "What is a surge tank?"]


def test_a_file_keeps_what_is_not_said_otherwise(tmp_path: Path) -> None:
    load = build_load(LoadWords(workload=written(tmp_path), rate=7.0))
    assert load.spec.arrivals is not None and load.duration_s == 4.0
    assert getattr(load.spec.arrivals, "rate", None) == 7.0
    assert load.name == "load"


def test_a_closed_loop_of_a_file_can_end_earlier(tmp_path: Path) -> None:
    load = build_load(LoadWords(workload=written(tmp_path, CLOSED), count=3))
    assert load.closed_loop is not None and load.closed_loop.count == 3


@pytest.mark.parametrize(
    ("words", "text", "told"),
    [
        ({"mix": "light"}, FILE, "--mix and --workload exclude each other"),
        ({"input_tokens": 5}, FILE, "--input-tokens and --workload"),
        ({"rate": 5.0}, CLOSED, "closed loop, whose rate its answers decide"),
        ({"rate": 5.0}, FILE.replace("constant", "pulse").replace("rate = 3\n", ""), "no single"),
        ({"rate": -5.0}, FILE, "cannot be run"),
        ({"duration": 0.0}, CLOSED, "cannot be run"),
    ],
)
def test_what_does_not_fit_the_file_is_refused(
    tmp_path: Path, words: dict[str, Any], text: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        build_load(LoadWords(workload=written(tmp_path, text), **words))


@pytest.mark.parametrize(
    "words",
    [
        {"rate": -1.0},
        {"duration": -1.0},
        {"mix": "lihgt"},
        {"users": 3, "rate": 1.0},
        {"think": 3.0},
        {"zipf": 1.0},
        {"trace": Path("none.csv")},
        {"workload": Path("none.toml")},
    ],
)
def test_words_that_cannot_be_are_one_sentence(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        list(islice(build_load(LoadWords(**words)).requests(1), 1))
    assert "\n" not in caught.value.message
