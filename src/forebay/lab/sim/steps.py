"""What one step of an engine costs in time: the seam between scheduling and hardware."""

from __future__ import annotations

from typing import Protocol


class StepModel(Protocol):
    """Seconds of engine steps as a function of what is in the batch; no state, no chance."""

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        """One step, in seconds, always above zero.

        ``context_tokens`` is the sum of the contexts of the decoding sequences before the step;
        ``prefill_context_tokens`` the tokens that an average prefilled token attends to, so that
        their product with ``prefill_tokens`` is the pairs of attention.
        """
        ...

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        """``steps`` consecutive pure decode steps in seconds, in closed form.

        The context grows by ``sequences`` tokens with each step.
        """
        ...

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        """How many whole decode steps end within ``seconds``; the inverse of ``run_seconds``."""
        ...
