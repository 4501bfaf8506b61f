"""What an operator sets on an engine, and what can never fit it."""

from __future__ import annotations

from typing import Literal

import msgspec

from forebay.kernel.errors import ConfigError, ContextTooLong
from forebay.lab.sim.sequence import Sequence, State


class RequestTooLong(ContextTooLong):
    """The sequence can never fit this engine, however empty it is."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator would set on the engine; the defaults are vLLM's (V1)."""

    kv_tokens: int
    """Tokens that the KV cache holds."""
    block_tokens: int = 16
    watermark: float = 0.01
    """Share of the blocks that an admission leaves for those who are decoding."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    prefix_caching: bool = True
    scheduling: Literal["fifo", "priority"] = "fifo"

    def __post_init__(self) -> None:
        for name in ("block_tokens", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.kv_tokens < self.block_tokens:
            raise ConfigError(
                f"kv_tokens ({self.kv_tokens}) must hold at least one block of "
                f"{self.block_tokens} tokens"
            )
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark must be 0 or more and below 1, not {self.watermark}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): each running sequence takes one a step"
            )
        if self.scheduling not in ("fifo", "priority"):
            raise ConfigError(f"scheduling must be fifo or priority, not {self.scheduling}")

    @property
    def blocks(self) -> int:
        """KV blocks in all."""
        return self.kv_tokens // self.block_tokens

    @property
    def watermark_blocks(self) -> int:
        """Blocks that an admission leaves."""
        return int(self.watermark * self.blocks)


def check_fits(config: EngineConfig, sequence: Sequence) -> None:
    """Raise when an engine of this configuration can never serve the sequence."""
    asked = f"{sequence.input_tokens} tokens in and {sequence.output_tokens} out"
    tokens = sequence.input_tokens + sequence.output_tokens
    if sequence.input_tokens < 1 or sequence.output_tokens < 1:
        raise ConfigError(f"{asked}: a sequence needs at least one of each")
    if sequence.state is not State.NEW:
        raise ConfigError(f"{sequence!r} was submitted before; make a new one")
    if tokens > config.max_model_len:
        raise RequestTooLong(f"{asked} are more than max_model_len ({config.max_model_len})")
    # The last token is never fed back, hence has no place in the cache.
    if -(-(tokens - 1) // config.block_tokens) > config.blocks - config.watermark_blocks:
        raise RequestTooLong(
            f"{asked} are more than the KV cache ({config.kv_tokens} tokens) gives one sequence"
        )
    if sequence.hash_tokens % config.block_tokens:
        raise ConfigError(
            f"hash_tokens ({sequence.hash_tokens}) must be a multiple of block_tokens "
            f"({config.block_tokens})"
        )
