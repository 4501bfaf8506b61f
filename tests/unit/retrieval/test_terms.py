"""What a text is found under, in both languages."""

from __future__ import annotations

import time

import pytest

from forebay.retrieval.terms import Analyzer, is_chinese

ANALYZER = Analyzer(stemming=True)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("C++ (foo", {"c++", "c", "foo"}),
        ('"x', {"x"}),
        ("id:3", {"id:3", "id", "3"}),
        ("*", set()),
        ("-词", {"词"}),
        ("Running RUNS", {"running", "~run", "runs"}),
        ("company’s", {"company", "~compani"}),
        ("$1,496.5", {"1496.5"}),
        ("10,000", {"10000"}),
        ("U.S.", {"u.s", "u", "s"}),
        ("ＡＢＣ１２３", {"abc123"}),
        ("Café", {"cafe", "~cafe"}),
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("foo_bar-baz", {"foo_bar-baz", "foo", "bar", "baz"}),
    ],
)
def test_terms_of_words(text: str, terms: set[str]) -> None:
    found = {term for term in ANALYZER.query(text) if term in terms or not term.startswith("~")}
    assert found == terms


def test_chinese_has_words_pairs_and_single_characters() -> None:
    terms = ANALYZER.query("北京大学生前来应聘")
    assert {"北京", "大学生", "大学", "学生", "前来", "应聘", "北", "聘"} <= set(terms)
    assert ANALYZER.query("的") == ["的"]


def test_traditional_chinese_does_not_hang_on_a_dictionary() -> None:
    document = set(ANALYZER.document("印歐語系因為梵語而被發現"))
    assert {"印歐", "語系", "梵語"} <= document
    assert set(ANALYZER.query("梵語")) <= document


def test_a_query_is_found_in_the_text_that_contains_it() -> None:
    text = "The café serves 北京烤鸭 via getMenu(id:3) for 1,200元。한국어 ひらがな"
    document = set(ANALYZER.document(text))
    for part in ("café", "北京烤鸭", "getMenu", "id:3", "1,200", "한국어", "ひらがな"):
        assert set(ANALYZER.query(part)) <= document


def test_long_words_are_cut_and_hostile_text_is_linear() -> None:
    assert max(map(len, ANALYZER.document("x" * 200_000))) <= 65
    begun = time.perf_counter()
    ANALYZER.document("a.b-" * 50_000 + "aB" * 50_000 + "北" * 50_000)
    assert time.perf_counter() - begun < 5.0


def test_language_is_told_by_letters() -> None:
    assert is_chinese("退货需要几天？")
    assert is_chinese("Wi-Fi 密码在哪里")
    assert not is_chinese("what does 北京 mean in an English sentence about geography")
    assert not is_chinese("")
