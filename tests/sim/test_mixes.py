"""The admission's defaults on random mixes: small requests are safe, what they leave is used."""

from __future__ import annotations

import pytest

from forebay.lab.mixes.mix import Mix, random_mix
from forebay.lab.mixes.rows import LIGHT, rows
from forebay.lab.mixes.sweep import Report, try_mix
from forebay.lab.mixes.text import details, line, workload_file

QUICK, ALL = 40, 300


def told(report: Report) -> str:
    """What a failing mix says of itself, its workload file last."""
    return "\n".join(("", line(report), details(report), workload_file(report)))


@pytest.mark.parametrize("seed", range(QUICK))
def test_any_mix_keeps_small_requests_safe_and_leaves_nothing_lying(seed: int) -> None:
    report = try_mix(random_mix(seed))
    assert report.verdict.passed, told(report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, ALL))
def test_any_of_three_hundred_mixes_keeps_both_rules(seed: int) -> None:
    report = try_mix(random_mix(seed))
    assert report.verdict.passed, told(report)


@pytest.mark.parametrize("mix", rows(), ids=lambda mix: mix.workload.name)
def test_light_requests_beside_others_of_any_size(mix: Mix) -> None:
    report = try_mix(mix)
    assert LIGHT in [one.kind for one in report.verdict.safeties]
    assert report.verdict.passed, told(report)
