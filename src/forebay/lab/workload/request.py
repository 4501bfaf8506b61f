"""One request of a workload, planned before anything is sent."""

from __future__ import annotations

import msgspec


class PlannedRequest(msgspec.Struct, frozen=True, gc=False):
    """What one client asks, and when.

    ``at_s`` is the intended start in seconds from the run's start; latency counts from there.
    Tokens are the laboratory's own (``tokens.py``). ``output_tokens`` is what the client allows
    (``max_tokens``), which a simulated engine writes in full. ``text`` is empty in virtual time
    and for generated text, which ``materialise`` writes at send time. Requests that share ids
    at the start of ``prefix`` share that many blocks of ``prefix_block_tokens`` tokens; ids past
    the input's last token name what the answer fills, and negative ids, private to a session,
    have no text. Turn n of a ``session`` of ``turns`` turns waits for the answer of turn n-1; it
    starts at that answer's end plus the gap between both turns' ``at_s`` (``sessions.py``), and
    ``history_tokens`` of its input are what was said before.
    """

    index: int
    at_s: float
    kind: str
    input_tokens: int
    output_tokens: int
    text: str = ""
    prefix: tuple[int, ...] = ()
    prefix_block_tokens: int = 512
    tenant: str = ""
    key: str = ""
    user: str = ""
    priority: str | int | None = None
    deadline_s: float | None = None
    session: str = ""
    turn: int = 0
    disconnect_after_tokens: int | None = None
    turns: int = 1
    history_tokens: int = 0
