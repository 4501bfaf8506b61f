"""Turns wait for answers; thinking time counts from the answer's end; nothing is left over."""

from __future__ import annotations

from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Sessions, Transcripts


def turn(number: int, at_s: float, session: str = "chat-1", turns: int = 3) -> PlannedRequest:
    return PlannedRequest(number, at_s, "chat", 10, 20, session=session, turn=number, turns=turns)


def test_a_request_alone_starts_as_planned() -> None:
    sessions = Sessions()
    request = PlannedRequest(0, 1.5, "light", 10, 20)
    assert sessions.offer(request) == 1.5
    assert sessions.answered(request, 2.0) is None and len(sessions) == 0


def test_a_turn_that_comes_late_starts_after_thinking() -> None:
    sessions = Sessions()
    first, second = turn(0, 1.0), turn(1, 4.0)
    assert sessions.offer(first) == 1.0
    assert sessions.answered(first, 2.0) is None
    # Planned three seconds apart: thinking time, counted from the answer.
    assert sessions.offer(second) == 5.0


def test_a_turn_that_comes_early_waits() -> None:
    sessions = Sessions()
    first, second, third = turn(0, 1.0), turn(1, 2.0), turn(2, 7.0)
    assert sessions.offer(first) == 1.0
    assert sessions.offer(second) is None and sessions.offer(third) is None
    assert sessions.answered(first, 30.0) == (second, 31.0)
    assert sessions.answered(second, 40.0) == (third, 45.0)
    assert len(sessions) == 1
    assert sessions.answered(third, 50.0) is None and len(sessions) == 0


def test_a_turn_offered_while_the_one_before_runs_waits() -> None:
    sessions = Sessions()
    first, second, third = turn(0, 0.0), turn(1, 1.0), turn(2, 2.0)
    sessions.offer(first)
    sessions.answered(first, 0.5)
    assert sessions.offer(second) == 1.5
    assert sessions.offer(third) is None
    assert sessions.answered(second, 9.0) == (third, 10.0)


def test_conversations_do_not_mix() -> None:
    sessions = Sessions()
    one, other = turn(0, 1.0), turn(0, 1.1, "chat-2")
    sessions.offer(one)
    sessions.offer(other)
    sessions.answered(one, 2.0)
    assert sessions.offer(turn(1, 3.0, "chat-2")) is None
    assert sessions.offer(turn(1, 3.0)) == 4.0


def test_transcripts_grow_and_are_forgotten() -> None:
    transcripts = Transcripts()
    first, last = turn(0, 0, turns=2), turn(1, 1, turns=2)
    opening = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]
    assert transcripts.messages(first, opening) == tuple(opening)
    transcripts.answered(first, "because")
    asked = [{"role": "user", "content": "really?"}]
    assert transcripts.messages(last, asked) == (
        *opening,
        {"role": "assistant", "content": "because"},
        *asked,
    )
    transcripts.answered(last, "yes")
    assert len(transcripts) == 0


def test_a_request_alone_is_not_kept() -> None:
    transcripts = Transcripts()
    request = PlannedRequest(0, 0, "light", 1, 1)
    transcripts.messages(request, [{"role": "user", "content": "x"}])
    transcripts.answered(request, "y")
    assert len(transcripts) == 0
