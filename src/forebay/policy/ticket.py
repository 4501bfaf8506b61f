"""One request at a gate, and in the end what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.kernel.context import Priority
from forebay.policy.queue import Waiting


class Ticket:
    """One request at a gate, and in the end what became of it."""

    __slots__ = (
        "attempts",
        "band",
        "cost",
        "credited",
        "deadline_at",
        "expected_tokens",
        "first_token_at",
        "hung",
        "input_tokens",
        "likely_tokens",
        "output_tokens",
        "place",
        "planned_tokens",
        "preparing",
        "priority",
        "reason",
        "replica",
        "retry_after_s",
        "sampled_at",
        "sampled_tokens",
        "sent_at",
        "session",
        "spared",
        "state",
        "tenant",
        "weight",
        "whole_tokens",
    )

    def __init__(
        self,
        *,
        cost: float,
        deadline_at: float,
        tenant: str = "default",
        priority: Priority = "normal",
        session: str = "",
    ) -> None:
        self.cost = cost
        self.deadline_at = deadline_at
        self.tenant = tenant
        self.priority = priority
        self.session = session
        self.weight = 1.0
        self.band = 0
        self.whole_tokens: tuple[int, int] | None = None  # in and out of what it is a part of
        self.input_tokens = 0
        self.planned_tokens = 0  # of its prompt, as it arrived
        self.likely_tokens = 0  # of its prompt, as such prompts turned out when they were built
        self.output_tokens = 0
        self.expected_tokens: int | None = None  # to be written; None: nobody knows
        self.place: Waiting[Ticket] = _OVER  # from its arrival to its end: as it was planned
        self.spared = False  # it has another way to be answered when all engines are out
        self.preparing = False  # it has work to do before the engine is asked: ``asked`` tells
        self.state = "new"  # waiting | sent | lost | done | refused
        self.attempts = 0
        self.credited = 0.0
        self.replica = -1
        self.reason = ""
        self.retry_after_s = 0.0
        self.sent_at = 0.0
        self.sampled_at = 0.0
        self.sampled_tokens = 0
        self.first_token_at: float | None = None
        self.hung: Callable[[], None] | None = None  # asks its replica no longer, before a token

    def reappraise(self, factor: float) -> None:
        """The signs of life so far were worth ``factor`` times what they were taken for."""
        self.sampled_tokens = round(self.sampled_tokens * factor)

    def end(self, state: str) -> None:
        """It is ``done`` or ``refused``; it and its place no longer refer to each other.

        Circles are left to the garbage collector, which stops everything for it.
        """
        self.state, self.place = state, _OVER


_OVER: Waiting[Any] = Waiting(None, tenant="", priority="low", cost=0.0, deadline_at=0.0)
