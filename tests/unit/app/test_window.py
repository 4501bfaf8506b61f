"""A pool that takes longer prompts than are ever built is spoken of at the start."""

from __future__ import annotations

import pytest

from forebay.app.serving import _warn_of_window
from forebay.app.settings import Settings
from forebay.context import ContextSettings
from forebay.generation.settings import GenerationSettings, PoolSettings


@pytest.mark.parametrize(("window", "told"), [(8192, True), (16_384, True), (32_768, False)])
def test_a_window_below_a_pool_is_told(
    caplog: pytest.LogCaptureFixture, window: int, *, told: bool
) -> None:
    pool = PoolSettings("long", base_urls=("http://127.0.0.1:1/v1",), max_input_tokens=16_384)
    generation = GenerationSettings(backend="openai", pools=(pool,))
    settings = Settings(context=ContextSettings(window_tokens=window), generation=generation)
    _warn_of_window(settings)
    assert ("context.window_tokens" in caplog.text) == told
