"""Texts have exactly the tokens asked for, equal for equal numbers, different otherwise."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from forebay.lab.workload.text import Language, TextMaker, mixed
from forebay.lab.workload.tokens import count_tokens, first_tokens, split_tokens

LANGUAGES = get_args(Language)


@pytest.fixture(scope="module", params=LANGUAGES)
def maker(request: pytest.FixtureRequest) -> TextMaker:
    return TextMaker(request.param)


@pytest.mark.parametrize("tokens", [*range(40), 100, 511, 512, 513, 8_000])
def test_the_length_is_exact(maker: TextMaker, tokens: int) -> None:
    for number in (0, 1, 2**61 + 7, -5):
        assert count_tokens(maker.text(number, tokens)) == tokens


def test_equal_numbers_give_equal_text_and_others_differ_from_the_start(maker: TextMaker) -> None:
    openings = {tuple(split_tokens(maker.text(number, 64))[:16]) for number in range(5_000)}
    assert len(openings) == 5_000
    assert maker.text(3, 500) == maker.text(3, 500)


def test_another_process_writes_the_same() -> None:
    code = "from forebay.lab.workload.text import TextMaker; print(TextMaker('zh').text(7, 99))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert seen.stdout.decode().strip() == TextMaker("zh").text(7, 99)


@pytest.mark.parametrize("block", [1, 5, 16, 512])
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 1_000, 2_048])
def test_blocks_have_the_exact_length_and_share_their_beginning(
    maker: TextMaker, block: int, tokens: int
) -> None:
    ids = list(range(-(-tokens // block)))
    text = maker.blocks(ids, block, tokens)
    assert count_tokens(text) == tokens
    other = maker.blocks([*ids[:-1], 10**9], block, tokens)
    shared = (len(ids) - 1) * block
    assert first_tokens(other, shared) == first_tokens(text, shared)


def test_a_part_of_a_block_is_its_beginning(maker: TextMaker) -> None:
    assert maker.blocks([7], 512, 512).startswith(maker.blocks([7], 512, 100))


def test_the_cache_of_blocks_is_bounded() -> None:
    maker = TextMaker("en", cached_blocks=10)
    for number in range(100):
        maker.blocks([number], 16, 16)
    assert maker.cached_blocks == 10


def test_english_and_chinese_look_like_it() -> None:
    assert TextMaker("en").text(1, 50).isascii()
    chinese = TextMaker("zh").text(1, 50)
    assert sum("\u4e00" <= sign <= "\u9fff" for sign in chinese) > 40


def test_mixing_spreads_neighbours() -> None:
    values = [mixed(number) for number in range(1_000)]
    assert len(set(values)) == 1_000
    ones = [sum(value >> bit & 1 for value in values) for bit in range(64)]
    # Binomial(1000, 1/2): 4 sigma are 63.
    assert all(437 < count < 563 for count in ones)
