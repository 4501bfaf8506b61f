"""The generator's verdict on itself."""

from __future__ import annotations

import pytest

from forebay.kernel.clock import VirtualClock
from forebay.lab.bench import health as module
from forebay.lab.bench.health import Health
from forebay.lab.bench.options import GeneratorBounds
from forebay.lab.report.words import Words


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    used = [0.0]
    monkeypatch.setattr(module, "_cpu_s", lambda: used[0])
    return used


def test_a_calm_generator_is_valid(cpu: list[float]) -> None:
    clock = VirtualClock()
    health = Health(clock)
    for number in range(10_000):
        health.sent(0.0005 if number % 200 else 0.02, 3)
    clock.advance(10.0)
    cpu[0] = 5.0
    health.finish(connections=7, waited=0)
    verdict = health.verdict(GeneratorBounds())
    assert verdict.valid and verdict.why_not == ()
    assert (verdict.sends, verdict.connections, verdict.max_in_flight) == (10_000, 7, 3)
    assert verdict.cpu_share == pytest.approx(0.5)
    assert verdict.lateness.max_s == pytest.approx(0.02)
    assert verdict.lateness.p99_s == pytest.approx(0.0005, rel=0.01)


def test_each_way_to_be_the_bottleneck_is_told(cpu: list[float]) -> None:
    clock = VirtualClock()
    health = Health(clock)
    for _ in range(100):
        health.sent(0.05, 1)
    health.not_sent = 3
    clock.advance(10.0)
    cpu[0] = 9.5
    health.finish(connections=1, waited=60)
    verdict = health.verdict(GeneratorBounds())
    assert not verdict.valid
    told = " ".join(verdict.why_not)
    for words in (
        "used 95% of its core",
        "50.0 ms late",
        "3 requests were not sent",
        "60 requests",
    ):
        assert words in told
    assert len(verdict.why_not) == 4
    assert [str(one) for one in verdict.why] == list(verdict.why_not)
    busy, late, full, waited = Words("zh").reasons(verdict.why)
    assert "95%" in busy and "50.0 ms" in late and full.startswith("3 个请求") and "60" in waited


def test_a_run_of_an_instant_says_nothing_of_the_core(cpu: list[float]) -> None:
    clock = VirtualClock()
    health = Health(clock)
    clock.advance(0.1)
    cpu[0] = 0.1
    health.finish(connections=1, waited=0)
    assert health.verdict(GeneratorBounds()).valid


def test_sending_early_is_not_late(cpu: list[float]) -> None:
    health = Health(VirtualClock())
    health.sent(-0.001, 1)
    assert health.lateness().max_s == 0.0


def test_of_several_processes_the_busiest_core_counts(cpu: list[float]) -> None:
    clock = VirtualClock()
    one, other, both = Health(clock), Health(clock), Health(clock)
    one.sent(0.001, 2)
    other.sent(0.003, 5)
    clock.advance(10.0)
    cpu[0] = 4.0
    one.finish(connections=2, waited=1)
    cpu[0] = 8.0
    other.finish(connections=3, waited=0)
    for part in (one, other):
        both.absorb(part)
    verdict = both.verdict(GeneratorBounds(processes=2))
    assert verdict.cpu_share == pytest.approx(0.8)
    assert (verdict.sends, verdict.connections, verdict.max_in_flight) == (2, 5, 7)
    assert verdict.lateness.max_s == pytest.approx(0.003)
    assert verdict.lateness.mean_s == pytest.approx(0.002)
