"""The live view's numbers: all so far, and the last seconds alone."""

from __future__ import annotations

import pytest

from forebay.lab.bench.live import Live
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.result import DISCONNECTED, NOT_SENT, OK, TIMEOUT


def one(at_s: float, total_s: float, status: str = OK) -> Finished:
    return Finished(
        at_s=at_s,
        kind="light",
        status=status,
        finished_at_s=at_s + total_s,
        first_at_s=at_s + total_s / 2 if status == OK else None,
        deadline_s=1.0,
        output_tokens=10,
    )


def test_counts_and_recent_rates() -> None:
    live = Live()
    for finished in (
        one(0, 0.2),
        one(0, 2.0),
        one(0, 3.0, TIMEOUT),
        one(0, 0.1, DISCONNECTED),
        one(0, 0.0, NOT_SENT),
    ):
        live.sent()
        live.finished(finished)
    look = live.snapshot(0.5, 7, lateness_p99_s=0.001, cpu_share=0.3)
    assert (look.sent, look.finished, look.ok, look.good, look.not_sent) == (5, 4, 2, 1, 1)
    assert look.in_flight == 7 and look.cpu_share == 0.3
    assert look.recent_sent_per_s == 10 and look.recent_ok_per_s == 4
    assert look.recent_good_share == pytest.approx(1 / 4)
    assert look.recent_tokens_per_s == 100
    assert look.recent_total_p50_s == pytest.approx(2.0)
    assert look.recent_ttft_p99_s == pytest.approx(3.0, rel=0.02)


def test_the_past_is_forgotten() -> None:
    live = Live()
    live.finished(one(0, 0.5))
    looks = [
        live.snapshot(0.5 * number, 0, lateness_p99_s=0.0, cpu_share=0.0) for number in range(1, 13)
    ]
    assert looks[9].recent_total_p50_s == pytest.approx(0.5)
    assert looks[11].recent_total_p50_s == 0.0
    assert looks[11].recent_ok_per_s == 0.0 and looks[11].ok == 1
