"""What is told about a request once it has ended."""

from __future__ import annotations

from typing import Literal

import msgspec

from forebay.kernel.context import RequestContext
from forebay.telemetry.ids import TraceIds

RequestOutcome = Literal[
    "ok", "invalid", "denied", "not_found", "limited", "shed", "timeout", "cancelled", "error"
]
OUTCOMES: tuple[RequestOutcome, ...] = (
    "ok", "invalid", "denied", "not_found", "limited", "shed", "timeout", "cancelled", "error",
)  # fmt: skip


class RequestReport(msgspec.Struct, frozen=True):
    """One finished request.

    ``ctx`` is None when it failed before anybody was identified. ``status`` is the HTTP status
    that was sent, 499 when the client left first; a stream that failed after its start keeps
    200 there and says so in ``outcome`` and ``error_code``. Durations are seconds; ``ended_at`` is
    seconds since the epoch, ``arrived_at`` the same clock as the context's stages.
    """

    request_id: str
    method: str
    route: str
    status: int
    outcome: RequestOutcome
    ended_at: float
    arrived_at: float
    duration_s: float
    client: str
    trace: TraceIds
    ctx: RequestContext | None = None
    error_code: str | None = None
    kb: str | None = None
    model: str | None = None
    ttft_s: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    streamed: bool = False
