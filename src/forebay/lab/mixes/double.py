"""An engine with a step time that anyone can compute: a line in what decodes and what is read."""

from __future__ import annotations

import math

from forebay.lab.sim.config import EngineConfig

DOUBLE = "double"
STEP_S = 0.008
SEQUENCE_S = 0.000_04
PREFILL_TOKENS_PER_S = 1_200_000.0


class LinearSteps:
    """``STEP_S + SEQUENCE_S * sequences + tokens read / PREFILL_TOKENS_PER_S``; a ``StepModel``."""

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        """One step, whatever the contexts."""
        return STEP_S + SEQUENCE_S * decode_sequences + prefill_tokens / PREFILL_TOKENS_PER_S

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        """So many equal steps."""
        return steps * (STEP_S + SEQUENCE_S * sequences)

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        """The largest number of steps whose ``run_seconds`` is at most ``seconds``."""
        steps = max(0, math.floor(seconds / (STEP_S + SEQUENCE_S * sequences)))
        while self.run_seconds(sequences, context_tokens, steps + 1) <= seconds:
            steps += 1
        while steps and self.run_seconds(sequences, context_tokens, steps) > seconds:
            steps -= 1
        return steps


def double_config(max_model_len: int) -> EngineConfig:
    """An engine with much memory and many places."""
    return EngineConfig(
        kv_tokens=600_000,
        max_num_seqs=1024,
        max_num_batched_tokens=8192,
        max_model_len=max_model_len,
    )
