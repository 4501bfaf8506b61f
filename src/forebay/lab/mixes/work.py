"""What a request is worth and how big it is: the time of the engine that it takes.

The work of a request is the time that an engine busy with nothing but its like takes for each of
them, its batch as full as places and memory allow. With ``c = in + out/2`` tokens held on average,
``B = min(max_num_seqs, kv/c)`` answers are written at once, and one request costs

    steps = max(out/B, (in + out)/max_num_batched_tokens)
    work  = steps * step_seconds(out/steps, c*out/steps, in/steps, in/2)

so what decodes long pays for its share of every step, what holds much memory for the answers that
find no room beside it, and what reads much for its prefill. It depends on the request and on the
engine, never on a router or on what else is offered. Offered work over time, divided by the number
of engines, is the load: 1 is what the engine can just do.
"""

from __future__ import annotations

from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.steps import StepModel


class EngineWork:
    """Work and unhindered latency of requests, in seconds of one engine."""

    def __init__(self, config: EngineConfig, steps: StepModel) -> None:
        self._config = config
        self._steps = steps
        self._kv = config.kv_tokens * (1 - config.watermark)

    def work_s(self, input_tokens: int, output_tokens: int) -> float:
        """Engine seconds a request takes in a full batch of its like."""
        config = self._config
        held = input_tokens + output_tokens / 2
        batch = max(1.0, min(float(config.max_num_seqs), self._kv / held))
        tokens = input_tokens + output_tokens
        steps = max(output_tokens / batch, tokens / config.max_num_batched_tokens)
        decoding = output_tokens / steps
        return steps * self._steps.step_seconds(
            round(decoding),
            round(decoding * held),
            round(input_tokens / steps),
            input_tokens // 2,
        )

    def alone_s(self, input_tokens: int, output_tokens: int) -> float:
        """Seconds from arrival to the last token on an engine that does nothing else."""
        return self.prefill_s(input_tokens) + self.decode_s(1, input_tokens, output_tokens)

    def prefill_s(self, input_tokens: int) -> float:
        """Seconds to the first token on an engine that does nothing else."""
        chunk = self._config.max_num_batched_tokens
        seconds, done = 0.0, 0
        while done < input_tokens:
            tokens = min(chunk, input_tokens - done)
            seconds += self._steps.step_seconds(0, 0, tokens, done + tokens // 2)
            done += tokens
        return seconds

    def decode_s(self, sequences: int, context_tokens: int, output_tokens: int) -> float:
        """Seconds from first to last token beside others, ``context_tokens`` held in all."""
        if output_tokens < 2:
            return 0.0
        return self._steps.run_seconds(sequences, context_tokens, output_tokens - 1)
