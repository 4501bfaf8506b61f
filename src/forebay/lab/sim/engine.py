"""A continuous-batching engine that jumps over runs of decode steps in closed form."""

from __future__ import annotations

from typing import Literal

import msgspec

from forebay.kernel.errors import ConfigError, ContextTooLong
from forebay.lab.sim.sequence import Sequence
from forebay.lab.sim.steps import StepModel


class RequestTooLong(ContextTooLong):
    """The sequence can never fit this engine, however empty it is."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator would set on the engine; the defaults are vLLM's (V1)."""

    kv_tokens: int
    block_tokens: int = 16
    watermark: float = 0.01
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    prefix_caching: bool = True
    scheduling: Literal["fifo", "priority"] = "fifo"

    def __post_init__(self) -> None:
        if self.kv_tokens < self.block_tokens:
            raise ConfigError("not yet written")


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
    """The engine's figures now; counters count from its start."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int  # held by sequences
    blocks_cached: int  # held by nobody, kept for their contents
    blocks_free: int
    preemptions: int
    finished: int
    cancelled: int
    prompt_tokens: int  # of prompts whose prefill ended
    generation_tokens: int
    prefix_query_tokens: int
    prefix_hit_tokens: int

    @property
    def kv_use(self) -> float:
        """Share of the KV blocks that sequences hold, 0 to 1."""
        return self.blocks_used / self.blocks_total


class Engine:
    """One replica: give it sequences, move it through time, take what happened."""

    def __init__(self, config: EngineConfig, steps: StepModel) -> None:
        self.config = config

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a new sequence; RequestTooLong when it can never fit."""
        raise NotImplementedError

    def cancel(self, sequence: Sequence, now: float) -> None:
        """Forget a sequence and free its blocks at once; nothing when it has already ended."""
        raise NotImplementedError

    def next_event_at(self) -> float | None:
        """When to call ``advance`` next; None while idle. Changes with ``submit``, ``cancel``."""
        raise NotImplementedError

    def advance(self, now: float) -> Progress:
        """Move to ``now`` (never backwards) and tell what happened up to and including it."""
        raise NotImplementedError

    def produced(self, sequence: Sequence) -> int:
        """Output tokens written up to the last ``advance`` (or submit, cancel)."""
        raise NotImplementedError

    def statistics(self) -> EngineStatistics:
        """Figures of the last ``advance``."""
        raise NotImplementedError
