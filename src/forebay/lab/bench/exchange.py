"""One request under way, from its intended start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from forebay.lab.bench.answers import (
    ErrorReader,
    Facts,
    PlainReader,
    Reader,
    StreamReader,
)
from forebay.lab.measure.result import HTTP_ERROR, REFUSED
from forebay.lab.workload.request import PlannedRequest

Settled = Callable[["Exchange", str, float], None]


class Exchange:
    """The state of one request; ``settle`` ends it once, whatever happens afterwards.

    ``at`` is the intended start on the generator's clock; ``payload`` is the whole HTTP request.
    """

    __slots__ = (
        "_settled",
        "at",
        "code",
        "connection",
        "facts",
        "over",
        "payload",
        "planned",
        "retried",
        "timer",
    )

    def __init__(
        self, planned: PlannedRequest, at: float, payload: bytes, settled: Settled
    ) -> None:
        self.planned = planned
        self.at = at
        self.payload = payload
        self.facts = Facts()
        self.code = 0
        self.over = False
        self.retried = False
        self.connection: Abortable | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._settled = settled

    def reader(self, code: int, retry_after: bool, streamed: bool) -> Reader:
        """Who reads the body that this head announces."""
        if code == 200:
            if streamed:
                planned = self.planned
                keep_text = planned.turn + 1 < planned.turns
                return StreamReader(self.facts, planned.disconnect_after_tokens, keep_text)
            return PlainReader(self.facts)
        self.code = code
        refused = code == 429 or (code == 503 and retry_after)
        return ErrorReader(self.facts, REFUSED if refused else HTTP_ERROR)

    def settle(self, status: str, now: float) -> None:
        """Report the end; later calls do nothing."""
        if self.over:
            return
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._settled(self, status, now)


class Abortable(Protocol):
    """What an exchange knows of its connection."""

    def abort(self) -> None:
        """Close at once, unread data lost."""
        ...
