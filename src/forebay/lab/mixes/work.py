"""What a request is worth and how big it is: the time of the engine that it takes.

The work of a request is the time that an engine busy with nothing but its like takes for each of
them, its batch as full as places and memory allow. With ``c = in + out/2`` tokens held on average,
``B = min(max_num_seqs, kv/c)`` answers are written at once. Its prompt is read in ``r = in/(budget
- B)`` whole steps of ``budget = max_num_batched_tokens``, which write as well; its answer has a
place in ``out/B`` steps of the batch, those in which somebody reads included:

    work = r * step_seconds(B, B*c, budget - B, in/2) + max(0, out/B - r) * step_seconds(B, B*c)

and with ``out/r`` in place of ``B`` where reading takes all steps. So what decodes long pays for
its share of every step, what holds much memory for the answers that find no room beside it, and
what reads much for its prefill. It depends on the request and on the engine, never on a router or
on what else is offered. Offered work over time, divided by the number of engines, is the load: 1
is what engines that serve one kind at a time just do.
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
        config, steps = self._config, self._steps
        held = input_tokens + output_tokens / 2
        batch = max(1.0, min(float(config.max_num_seqs), self._kv / held))
        chunk = max(1.0, config.max_num_batched_tokens - batch)
        reading = input_tokens / chunk
        writing = output_tokens / batch
        if reading > writing:
            batch = output_tokens / reading
        count, context = round(batch), round(batch * held)
        seconds = reading * steps.step_seconds(count, context, round(chunk), input_tokens // 2)
        if writing > reading:
            seconds += (writing - reading) * steps.step_seconds(max(1, count), context, 0, 0)
        return seconds

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
