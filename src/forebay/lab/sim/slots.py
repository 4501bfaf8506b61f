"""Step times measured on an engine: decode at 1, 2, 4 … in flight, and the rate of prefill.

A roofline does not describe llama.cpp on a CPU, which gains almost nothing from batching: one
sequence takes a matrix-vector path, two a slower matrix-matrix one. What holds there is a table:
for each number in flight, a decode step takes `decode_s` plus `context_token_s` for each token of
context. The same table fits a GPU engine with enough levels.

    decode(n)  = decode_s[n] + context_token_s[n] * context
    prefill(p) = max(prefill_s + p * (prefill_token_s + prefill_pair_s * attended), decode_s[1])
    step       = decode + prefill - overlap * min(decode, prefill)

A short prompt is no faster than one decoded token: both read all weights once.
"""

from __future__ import annotations

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.lines import line_seconds, line_steps


class SlotLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Decode steps with ``in_flight`` sequences."""

    in_flight: int
    decode_s: float
    """A step without context."""
    context_token_s: float
    """What a token of context adds to it."""


class SlotRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of one engine."""

    levels: tuple[SlotLevel, ...]
    """In rising order of ``in_flight``; between them values are interpolated, beyond the last
    they go on along the last piece."""
    prefill_s: float
    """Of a step with prefill, whatever its length."""
    prefill_token_s: float
    prefill_pair_s: float
    """Per prefilled token and token it attends to."""
    overlap: float = 0.0
    """Which part of the shorter of decode and prefill a step with both saves."""

    def __post_init__(self) -> None:
        counts = [level.in_flight for level in self.levels]
        if not counts or counts[0] < 1 or counts != sorted(set(counts)):
            raise ConfigError("levels: give at least one, in rising order of in_flight from 1")
        rates = [self.prefill_s, self.prefill_token_s, self.prefill_pair_s]
        for level in self.levels:
            if level.decode_s <= 0:
                raise ConfigError("levels: decode_s must be above zero")
            rates.append(level.context_token_s)
        if min(rates) < 0 or not 0 <= self.overlap <= 1:
            raise ConfigError("rates must not be negative, and overlap lies between 0 and 1")


class SlotSteps:
    """A ``StepModel`` over measured rates."""

    __slots__ = ("_at", "_rates")

    def __init__(self, rates: SlotRates) -> None:
        self._rates = rates
        self._at: dict[int, tuple[float, float]] = {}

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        decode = prefill = 0.0
        if decode_sequences:
            base, slope = self._level(decode_sequences)
            decode = base + slope * context_tokens
        if prefill_tokens:
            rates = self._rates
            prefill = rates.prefill_s + prefill_tokens * (
                rates.prefill_token_s + rates.prefill_pair_s * prefill_context_tokens
            )
            prefill = max(prefill, rates.levels[0].decode_s)
        return decode + prefill - self._rates.overlap * min(decode, prefill)

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        base, slope = self._level(sequences)
        return line_seconds(base, slope, context_tokens, sequences, steps)

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        if seconds <= 0:
            return 0
        base, slope = self._level(sequences)
        steps = line_steps(base, slope, context_tokens, sequences, seconds)
        while line_seconds(base, slope, context_tokens, sequences, steps + 1) <= seconds:
            steps += 1
        while steps > 0 and line_seconds(base, slope, context_tokens, sequences, steps) > seconds:
            steps -= 1
        return steps

    def _level(self, sequences: int) -> tuple[float, float]:
        found = self._at.get(sequences)
        if found is None:
            found = self._at[sequences] = self._interpolated(sequences)
        return found

    def _interpolated(self, sequences: int) -> tuple[float, float]:
        levels = self._rates.levels
        if len(levels) == 1 or sequences <= levels[0].in_flight:
            return levels[0].decode_s, levels[0].context_token_s
        above = next(
            (i for i, level in enumerate(levels) if level.in_flight >= sequences), len(levels) - 1
        )
        low, high = levels[above - 1], levels[above]
        part = (sequences - low.in_flight) / (high.in_flight - low.in_flight)
        base = low.decode_s + part * (high.decode_s - low.decode_s)
        slope = low.context_token_s + part * (high.context_token_s - low.context_token_s)
        # Beyond the last level a falling line must not reach zero.
        return max(base, min(low.decode_s, high.decode_s)), max(slope, 0.0)
