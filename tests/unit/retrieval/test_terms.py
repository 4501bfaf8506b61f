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
        ("ＡＢＣ１２３", {"abc123", "abc", "123"}),
        ("Café", {"cafe", "~cafe"}),
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("foo_bar-baz", {"foo_bar-baz", "foobarbaz", "foo", "bar", "baz"}),
    ],
)
def test_terms_of_words(text: str, terms: set[str]) -> None:
    found = {term for term in ANALYZER.query(text) if term in terms or not term.startswith("~")}
    assert found == terms


def test_chinese_has_words_pairs_and_single_characters() -> None:
    terms = ANALYZER.query("北京大学生前来应聘")
    assert {"北京", "大学生", "大学", "学生", "前来", "应聘", "北", "聘"} <= set(terms)
    assert ANALYZER.query("的") == ["的"]


def test_traditional_chinese_is_cut_by_the_dictionary_of_simplified() -> None:
    document = set(ANALYZER.document("印歐語系因為梵語而被發現"))
    assert {"印欧", "语系", "梵语", "发现"} <= document
    assert set(ANALYZER.query("梵語")) <= document


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("後來發現國際機場的電話號碼", "后来发现国际机场的电话号码"),
        ("看著裏面的臺灣頭髮", "看着里面的台湾头发"),
        ("衞星", "卫星"),
        ("餅乾", "饼干"),
        ("１２ＧＢ記憶體", "12 GB 记忆体"),
    ],
)
def test_traditional_and_simplified_are_found_alike(asked: str, written: str) -> None:
    assert set(ANALYZER.query(asked)) == set(ANALYZER.query(written))


@pytest.mark.parametrize(
    ("asked", "written", "by"),
    [
        ("1,000", "１０００", "1000"),
        ("1'000'000", "1,000,000", "1000000"),
        ("5 GB", "5GB", "5gb"),
        ("5 gb", "５ＧＢ", "5gb"),
        ("1,450 V", "1450V", "1450v"),
        ("5㎏", "5 kg", "5kg"),
        ("AB-1234", "the pump ab1234", "ab1234"),
        ("AB1234", "型号AB-1234", "ab1234"),
        ("get_user_name", "getUserName()", "getusername"),
        ("3.11", "since v3.11.7", "3.11"),
        ("v1.10", "1.10", "1.10"),
        ("wifi", "the Wi-Fi password", "wifi"),
        ("35000", "售价3.5万元", "35000"),
        ("3,500,000", "3.5 million people", "3500000"),
    ],
)
def test_numbers_units_and_identifiers_meet(asked: str, written: str, by: str) -> None:
    assert by in set(ANALYZER.query(asked)) & set(ANALYZER.document(written))


def test_numbers_that_differ_stay_apart() -> None:
    assert not set(ANALYZER.query("1.10")) & set(ANALYZER.document("1.1"))
    assert not set(ANALYZER.query("10,000")) & set(ANALYZER.document("1,000 of 100 and 10"))


def test_mixed_scripts_are_cut_where_they_meet() -> None:
    terms = set(ANALYZER.query("GitHub备份脚本上传失败"))
    assert {"github", "git", "hub", "备份", "脚本", "上传", "失败", "份"} <= terms


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
