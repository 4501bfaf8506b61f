"""Conversations: when the next turn may start, and what it says.

A plan knows how long a user thinks, not when the answer comes. The gap between the planned starts
of two turns is the thinking time; the real start is the answer's end plus that gap. Bench and
virtual time share this class, so they cannot differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from forebay.lab.workload.request import PlannedRequest


class _Live:
    __slots__ = ("answered_at", "parked", "planned_at", "turn")

    def __init__(self) -> None:
        self.turn = -1
        self.planned_at = 0.0
        self.answered_at: float | None = None
        self.parked: deque[PlannedRequest] = deque()


class Sessions:
    """The conversations that are under way; memory is bounded by their number.

    Give every request to ``offer`` in the plan's order and every end to ``answered``.
    """

    def __init__(self) -> None:
        self._live: dict[str, _Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    def offer(self, request: PlannedRequest) -> float | None:
        """The intended start in seconds from the run's start; None while the turn must wait.

        A turn that waits is kept here and comes back from ``answered``.
        """
        if not request.session or request.turns == 1:
            return request.at_s
        if request.turn == 0:
            self._live[request.session] = _Live()
        live = self._live[request.session]
        if request.turn == 0:
            return self._start(live, request, request.at_s)
        if live.turn == request.turn - 1 and live.answered_at is not None and not live.parked:
            return self._start(live, request, self._due(live, request))
        live.parked.append(request)
        return None

    def answered(self, request: PlannedRequest, at_s: float) -> tuple[PlannedRequest, float] | None:
        """Note that ``request`` ended (well or badly); the parked next turn and its start."""
        live = self._live.get(request.session)
        if live is None:
            return None
        if request.turn + 1 >= request.turns:
            del self._live[request.session]
            return None
        live.answered_at = at_s
        if not live.parked:
            return None
        following = live.parked.popleft()
        return following, self._start(live, following, self._due(live, following))

    @staticmethod
    def _due(live: _Live, request: PlannedRequest) -> float:
        answered_at = request.at_s if live.answered_at is None else live.answered_at
        return answered_at + (request.at_s - live.planned_at)

    @staticmethod
    def _start(live: _Live, request: PlannedRequest, at_s: float) -> float:
        live.turn = request.turn
        live.planned_at = request.at_s
        live.answered_at = None
        return at_s


Message = dict[str, str]


class Transcripts:
    """What was said so far in each live conversation, for the bench's messages."""

    def __init__(self) -> None:
        self._said: dict[str, list[Message]] = {}

    def __len__(self) -> int:
        return len(self._said)

    def messages(self, request: PlannedRequest, opening: Sequence[Message]) -> tuple[Message, ...]:
        """All messages of this turn; ``opening`` is what ``materialise`` made of it."""
        if not request.session or request.turns == 1:
            return tuple(opening)
        said = self._said.setdefault(request.session, [])
        said += opening
        return tuple(said)

    def answered(self, request: PlannedRequest, text: str) -> None:
        """Keep the answer for the turns that follow; forget the conversation after its last."""
        if request.turn + 1 >= request.turns:
            self._said.pop(request.session, None)
        elif request.session in self._said:
            self._said[request.session].append({"role": "assistant", "content": text})
