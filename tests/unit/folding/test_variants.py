"""Which characters are one for finding, and that folding settles."""

from __future__ import annotations

from forebay.folding import simplified


def test_traditional_characters_become_simplified_ones() -> None:
    assert simplified("漢語國際後來衞星裏面裡面") == "汉语国际后来卫星里面里面"


def test_what_is_simplified_already_stays_the_same_object() -> None:
    for text in ("汉语什么后台干饼了解发展", "a “pump”", "pump"):
        assert simplified(text) is text


def test_folding_twice_changes_nothing_and_no_position_moves() -> None:
    every = "".join(map(chr, (*range(0x3400, 0xA000), *range(0xF900, 0xFB00))))
    once = simplified(every)
    assert once != every
    assert len(once) == len(every)
    assert simplified(once) == once


def test_kana_and_hangul_are_left_alone() -> None:
    assert simplified("ひらがなカタカナ한국어") == "ひらがなカタカナ한국어"
