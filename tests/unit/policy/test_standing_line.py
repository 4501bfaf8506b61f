"""A line in front of a gate that stands is shed by its delay, whatever was forecast at the door."""

from __future__ import annotations

from itertools import pairwise

import pytest

from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings
from forebay.policy.shed import ShedSettings

TARGET_S, INTERVAL_S, EACH_S = 0.5, 1.0, 0.2


def served(waiting: int) -> tuple[list[float], list[float]]:
    """When those who wait are sent and refused: one place, one answer each fifth of a second."""
    gate = PoolGate(
        GateSettings(
            limit=LimitSettings(initial=1, most=1),
            shed=ShedSettings(target_s=TARGET_S, interval_s=INTERVAL_S, max_wait_s=100.0),
            cold_tokens=0.0,
        ),
        ["r"],
    )
    for _ in range(waiting + 1):
        # No forecast refuses them: nothing has been learned, and they have time.
        gate.arrive(Ticket(cost=10, deadline_at=1e6), 0.0)
    at_work = gate.sent()
    assert not gate.refused()
    sent: list[float] = []
    refused: list[float] = []
    now = 0.0
    while at_work:
        now += EACH_S
        gate.finish(at_work[0], now, ok=True)
        at_work = gate.sent()
        sent += [now] * len(at_work)
        for one in gate.refused():
            assert one.reason == "queue_delay"
            assert one.retry_after_s >= 1.0
            refused.append(now)
    assert not gate.queue
    return sent, refused


def test_who_waited_through_an_interval_above_the_target_is_sent_away() -> None:
    sent, refused = served(40)
    assert len(sent) + len(refused) == 40
    assert refused[0] >= TARGET_S + INTERVAL_S
    # More and more often, as long as the line stands (RFC 8289).
    assert len(refused) >= 8
    gaps = [later - earlier for earlier, later in pairwise(refused)]
    assert max(gaps[-3:]) < gaps[0]


@pytest.mark.parametrize("waiting", [1, 5])
def test_a_burst_that_is_over_within_the_interval_is_served_whole(waiting: int) -> None:
    sent, refused = served(waiting)
    assert (len(sent), refused) == (waiting, [])
