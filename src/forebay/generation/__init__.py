"""Generators behind one protocol: extractive, OpenAI-compatible engines, local models."""

from forebay.generation.extractive import ExtractiveGenerator
from forebay.generation.settings import (
    EngineSettings,
    ExtractiveSettings,
    GenerationSettings,
    LlamaSettings,
    PoolSettings,
)

__all__ = [
    "EngineSettings",
    "ExtractiveGenerator",
    "ExtractiveSettings",
    "GenerationSettings",
    "LlamaSettings",
    "PoolSettings",
]
