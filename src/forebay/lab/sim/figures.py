"""What an engine tells of itself: what just happened, and its figures."""

from __future__ import annotations

import msgspec

from forebay.lab.sim.sequence import Sequence


class Progress:
    """What happened since the last call, each list in order of time.

    Times stand in the sequences: ``first_token_at``, ``finished_at``.
    """

    __slots__ = ("finished", "first_tokens", "preempted")

    def __init__(self) -> None:
        self.first_tokens: list[Sequence] = []
        self.finished: list[Sequence] = []
        self.preempted: list[Sequence] = []


class EngineStatistics(msgspec.Struct, frozen=True):
    """The engine's figures at its present time; counters count from its start."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    """Held by sequences."""
    blocks_cached: int
    """Held by nobody, kept for their contents."""
    blocks_free: int
    preemptions: int
    finished: int
    cancelled: int
    prompt_tokens: int
    """Of prompts whose prefill ended."""
    generation_tokens: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    steps: int
    busy_s: float
    """Seconds in which a step was under way."""

    @property
    def kv_use(self) -> float:
        """Share of the KV blocks that sequences hold, 0 to 1."""
        return self.blocks_used / self.blocks_total
