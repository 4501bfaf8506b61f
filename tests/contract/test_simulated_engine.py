"""The adapter of OpenAI-compatible engines against the simulated one: the one suite again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from forebay.generation import EngineSettings, GenerationSettings, PoolSettings
from forebay.generation.opening import open_generator
from forebay.kernel.stages import Generator
from forebay.testing.embedding import WordCounter
from forebay.testing.generator_suite import GeneratorConformance
from tests.unit.lab.sim.serving.simulated import simulated


class TestOpenAIGeneratorOverSimulatedEngine(GeneratorConformance):
    @pytest.fixture
    async def generator(self) -> AsyncIterator[Generator]:
        async with simulated(replicas=2, tokens_per_write=3) as running:
            urls = tuple(client.url + "/v1" for client in running.clients)
            pool = PoolSettings(name="a", base_urls=urls, model="sim")
            settings = GenerationSettings(backend="openai", pools=(pool,), engine=EngineSettings())
            async with open_generator(settings, counter=WordCounter()) as generator:
                yield generator
            for replica in running.server.replicas:
                assert replica.under_way == 0
