"""Vectors of single tokens: what late interaction compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from forebay.kernel.stages import EmbedderSpec


class TokenStates(msgspec.Struct, frozen=True):
    """One row per token as the model saw it, prefix and special tokens included.

    ``data`` is float32 little-endian, row-major, ``tokens x dimensions``; not normalised.
    """

    tokens: int
    dimensions: int
    data: bytes


class TokenEncoder(Protocol):
    """Turns texts into the states of their tokens, in the last layer of an embedder's model."""

    @property
    def spec(self) -> EmbedderSpec:
        """The embedder whose states these are; ``dimensions`` is the size of one."""
        ...

    async def states(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> tuple[TokenStates, ...]:
        """Return one value per text, in order; long texts are cut."""
        ...
