"""From settings to a generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forebay.folding import simplified
from forebay.generation.connections import KeepAll, MakeSizing
from forebay.generation.extractive import ExtractiveGenerator
from forebay.generation.settings import GenerationSettings
from forebay.kernel.stages import Generator, TokenCounter


@asynccontextmanager
async def open_generator(
    settings: GenerationSettings,
    *,
    counter: TokenCounter,
    sizing: MakeSizing = KeepAll,
) -> AsyncIterator[Generator]:
    """The generator ``settings`` ask for; closed when the block ends.

    ``sizing`` makes what says how many connections to keep to each engine.

    ``ConfigError`` for settings that contradict themselves, a missing extra or model file.
    """
    if settings.backend == "extractive":
        # Its tables are read now, and not by the first question in Chinese.
        await asyncio.to_thread(simplified, "汉")
        yield ExtractiveGenerator(counter, settings.extractive)
        return
    if settings.backend == "openai":
        from forebay.generation.openai import OpenAIGenerator

        engines = OpenAIGenerator(settings.pools, settings.engine, counter, sizing)
        try:
            yield engines
        finally:
            await engines.close()
        return
    from forebay.generation.llama import LlamaGenerator

    local = await LlamaGenerator.load(settings.llama)
    try:
        yield local
    finally:
        await local.close()
