"""Which characters are one for finding, and that folding settles."""

from __future__ import annotations

from forebay.retrieval.variants import respelled, simplified


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


def test_a_question_is_written_in_the_script_of_the_texts() -> None:
    simple, traditional = "备用泵的转速为每分钟1450转。", "備用泵的轉速為每分鐘1450轉。"
    assert respelled("備用泵的轉速", simple) == "备用泵的转速"
    assert respelled("备用泵的转速", traditional) == "備用泵的轉速"
    assert respelled("备用泵的转速", simple) == "备用泵的转速"
    assert respelled("備用泵的轉速", traditional) == "備用泵的轉速"
    assert respelled("pump speed", "no Han at all") == "pump speed"
