"""From settings to a generator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forebay.generation.extractive import ExtractiveGenerator
from forebay.generation.settings import GenerationSettings
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Generator, TokenCounter


@asynccontextmanager
async def open_generator(
    settings: GenerationSettings, *, counter: TokenCounter
) -> AsyncIterator[Generator]:
    """The generator ``settings`` ask for; closed when the block ends."""
    if settings.backend == "extractive":
        yield ExtractiveGenerator(counter, settings.extractive)
        return
    raise ConfigError(f"generation.backend {settings.backend} is not available yet.")
