"""What a request costs one engine, learned from what a gateway sees of it.

An engine with continuous batching works in steps. A step writes one token for each of ``n``
sequences, which hold ``t`` tokens of context together, and prefills some prompt tokens beside::

    first token = first + prefill x + chunk x step    x: prompt tokens up to the own
    step        = fixed + sequence n + context t + beside c         c: tokens prefilled in the step

Both are fitted by non-negative least squares of relative errors, over *bins* of similar conditions
and not over samples: of each bin the mean of late counts once, so that ten thousand short prompts
do not drown what one long prompt has shown. ``prefill`` and ``beside`` are two terms since small
prompts hide in steps that memory bounds, and long ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LEARNED_AFTER = 8
"""Samples before the model is believed."""
FRESH = 0.15
"""Weight of a new sample in the mean of its bin."""
UNCLEAR = 0.2
"""Weight of first tokens that waited for other prompts, of which it is guessed what was left."""
MAX_BINS = 128
MEMORY_S = 120.0
"""A bin that nothing fell into for so long is forgotten."""
SOLVE_EVERY = 16
RIDGE = 1e-5
SHORTEST_S = 1e-5


class _Bins:
    """Means of rows (features, what was measured, weight) by condition."""

    __slots__ = (
        "_rows",
        "_width",
    )

    def __init__(self, width: int) -> None:
        self._rows: dict[tuple[int, ...], tuple[list[float], list[float]]] = {}
        self._width = width  # features

    def add(self, key: tuple[int, ...], row: Sequence[float], now: float) -> None:
        found = self._rows.get(key)
        if found is None:
            if len(self._rows) >= MAX_BINS:
                oldest = min(self._rows, key=lambda one: self._rows[one][1][1])
                del self._rows[oldest]
            self._rows[key] = (list(row), [1.0, now])
            return
        means, state = found
        state[0] += 1.0
        state[1] = now
        share = max(FRESH, 1.0 / state[0])
        for at, value in enumerate(row):
            means[at] += share * (value - means[at])

    def fit(self, now: float, most: float = math.inf) -> list[float]:
        """Non-negative coefficients; each bin counts by its samples, up to a few.

        The last one is at most ``most``.
        """
        width = self._width
        old = [key for key, (_, state) in self._rows.items() if now - state[1] > MEMORY_S]
        if len(old) < len(self._rows):
            for key in old:
                del self._rows[key]
        a = [[0.0] * width for _ in range(width)]
        b = [0.0] * width
        for means, (count, _) in self._rows.values():
            weight = means[width + 1] * min(1.0, count / 4) / max(SHORTEST_S, means[width]) ** 2
            for i in range(width):
                x = means[i] * weight
                b[i] += x * means[width]
                for j in range(width):
                    a[i][j] += x * means[j]
        found = non_negative(a, b)
        if found[-1] > most:
            last = width - 1
            rest = [b[i] - most * a[i][last] for i in range(last)]
            found = [*non_negative([row[:last] for row in a[:last]], rest), most]
        return found


def non_negative(a: Sequence[Sequence[float]], b: Sequence[float]) -> list[float]:
    """A solution of ``a x = b`` (normal equations) in which what would be negative is left out."""
    scales = [math.sqrt(a[i][i]) for i in range(len(b))]
    used = [i for i, scale in enumerate(scales) if scale > 0]
    while used:
        rows = [
            [a[i][j] / (scales[i] * scales[j]) + (RIDGE if i == j else 0.0) for j in used]
            + [b[i] / scales[i]]
            for i in used
        ]
        found = _solved(rows)
        worst = min(range(len(used)), key=lambda at: found[at])
        if found[worst] >= 0:
            whole = [0.0] * len(b)
            for at, i in enumerate(used):
                whole[i] = found[at] / scales[i]
            return whole
        del used[worst]
    return [0.0] * len(b)


def _solved(rows: list[list[float]]) -> list[float]:
    """Gaussian elimination of positive definite equations; the last column is the right side."""
    count = len(rows)
    for at in range(count):
        pivot = rows[at][at]
        for other in range(at + 1, count):
            factor = rows[other][at] / pivot
            if factor:
                for j in range(at, count + 1):
                    rows[other][j] -= factor * rows[at][j]
    found = [0.0] * count
    for at in reversed(range(count)):
        rest = rows[at][count] - sum(rows[at][j] * found[j] for j in range(at + 1, count))
        found[at] = rest / rows[at][at]
    return found


class EngineModel:
    """Seconds of one engine, from input and output tokens; see the module for the terms."""

    __slots__ = (
        "_firsts",
        "_seen",
        "_steps",
        "beside_s",
        "chunk",
        "context_s",
        "first_s",
        "fixed_s",
        "longest",
        "prefill_s",
        "sequence_s",
    )

    def __init__(self) -> None:
        self._firsts = _Bins(3)
        self._steps = _Bins(4)
        self._seen = [0, 0]
        self.longest = 0.0  # prompt tokens that a first token waited for, at most
        self.first_s = self.prefill_s = self.chunk = 0.0
        self.fixed_s = self.sequence_s = self.context_s = self.beside_s = 0.0

    @property
    def known(self) -> bool:
        """Whether enough was seen to go by it."""
        return self._seen[0] >= LEARNED_AFTER and self._seen[1] >= LEARNED_AFTER

    def step_s(self, sequences: float, context: float) -> float:
        """Seconds of a step without prefill."""
        return self.fixed_s + self.sequence_s * sequences + self.context_s * context

    def prompt_s(self, tokens: float, step_s: float = 0.0) -> float:
        """Seconds of the engine that a prompt takes beside answers whose step takes ``step_s``."""
        return (self.prefill_s + self.chunk * step_s) * tokens

    def read_s(self, tokens: float) -> float:
        """Seconds that a prompt takes from the answers beside it."""
        return max(self.prefill_s, self.beside_s) * tokens

    def alone_s(self, input_tokens: float, output_tokens: float) -> float:
        """Seconds such a request takes in an empty engine."""
        context = input_tokens + output_tokens / 2
        first_s = self.first_s + self.prompt_s(input_tokens)
        return first_s + (output_tokens - 1) * self.step_s(1, context)

    def work_s(self, input_tokens: float, output_tokens: float, beside: float = 1e9) -> float:
        """Seconds of the engine it takes from others, with ``beside`` sequences to share a step."""
        context = input_tokens + output_tokens / 2
        a_token = self.sequence_s + self.context_s * context + self.fixed_s / max(1.0, beside)
        read_s = self.read_s(input_tokens)
        if beside < 1e9:
            read_s = max(read_s, self.prompt_s(input_tokens, self.fixed_s))
        return read_s + output_tokens * a_token

    def wrote(
        self,
        tokens: float,
        took_s: float,
        *,
        sequences: float,
        context: float,
        prefilled: float,
        now: float,
    ) -> None:
        """Note an interval: tokens written by one answer, the means and the sum beside it."""
        beside = prefilled / tokens
        key = (_size(sequences), _size(context) // 2, _size(beside) // 2)
        self._steps.add(key, (1.0, sequences, context, beside, took_s / tokens, 1.0), now)
        self._seen[1] += 1
        if self._seen[1] <= 2 * LEARNED_AFTER or self._seen[1] % SOLVE_EVERY == 0:
            # What answers feel of a prompt is no more than what its own first token does: where
            # both grow together, the rest is due to the answers.
            read_s = self.prefill_s + self.chunk * took_s / tokens
            found = self._steps.fit(now, read_s if self._seen[0] >= LEARNED_AFTER else math.inf)
            self.fixed_s, self.sequence_s, self.context_s, self.beside_s = found

    def began(
        self, took_s: float, tokens: float, now: float, *, step_s: float, clear: bool
    ) -> None:
        """Note a first token, its prompt and those before it; ``clear``: (nearly) none were.

        ``step_s``: what a step of the answers beside it takes.
        """
        self.longest = max(self.longest, tokens)
        weight = 1.0 if clear else UNCLEAR
        key = (_size(tokens), _size(1e3 * step_s), clear)
        self._firsts.add(key, (1.0, tokens, tokens * step_s, took_s, weight), now)
        self._seen[0] += 1
        if self._seen[0] <= 2 * LEARNED_AFTER or self._seen[0] % SOLVE_EVERY == 0:
            self.first_s, self.prefill_s, self.chunk = self._firsts.fit(now)

    def statistics(self) -> dict[str, float]:
        """The terms, in seconds."""
        return {
            "first_s": self.first_s,
            "prefill_token_s": self.prefill_s,
            "step_fixed_s": self.fixed_s,
            "step_sequence_s": self.sequence_s,
            "step_context_s": self.context_s,
            "step_prefill_s": self.beside_s,
        }


def _size(value: float) -> int:
    return 0 if value < 1 else 1 + int(math.log2(value))
