"""Two runs of the same thing do not differ; a fifth more is found; different things are refused."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.compare import compare
from forebay.lab.measure.comparison import Change, Comparison
from forebay.lab.measure.result import Generator
from tests.unit.lab.measure.runs import made_up_run


def found(comparison: Comparison, figure: str, kind: str = "") -> Change:
    return next(
        one for one in comparison.changes if (one.figure, one.kind) == (figure, kind)
    )  # fmt: skip


def test_two_runs_of_the_same_show_no_change_in_nine_of_ten_seeds() -> None:
    pairs = [(made_up_run(2 * seed), made_up_run(2 * seed + 1)) for seed in range(20)]
    quiet = [not compare(*pair, resamples=400).changed for pair in pairs]
    assert sum(quiet) >= 18


def test_also_where_the_load_has_a_long_memory() -> None:
    pairs = [
        (
            made_up_run(2 * seed, memory=0.95, noise=0.2),
            made_up_run(2 * seed + 1, memory=0.95, noise=0.2),
        )
        for seed in range(20)
    ]
    quiet = [not compare(*pair, resamples=400).changed for pair in pairs]
    assert sum(quiet) >= 18


def test_a_fifth_more_is_found() -> None:
    for seed in range(6):
        comparison = compare(made_up_run(seed), made_up_run(seed + 50, scale=1.2))
        for figure in ("total_p50", "ttft_p50"):
            change = found(comparison, figure)
            assert change.direction == "higher" and change.better is False
            assert change.low < 0.2 < change.high
            assert change.change == pytest.approx(0.2, abs=0.08)
        assert found(comparison, "ok_per_s").direction == "same"
        assert any("P50 of the total time rose by" in line for line in comparison.sentences)


def test_lost_goodput_is_found_and_worse() -> None:
    comparison = compare(made_up_run(1), made_up_run(2, failing=0.3))
    share = found(comparison, "goodput_share")
    assert share.direction == "lower" and share.better is False
    assert share.change == pytest.approx(-0.3, abs=0.05)
    assert found(comparison, "goodput_per_s").direction == "lower"
    assert any(
        line.startswith("The share of good answers fell by") and line.endswith("worse.")
        for line in comparison.sentences
    )


def test_a_run_is_the_same_as_itself() -> None:
    run = made_up_run(3)
    comparison = compare(run, run)
    assert not comparison.changed
    assert comparison.sentences == ("Nothing changed beyond noise.",)
    assert comparison.differences == () and comparison.warnings == ()


def test_the_same_seed_says_the_same() -> None:
    pair = made_up_run(4), made_up_run(5, scale=1.1)
    assert compare(*pair, seed=3) == compare(*pair, seed=3)


def test_different_workloads_are_refused_unless_forced() -> None:
    pair = made_up_run(1), made_up_run(2, rate=80.0, fingerprint="other")
    with pytest.raises(ConfigError, match=r"rate is 40\.0, then 80\.0"):
        compare(*pair)
    comparison = compare(*pair, force=True)
    assert "rate is 40.0, then 80.0" in comparison.differences
    assert found(comparison, "ok_per_s").direction == "higher"


def test_short_runs_cannot_tell() -> None:
    comparison = compare(made_up_run(1, duration_s=4.0), made_up_run(2, duration_s=4.0, scale=3))
    assert not comparison.changed
    assert {change.direction for change in comparison.changes} == {"unknown"}
    assert "too short" in comparison.warnings[0]
    assert comparison.sentences == ("These runs cannot tell whether anything changed.",)


def test_a_handful_of_answers_has_no_p99() -> None:
    comparison = compare(made_up_run(1, rate=3), made_up_run(2, rate=3))
    assert found(comparison, "total_p99").direction == "unknown"
    assert found(comparison, "total_p50").direction == "same"


def test_an_invalid_result_is_told() -> None:
    run = made_up_run(1)
    bad = msgspec.structs.replace(run, generator=Generator(valid=False, why_not=("it was late",)))
    assert compare(run, bad).warnings == ("The second result is not valid: it was late.",)


def test_set_ups_that_differ_are_named() -> None:
    run = made_up_run(1)
    other = msgspec.structs.replace(run, run=msgspec.structs.replace(run.run, commit="abc", seed=9))
    assert compare(run, other).differences == ("seed is 0, then 9", "commit is '', then 'abc'")


def test_nothing_answered_then_something() -> None:
    comparison = compare(made_up_run(1, failing=1.0), made_up_run(2))
    assert found(comparison, "goodput_per_s").direction == "higher"
    assert any("rose from nothing" in line for line in comparison.sentences)
