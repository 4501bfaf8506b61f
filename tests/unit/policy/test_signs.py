"""What signs of life of a stream are worth in tokens, and what they are not: speed."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.clock import VirtualClock
from forebay.policy.limit import AdaptiveLimit
from tests.unit.policy.test_admission import admission, ask, limited


async def test_a_sign_of_life_is_worth_the_tokens_that_came_with_one_of_late() -> None:
    made = admission(limited())
    for _ in range(3):
        async with made.admit(ask(cap=200)) as permit:
            permit.began(40)
            for _ in range(10):
                permit.token()
            permit.produced(40, 80, whole=True)
    async with made.admit(ask(cap=20)) as permit:
        permit.began(40)
        seen = []
        for _ in range(4):
            permit.token()
            seen.append(permit.entry.completion_tokens)
        permit.produced(40, 4, whole=False)  # cut: how many came together is not known
    assert seen == [8, 16, 20, 20]
    assert made.tokens_a_sign(permit.entry.pool) == 8.0


async def test_what_a_sign_is_worth_makes_no_stream_of_before_a_quick_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first answer to end would leave an unloaded latency that no engine has."""
    made = admission(slots=4)
    clock = VirtualClock(100.0)
    made.desk.clock = clock
    speeds: list[float] = []

    def observe(_limit: AdaptiveLimit, speed: float, *_: object, **_more: object) -> None:
        speeds.append(speed)

    monkeypatch.setattr(AdaptiveLimit, "observe", observe)
    wanted = msgspec.structs.replace(ask(cap=200), deadline_at=1000.0)
    async with made.admit(wanted) as slow:
        slow.began(40)
        for number in range(20):
            if number == 10:
                async with made.admit(wanted) as other:
                    other.began(40)
                    for _ in range(10):
                        other.token()
                    other.produced(40, 80, whole=True)
                speeds.clear()
            clock.advance(1.0)
            slow.token()
        slow.produced(40, 160, whole=True)
    # Eight tokens came each second, before and after that was known.
    assert speeds[:10] == [pytest.approx(1 / 8)] * 10
