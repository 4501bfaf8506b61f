"""Step times of a GPU engine from a roofline.

    step = max(bytes / bandwidth, FLOPs / compute) + all-reduces + overhead

Bytes: the weights once, and the keys and values of every token attended to. FLOPs: two per weight
and token, and four per head dimension and attended pair. Between two changes of a decode batch
both arguments of the maximum grow on straight lines, which cross at most once.
"""

from __future__ import annotations

import math

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.hardware import Hardware
from forebay.lab.sim.lines import line_seconds, line_steps
from forebay.lab.sim.models import KvPrecision, Model, Precision


class Efficiency(msgspec.Struct, frozen=True):
    """Which part of the peaks an engine reaches; fit them by `simulate calibrate` when you can."""

    memory: float = 0.75
    """Of the bandwidth. Reported for vLLM and TensorRT-LLM decoding: 0.70-0.85 (model bandwidth
    utilisation, open-source-ai.tech glossary, 2025); 0.55-0.60 at batch 1 on older stacks
    (Databricks, LLM inference performance engineering, 2023)."""
    compute: float = 0.55
    """Of the dense FLOPs in prefill. Large matrix products reach 0.6-0.75 (FlashAttention-3's
    paper, 2024: 740 of 989 TFLOPS on H100); norms, copies and small chunks take the rest."""
    overhead_s: float = 0.002
    """Scheduling, sampling and launches per step. An assumption: vLLM V1 hides part of it behind
    the step under way (vLLM's V1 announcement, 2025); earlier versions took about 5 ms."""


class RooflineSteps:
    """A ``StepModel`` of one model on ``tensor_parallel`` cards."""

    __slots__ = (
        "_all_reduce",
        "_all_reduce_token",
        "_flops",
        "_flops_head",
        "_flops_pair",
        "_flops_token",
        "_kv",
        "_overhead",
        "_weights",
    )

    def __init__(
        self,
        hardware: Hardware,
        model: Model,
        *,
        precision: Precision = "fp16",
        kv_precision: KvPrecision = "fp16",
        tensor_parallel: int = 1,
        efficiency: Efficiency | None = None,
    ) -> None:
        reached = efficiency or Efficiency()
        if not (0 < reached.memory <= 1 and 0 < reached.compute <= 1 and reached.overhead_s >= 0):
            raise ConfigError(
                "efficiency: memory and compute lie above 0 and up to 1, overhead_s is not negative"
            )
        cards = tensor_parallel
        bandwidth = hardware.bandwidth_bytes_per_s * reached.memory * cards
        # Without fp8 units, and with 4-bit weights, weights are widened and multiplied in fp16.
        peak = hardware.fp8_flops if precision == "fp8" else None
        compute = (peak or hardware.fp16_flops) * reached.compute * cards
        self._weights = model.read_bytes(precision) / bandwidth
        # With more cards than key-value heads, each head's cache is kept and read more than once.
        copies = max(1, cards // model.kv_heads)
        self._kv = model.kv_bytes_per_token(kv_precision) * copies / bandwidth
        self._flops_token = 2 * model.layer_parameters / compute
        self._flops_head = 2 * model.embedding_parameters / compute
        # Scores and weighted sum: two products of head_size per head, layer and attended token,
        # in fp16 whatever the weights are.
        self._flops_pair = (
            4
            * model.layers
            * model.heads
            * model.head_size
            / (hardware.fp16_flops * reached.compute * cards)
        )
        # Two all-reduces a layer; a ring moves 2 (n-1)/n of the activations over each link.
        reduces = 2 * model.layers if cards > 1 else 0
        self._all_reduce = reduces * hardware.link.latency_s
        moved = 2 * (cards - 1) / cards * model.hidden * 2
        self._all_reduce_token = reduces * moved / hardware.link.bytes_per_s
        self._overhead = reached.overhead_s

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        tokens = decode_sequences + prefill_tokens
        # At most one of the chunks of a step ends a prompt in the usual case; one more row of the
        # output head is nothing beside a chunk.
        rows = decode_sequences + (1 if prefill_tokens else 0)
        memory = self._weights + self._kv * (context_tokens + prefill_context_tokens)
        compute = (
            self._flops_token * tokens
            + self._flops_head * rows
            + self._flops_pair * (context_tokens + prefill_tokens * prefill_context_tokens)
        )
        return (
            max(compute, memory)
            + self._overhead
            + self._all_reduce
            + self._all_reduce_token * tokens
        )

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        fixed, memory, compute = self._lines(sequences)
        first = self._cross(memory, compute, sequences, context_tokens, steps)
        seconds = fixed * steps
        if first:
            base, slope = memory, self._kv
            if memory + self._kv * context_tokens < compute + self._flops_pair * context_tokens:
                base, slope = compute, self._flops_pair
            seconds += line_seconds(base, slope, context_tokens, sequences, first)
        if first < steps:
            context = context_tokens + first * sequences
            base, slope = memory, self._kv
            if memory + self._kv * context < compute + self._flops_pair * context:
                base, slope = compute, self._flops_pair
            seconds += line_seconds(base, slope, context, sequences, steps - first)
        return seconds

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        if seconds <= 0:
            return 0
        fixed, memory, compute = self._lines(sequences)
        first = self._cross(memory, compute, sequences, context_tokens, _MANY)
        context = context_tokens
        steps = 0
        if first < _MANY:
            before = self.run_seconds(sequences, context_tokens, first)
            if before <= seconds:
                steps = first
                seconds_left = seconds - before
                context += first * sequences
            else:
                seconds_left = seconds
        else:
            seconds_left = seconds
        base, slope = memory, self._kv
        if memory + self._kv * context < compute + self._flops_pair * context:
            base, slope = compute, self._flops_pair
        steps += line_steps(base + fixed, slope, context, sequences, seconds_left)
        while self.run_seconds(sequences, context_tokens, steps + 1) <= seconds:
            steps += 1
        while steps > 0 and self.run_seconds(sequences, context_tokens, steps) > seconds:
            steps -= 1
        return steps

    def _lines(self, sequences: int) -> tuple[float, float, float]:
        """What every step of a decode run takes, and both lines' values at no context."""
        fixed = self._overhead + self._all_reduce + self._all_reduce_token * sequences
        return fixed, self._weights, (self._flops_token + self._flops_head) * sequences

    def _cross(
        self, memory: float, compute: float, sequences: int, context_tokens: int, steps: int
    ) -> int:
        """How many steps run before the larger line changes; ``steps`` when it does not."""
        steeper = self._kv - self._flops_pair
        if not steeper:
            return steps
        # Where the lines meet, in tokens of context.
        meeting = (compute - memory) / steeper
        if meeting <= context_tokens:
            return steps
        return min(steps, math.ceil((meeting - context_tokens) / sequences))


_MANY = 1 << 62
