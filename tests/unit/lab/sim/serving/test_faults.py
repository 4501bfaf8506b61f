"""Faults: how they are written, whom they meet, when they go."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.serving.faults import (
    KINDS,
    Command,
    Death,
    Error,
    Faults,
    Latency,
    Refuse,
    SlowStart,
    Stall,
    parse_fault,
    read_fault,
)


def test_a_fault_reads_the_same_from_the_command_line_and_from_json() -> None:
    wanted = Command(Error(status=503, share=0.2, for_s=30.0, retry_after_s=2), 1)
    assert wanted == parse_fault("error:status=503,share=.2, for_s=30,retry_after_s=2,replica=1")
    assert wanted == read_fault(
        {
            "kind": "error",
            "status": 503,
            "share": 0.2,
            "for_s": 30,
            "retry_after_s": 2,
            "replica": 1,
        }
    )


def test_every_kind_has_defaults() -> None:
    for kind, wanted in KINDS.items():
        assert parse_fault(kind) == Command(wanted())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no fault without a kind; there are latency"),
        ("latancy", "there is no fault latancy (did you mean latency?)"),
        ("error:stauts=500", "fault error has no stauts (did you mean status?)"),
        ("error:503", "503 is not name=value"),
        ("error:status=200", "status must be from 400 to 599, not 200"),
        ("error:share=1.5", "share must be from 0 to 1, not 1.5"),
        ("error:share=nan", "share must be from 0 to 1"),
        ("stall:for_s=soon", "fault stall: expected float"),
        ("stall:for_s=-1", "for_s must be 0 or more, not -1"),
        ("refuse:how=politely", "fault refuse: invalid enum value 'politely'"),
        ("stall:replica=-1", "replica must be 0 or more"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_fault(text)
    assert said in error.value.message


def test_a_fault_meets_its_share_of_requests_and_the_seed_decides_which() -> None:
    def met(seed: int) -> list[bool]:
        faults = Faults(random.Random(seed))
        faults.put(Error(share=0.3), 0.0)
        found = [faults.verdict() for _ in range(4000)]
        return [verdict is not None and verdict.error is not None for verdict in found]

    first = met(1)
    assert first == met(1) != met(2)
    assert abs(fmean(first) - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 4000)


@pytest.mark.parametrize("distribution", ["fixed", "exponential", "lognormal"])
def test_latency_has_the_mean_it_says(distribution: str) -> None:
    command = parse_fault(f"latency:mean_ms=50,distribution={distribution},sigma=0.5")
    assert isinstance(command.fault, Latency)
    rng = random.Random(7)
    drawn = [command.fault.draw_s(rng) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(0.05, rel=0.03)
    assert min(drawn) >= 0


def test_faults_go_by_themselves_and_on_command() -> None:
    faults = Faults(random.Random(1))
    assert faults.verdict() is None and faults.expire(0.0) is None
    faults.put(Stall(for_s=2.0), 10.0)
    faults.put(Death(after_tokens=3), 10.0)
    faults.put(SlowStart(factor=3.0, for_s=5.0), 10.0)
    faults.put(Refuse(), 10.0)
    assert faults.expire(11.0) == 12.0
    assert faults.stalled and faults.starting and faults.slowness == 3.0
    assert {type(fault): left for fault, left in faults.in_force(11.0)} == {
        Stall: 1.0,
        Death: None,
        SlowStart: 4.0,
        Refuse: None,
    }
    assert faults.expire(12.0) == 15.0
    left = [type(fault) for fault, _ in faults.in_force(12.0)]
    assert left == [Death, SlowStart, Refuse]
    faults.clear("refuse")
    assert len(faults.in_force(12.0)) == 2
    with pytest.raises(ConfigError, match="did you mean death"):
        faults.clear("deaht")
    faults.clear()
    assert faults.in_force(12.0) == []


def test_a_new_fault_replaces_the_old_one_of_its_kind() -> None:
    faults = Faults(random.Random(1))
    faults.put(Error(status=500), 0.0)
    faults.put(Error(status=429), 0.0)
    verdict = faults.verdict()
    assert verdict is not None and verdict.error == Error(status=429)
