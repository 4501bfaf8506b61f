"""Token counting: exact where it says so, bounded everywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.embedding.counter import BoundedTokenCounter, CounterSettings
from forebay.embedding.tokenizers import leading_text


class Words:
    """Counts words and remembers how much it was asked."""

    def __init__(self) -> None:
        self.characters = 0
        self.longest = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        self.longest = max(self.longest, len(text))
        return len(text.split())


SMALL = CounterSettings(exact_characters=1024, piece_characters=64)


@given(st.lists(st.text("ab中", min_size=1, max_size=20), max_size=60))
def test_cutting_at_white_space_counts_exactly(words: list[str]) -> None:
    text = " ".join(words)[:1024]
    assert BoundedTokenCounter(Words(), SMALL).count(text) == len(text.split())


def test_a_run_without_white_space_is_cut() -> None:
    words = Words()
    assert BoundedTokenCounter(words, SMALL).count("x" * 1000) == 16
    assert words.longest == 64


def test_long_texts_are_extrapolated_from_samples_over_their_length() -> None:
    words = Words()
    text = "ab " * 20_000 + "abcde " * 10_000
    counted = BoundedTokenCounter(words, SMALL).count(text)
    assert abs(counted - 30_000) < 2_500
    assert words.characters <= 1024


def test_leading_text_skips_blanks_and_is_bounded() -> None:
    assert leading_text("short  text", 100) == "short  text"
    assert leading_text(" " * 1_000_000 + "meaning", 10) == "meaning"
    assert leading_text("a   b" * 1000, 4) == "a ba ba ba ba ba ba ba ba ba ba b"[:32]
    assert len(leading_text("字" * 1_000_000, 512)) == 4096
