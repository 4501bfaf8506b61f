"""Answers are compared by words in English and by characters in Chinese."""

from __future__ import annotations

import pytest

from forebay.lab.evaluate.answers import exact_match, f1, holds, tokens, without_markers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The Ferry, at nine!", ["ferry", "at", "nine"]),
        ("早上八点。", ["早", "上", "八", "点"]),
        ("上传到GitHub失败", ["上", "传", "到", "github", "失", "败"]),
        ("$1,452.4 million", ["1452.4", "million"]),
        ("1452.4", ["1452.4"]),
        ("don't", ["dont"]),
        ("ＦＢ－２０４１", ["fb", "2041"]),
        ("8:30", ["8.30"]),
        ("", []),
    ],
)
def test_tokens(text: str, found: list[str]) -> None:
    assert tokens(text) == found


def test_exact_match_passes_over_case_punctuation_and_articles() -> None:
    assert exact_match("The Broncos.", ["Denver", "broncos"]) == 1.0
    assert exact_match("八点", ["八点。"]) == 1.0
    assert exact_match("eight", ["nine"]) == 0.0
    assert exact_match("", ["nine"]) == 0.0


def test_english_counts_shared_words() -> None:
    # 2 of 3 words said, 2 of 2 words asked for.
    assert f1("at nine sharp", ["nine at"], "en") == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))
    assert f1("ten", ["nine"], "en") == 0.0
    assert f1("nine", ["ten", "nine"], "en") == 1.0


def test_chinese_counts_the_longest_shared_run() -> None:
    # The run is 八点: 2 of 4 characters said, 2 of 3 asked for; 早 is elsewhere.
    assert f1("早上八点", ["八点早"], "zh") == pytest.approx(
        2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)
    )
    assert f1("八点", ["八点"], "zh") == 1.0
    assert f1("九", ["八"], "zh") == 0.0


def test_an_answer_holds_what_it_quotes() -> None:
    assert holds("The ferry leaves at nine and carries 40 cars.", ["at nine"]) == 1.0
    assert holds("The ferry leaves at ninety.", ["nine"]) == 0.0
    assert holds("水闸每天早上八点打开", ["早上八点"]) == 1.0
    assert holds("12 元一张", ["12 元"], ["元", "12"]) == 1.0
    assert holds("12 美金", ["12 元"], ["元", "12"]) == 0.0
    assert holds("anything", []) == 0.0


def test_markers_are_no_part_of_an_answer() -> None:
    assert without_markers("At nine [1]. 八点[12]。") == "At nine. 八点。"
