"""From settings to a generator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forebay.generation.settings import GenerationSettings
from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Generator,
    TextDelta,
    TokenCounter,
)


class QuoteGenerator:
    """Quotes the best passage."""

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncIterator[TextDelta | Finished]:
        """Yield the quote, then the end."""
        text = request.passages[0].chunk.text[:300] + " [1]" if request.passages else "?"
        yield TextDelta(text)
        yield Finished("stop", request.prompt_tokens, len(text), "extractive", not request.passages)


@asynccontextmanager
async def open_generator(
    settings: GenerationSettings, *, counter: TokenCounter, clock: Clock
) -> AsyncIterator[Generator]:
    """The generator ``settings`` ask for; closed when the block ends."""
    yield QuoteGenerator()
