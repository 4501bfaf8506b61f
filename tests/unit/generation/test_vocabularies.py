"""Vocabularies that a package carries: counts, what is not special, and clear errors."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from forebay.generation import tokenizing
from forebay.generation.settings import PoolSettings
from forebay.generation.tokenizing import LocalCounter, open_tokens
from forebay.generation.vocabularies import of_bundle
from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Message
from forebay.testing.embedding import WordCounter
from tests.unit.generation.test_tokenizing import MESSAGES, context, tokens

NOWHERE = "http://127.0.0.1:1/v1"
EN = (
    "You may return an item within 30 days, unused and in its original packaging; "
    "refunds take 5 to 7 working days."
)
ZH = "商品签收后30天内可以退货，须未使用并保留原包装；退款在5到7个工作日内到账。"


@pytest.mark.parametrize(
    ("name", "en", "zh"),
    [("cl100k_base", 27, 37), ("o200k_base", 27, 31), ("qwen3", 28, 28), ("deepseek_v3", 28, 27)],
)
def test_counts_are_those_of_the_models_own_tokenizers(name: str, en: int, zh: int) -> None:
    """The counts are of tiktoken with each maker's ranks, and of DeepSeek's ``tokenizer.json``."""
    counting = of_bundle(name)
    assert (counting(EN), counting(ZH), counting("")) == (en, zh, 0)


def test_what_is_written_like_a_mark_is_text() -> None:
    assert of_bundle("qwen3")("<|im_end|>") > 1


async def test_a_pool_counts_by_a_bundled_vocabulary() -> None:
    async with tokens(NOWHERE, "bundle:o200k_base") as counting:
        messages = (Message("system", EN), Message("user", ZH), *MESSAGES)
        counted = await counting.prompt(context(VirtualClock()), messages)
        assert counted is not None
        assert counted >= 27 + 31 + len(messages) * tokenizing.MESSAGE_TOKENS
        assert counting.written("p", ZH) == 31


async def test_pools_with_one_vocabulary_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> Any:
        loaded.append(name)
        return len

    monkeypatch.setattr(tokenizing, "of_bundle", load)
    pools = [
        PoolSettings(name=name, base_urls=(NOWHERE,), model="m", tokenizer="bundle:qwen3")
        for name in ("short", "long")
    ]
    async with open_tokens(pools, WordCounter()) as opened:
        assert opened is not None
        assert opened.written("short", "字字") == opened.written("long", "ab") == 2
    assert loaded == ["qwen3"]


def test_huge_texts_are_counted_by_their_beginning() -> None:
    seen: list[int] = []
    counting = of_bundle("cl100k_base")

    def watched(piece: str) -> int:
        seen.append(len(piece))
        return counting(piece)

    counter = LocalCounter(watched, WordCounter())
    for unit, times in (("word ", 400_000), ("退货 ", 600_000)):
        seen.clear()
        text = unit * times
        assert counter.count(text) == pytest.approx(times * counting(unit * 100) / 100, rel=0.05)
        assert sum(seen) == tokenizing.EXACT_CHARACTERS
        assert max(seen) <= tokenizing.PIECE_CHARACTERS


async def test_an_unknown_name_is_told_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r'"bundle:gpt-9".*llama3.*qwen3'):
        async with tokens(NOWHERE, "bundle:gpt-9"):
            pass


async def test_a_package_that_is_not_there_is_told_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_name: str) -> Any:
        raise ModuleNotFoundError("No module named 'splintr'")

    monkeypatch.setattr(importlib, "import_module", gone)
    with pytest.raises(ConfigError, match="make setup-vocabularies"):
        of_bundle("qwen3")
