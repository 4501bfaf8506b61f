"""What a request costs, in tokens: cost = alpha x input + beta x output + gamma x context (F0.5).

``input`` is the built prompt with its passages in it, counted once. ``context`` is the length the
request occupies in the engine's cache in the end: input and output together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ConfigError


class CostWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The factors of a route or tenant."""

    input: Annotated[float, Meta(description="Cost of one prompt token.", ge=0.0)] = 1.0
    output: Annotated[float, Meta(description="Cost of one written token.", ge=0.0)] = 1.0
    context: Annotated[
        float, Meta(description="Cost of one token held in the engine's cache.", ge=0.0)
    ] = 0.0

    def __post_init__(self) -> None:
        if not self.input + self.output + self.context:
            raise ConfigError(
                "cost factors are all 0, so nothing would ever be charged; make one of input, "
                "output and context more than that.",
                param="admission.profiles",
            )

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Cost of a request that reads and writes so many tokens."""
        return (
            self.input * input_tokens
            + self.output * output_tokens
            + self.context * (input_tokens + output_tokens)
        )

    def output_within(self, budget: float, input_tokens: int) -> int:
        """Most output tokens that keep the cost within ``budget``; negative: not even the input."""
        left = budget - self.cost(input_tokens, 0)
        each = self.output + self.context
        if left < 0:
            return -1
        return int(left / each) if each > 0 else 2**31 - 1


COST_PROFILES: Mapping[str, CostWeights] = {
    "tokens": CostWeights(),
    "summary": CostWeights(0.8, 1.2, 0.1),
    "code": CostWeights(1.0, 1.5, 0.3),
    "document": CostWeights(0.5, 0.7, 2.0),
}
"""Named factors (F0.5): plain tokens, short summary, code, long-document reasoning."""
