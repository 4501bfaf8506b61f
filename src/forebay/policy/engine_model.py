"""What a request costs one engine, learned from what a gateway sees of it.

An engine with continuous batching works in steps. A step writes one token for each of ``n``
sequences, which hold ``t`` tokens of context together, and prefills some prompt tokens beside::

    step = fixed + sequence n + context t + prefill (tokens prefilled) + square (their lengths)

Over any interval in which an answer grew by ``m`` tokens that gives one equation with five unknown
terms, and a first token gives another; both are weighted by relative error and solved by
non-negative least squares with forgetting. Processor sharing then says the rest: with utilisation
``u`` (work a second of all requests) a token takes ``fixed / (1 - u)``.
"""

from __future__ import annotations

TERMS = 5
FORGET = 0.998
SOLVE_EVERY = 8
SWEEPS = 40
LEARNED_AFTER = 8
"""Equations before the model is believed."""
RIDGE = 1e-4
SHORTEST_S = 1e-4


class EngineModel:
    """Seconds of one engine, from input and output tokens; see the module for the terms."""

    __slots__ = ("_a", "_b", "_seen", "_since", "context_s", "fixed_s", "prefill_s", "sequence_s",
                 "square_s")  # fmt: skip

    def __init__(self) -> None:
        self._a = [[0.0] * TERMS for _ in range(TERMS)]
        self._b = [0.0] * TERMS
        self._seen = 0
        self._since = 0
        self.fixed_s = self.sequence_s = self.context_s = self.prefill_s = self.square_s = 0.0

    @property
    def known(self) -> bool:
        """Whether enough was seen to go by it."""
        return self._seen >= LEARNED_AFTER

    def step_s(self, sequences: float, context: float) -> float:
        """Seconds of a step without prefill."""
        return self.fixed_s + self.sequence_s * sequences + self.context_s * context

    def prompt_s(self, tokens: float) -> float:
        """Seconds of the engine that a prompt takes."""
        return self.prefill_s * tokens + self.square_s * tokens * tokens

    def alone_s(self, input_tokens: float, output_tokens: float) -> float:
        """Seconds such a request takes in an empty engine."""
        context = input_tokens + output_tokens / 2
        return self.prompt_s(input_tokens) + output_tokens * self.step_s(1, context)

    def work_s(self, input_tokens: float, output_tokens: float, beside: float = 1e9) -> float:
        """Seconds of the engine it takes from others, with ``beside`` sequences to share a step."""
        context = input_tokens + output_tokens / 2
        a_token = self.sequence_s + self.context_s * context + self.fixed_s / max(1.0, beside)
        return self.prompt_s(input_tokens) + output_tokens * a_token

    def wrote(
        self,
        tokens: float,
        took_s: float,
        *,
        sequences: float,
        context: float,
        prefilled: float,
        squares: float,
    ) -> None:
        """Note an interval: tokens written by one answer, and the means and sums beside it."""
        self._learn((tokens, tokens * sequences, tokens * context, prefilled, squares), took_s)

    def began(
        self, took_s: float, *, sequences: float, context: float, prefilled: float, squares: float
    ) -> None:
        """Note a first token; ``prefilled`` is the prompt and what was before it."""
        self._learn((1.0, sequences, context, prefilled, squares), took_s)

    def statistics(self) -> dict[str, float]:
        """The terms, in seconds."""
        return {
            "step_fixed_s": self.fixed_s,
            "step_sequence_s": self.sequence_s,
            "step_context_s": self.context_s,
            "prefill_token_s": self.prefill_s,
        }

    def _learn(self, terms: tuple[float, ...], took_s: float) -> None:
        scale = 1.0 / max(SHORTEST_S, took_s)
        row = [one * scale for one in terms]
        for i, x in enumerate(row):
            line = self._a[i]
            for j in range(i, TERMS):
                line[j] = line[j] * FORGET + x * row[j]
            self._b[i] = self._b[i] * FORGET + x
        self._seen += 1
        self._since += 1
        if self._since >= SOLVE_EVERY or self._seen <= 4 * LEARNED_AFTER:
            self._since = 0
            self._solve()

    def _solve(self) -> None:
        a, b = self._a, self._b
        diagonal = [a[i][i] for i in range(TERMS)]
        scales = [d**0.5 for d in diagonal]
        old = (self.fixed_s, self.sequence_s, self.context_s, self.prefill_s, self.square_s)
        x = [value * scale for value, scale in zip(old, scales, strict=True)]
        rows = [
            [
                0.0 if not scales[i] * scales[j] else
                (a[i][j] if i <= j else a[j][i]) / (scales[i] * scales[j])
                for j in range(TERMS)
            ]
            for i in range(TERMS)
        ]
        goal = [b[i] / scales[i] if scales[i] else 0.0 for i in range(TERMS)]
        for _ in range(SWEEPS):
            for i in range(TERMS):
                if not scales[i]:
                    continue
                row = rows[i]
                rest = goal[i] - sum(row[j] * x[j] for j in range(TERMS) if j != i)
                x[i] = max(0.0, rest / (1.0 + RIDGE))
        found = [value / scale if scale else 0.0 for value, scale in zip(x, scales, strict=True)]
        self.fixed_s, self.sequence_s, self.context_s, self.prefill_s, self.square_s = found
