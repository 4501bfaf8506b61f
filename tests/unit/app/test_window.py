"""A pool that takes longer prompts than are ever built is spoken of at the start."""

from __future__ import annotations

import pytest

from forebay.app.serving import _warn_of_window
from forebay.app.settings import AnsweringSettings, Settings
from forebay.context import ContextSettings
from forebay.generation.settings import PoolSettings


@pytest.mark.parametrize(("window", "told"), [(8192, True), (16_384, True), (32_768, False)])
def test_a_window_below_a_pool_is_told(
    caplog: pytest.LogCaptureFixture, window: int, *, told: bool
) -> None:
    urls = ("http://127.0.0.1:1/v1",)
    pool = PoolSettings("long", base_urls=urls, model="m", max_input_tokens=16_384)
    generation = AnsweringSettings(backend="openai", pools=(pool,))
    settings = Settings(context=ContextSettings(window_tokens=window), generation=generation)
    _warn_of_window(settings)
    assert ("context.window_tokens" in caplog.text) == told
