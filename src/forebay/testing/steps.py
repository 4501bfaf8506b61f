"""A step model whose times are sums of whole ticks, so that closed forms can be exact in tests."""

from __future__ import annotations

import math


class LinearSteps:
    """Every figure of the batch costs its own constant; all are seconds.

    With constants that are small multiples of a power of two (the defaults are multiples of
    2**-20) every sum is exact in floating point, so that a closed form equals step by step.
    """

    __slots__ = ("context", "overhead", "prefill", "prefill_context", "sequence")

    def __init__(self, tick: float = 2.0**-20) -> None:
        self.overhead = 8192 * tick
        self.sequence = 64 * tick
        self.context = 1 * tick
        self.prefill = 32 * tick
        self.prefill_context = 1 * tick

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        """One step in seconds."""
        return (
            self.overhead
            + self.sequence * decode_sequences
            + self.context * context_tokens
            + self.prefill * prefill_tokens
            + self.prefill_context * prefill_context_tokens
        )

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        """Consecutive decode steps in seconds: an arithmetic series."""
        first = self.overhead + self.sequence * sequences + self.context * context_tokens
        return steps * first + self.context * sequences * (steps * (steps - 1) // 2)

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        """The largest number of steps whose ``run_seconds`` is at most ``seconds``."""
        first = self.overhead + self.sequence * sequences + self.context * context_tokens
        half = self.context * sequences / 2
        linear = first - half
        root = math.sqrt(linear * linear + 4 * half * max(0.0, seconds))
        steps = int(2 * max(0.0, seconds) / (linear + root))
        while self.run_seconds(sequences, context_tokens, steps + 1) <= seconds:
            steps += 1
        while steps and self.run_seconds(sequences, context_tokens, steps) > seconds:
            steps -= 1
        return steps
