"""What an operator sets on an engine, and what can never fit it."""

from __future__ import annotations

from typing import Literal

import msgspec

from forebay.kernel.errors import ConfigError, ContextTooLong


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
