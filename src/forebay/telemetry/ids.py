"""W3C trace context: continue the caller's trace, or begin one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import msgspec

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_RATIO_BITS = 56


class TraceIds(msgspec.Struct, frozen=True):
    """A request's place in a trace; ids are lower-case hex.

    ``span_id`` is the request's own root span; ``parent_id`` the caller's span, None when the
    trace begins here. ``sampled`` is the decision at the head of the trace; a request that
    fails is kept whatever it says.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    sampled: bool

    @property
    def traceparent(self) -> str:
        """What to send to whoever works for this request."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def begin_trace(
    traceparent: str | None,
    ratio: float = 0.0,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> TraceIds:
    """Continue the trace that ``traceparent`` names, or begin one and sample it by ``ratio``.

    A malformed header begins a new trace, as the standard says. The sampling decision is a
    function of the trace id, so that every process of a trace makes the same one.
    """
    fresh = random_bytes(24)
    span_id = fresh[16:].hex()
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match is not None and _valid(match):
        sampled = bool(int(match.group(4), 16) & _SAMPLED)
        return TraceIds(match.group(2), span_id, match.group(3), sampled)
    trace_id = fresh[:16].hex()
    sampled = ratio > 0.0 and int(trace_id[-_RATIO_BITS // 4 :], 16) < ratio * (1 << _RATIO_BITS)
    return TraceIds(trace_id, span_id, None, sampled)


def _valid(match: re.Match[str]) -> bool:
    version, trace_id, parent_id, _, more = match.groups()
    if version == "ff" or (version == "00" and more):
        return False
    return trace_id.strip("0") != "" and parent_id.strip("0") != ""
