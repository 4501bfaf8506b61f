"""One rule for tokens: known texts, additivity, ids that are stable across processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.lab.workload.tokens import count_tokens, split_tokens, tokenize


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" \n\t ", []),
        ("cat", ["cat"]),
        ("question", ["ques", "tion"]),
        ("Why, then?", ["Why", ",", "then", "?"]),
        ("差旅报销", ["差", "旅", "报", "销"]),
        ("VPN怎么连?", ["VPN", "怎", "么", "连", "?"]),
        ("カード 한국", ["カ", "ー", "ド", "한", "국"]),
        ("naïveté", ["naïv", "eté"]),
        ("a_b 3.14", ["a_b", "3", ".", "14"]),
        ("🙂", ["🙂"]),
        ("\ud800", ["\ud800"]),
    ],
)
def test_pieces(text: str, pieces: list[str]) -> None:
    assert split_tokens(text) == pieces
    assert count_tokens(text) == len(pieces)


@given(st.text(), st.text())
def test_texts_joined_by_white_space_add_up(left: str, right: str) -> None:
    assert tokenize(f"{left} {right}") == tokenize(left) + tokenize(right)


@given(st.text())
def test_nothing_but_white_space_is_lost(text: str) -> None:
    assert "".join(split_tokens(text)) == "".join(text.split())


@given(st.text() | st.text(st.characters(max_codepoint=127)) | st.text(st.sampled_from("a中。, ")))
def test_counting_is_splitting(text: str) -> None:
    assert count_tokens(text) == len(split_tokens(text))


def test_ids_are_32_bits_and_the_same_everywhere() -> None:
    # CRC-32 of the piece's UTF-8 bytes, so that another process agrees.
    assert tokenize("1234 中") == [0x9BE3E0A3, 0xD5D15A8B]
    ids = tokenize("the the 中 中")
    assert ids[0] == ids[1] and ids[2] == ids[3] and ids[0] != ids[2]
    assert all(0 <= value < 2**32 for value in ids)
