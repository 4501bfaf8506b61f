"""Which characters are one for finding, and that folding settles."""

from __future__ import annotations

from forebay.retrieval.variants import simplified


def test_traditional_characters_become_simplified_ones() -> None:
    assert "漢語國際後來衞星裏面裡面".translate(simplified()) == "汉语国际后来卫星里面里面"


def test_what_is_simplified_already_stays() -> None:
    text = "汉语什么后台干饼了解发展"
    assert text.translate(simplified()) == text


def test_folding_twice_changes_nothing() -> None:
    table = simplified()
    assert all(ord(new) not in table for new in table.values())
    assert all(len(new) == 1 for new in table.values())


def test_kana_and_hangul_are_left_alone() -> None:
    assert "ひらがなカタカナ한국어".translate(simplified()) == "ひらがなカタカナ한국어"
