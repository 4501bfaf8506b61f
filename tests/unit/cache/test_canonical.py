"""What is one question and what are two: folding that hits, and meaning that must never be lost."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache.canonical import canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I return an item?", "HOW DO I RETURN AN ITEM"),
        ("How do I return an item?", "  how  do I return\tan item ? "),
        ("How do I return an item?", "How do I return an item?!"),
        ("return it.", "return it..."),
        ("怎么退款？", "怎么退款"),
        ("怎么退款?", "怎么退款？！"),
        ("怎么退款。", "怎么 退款"),
        ("怎么退款……", "怎么退款"),
        ("ＡＢＣ１２３", "abc123"),
        ("退款，多久到账", "退款,多久到账"),
        ("退款, 多久到账", "退款，多久到账"),
        ("如何安装 Docker", "如何安装docker"),
        ("第 3 章讲什么", "第3章讲什么"),
        ("ﾊﾞｯﾃﾘｰ", "バッテリー"),
        ("What’s “new”", 'what\'s "new"'),
        ("ﬁle oﬃce", "file office"),
        ("25 ℃", "25 °c"),
        ("5 \N{MICRO SIGN}m", "5 \u03bcm"),
        ("at 10 PM", "at 10 pm"),
        ("café", "cafe\u0301"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("What is C++?", "what is c++"),
        ("100%?", "100%"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
    ],
)
def test_hits(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("可以退", "不可以退"),
        ("2023 年的报表", "2024 年的报表"),
        ("A-100", "A100"),
        ("A-100", "A-101"),
        ("A-100", "A 100"),
        ("from A to B", "from B to A"),
        ("从北京到上海", "从上海到北京"),
        ("with sugar", "without sugar"),
        ("can return", "can't return"),
        ("C++", "C"),
        ("C#", "C"),
        (".NET", "NET"),
        ("what is 5!", "what is 5"),
        ("what is n!?", "what is n?"),
        ("(a+b)!", "(a+b)"),
        ("what is ??", "what is ?"),
        ("what is !", "what is ?"),
        ("what is $?", "what is $"),
        ("cd ..", "cd ."),
        ("5%", "5"),
        ("5°", "5"),
        ("-5", "5"),
        ("−5", "5"),
        ("气温 -5 度", "气温 5 度"),
        ("blood type A-", "blood type A+"),
        ("10 mW", "10 MW"),
        ("10mΩ", "10MΩ"),
        ("10MB带宽", "10Mb带宽"),
        ("10 m\N{OHM SIGN}", "10 M\N{OHM SIGN}"),
        ("100 Mbps", "100 MBps"),
        ("5 mM", "5 mm"),
        ("5 nM", "5 nm"),
        ("5 µM", "5 \u03bcm"),
        ("5 mL", "5 ML"),
        ("2 mS", "2 MS"),
        ("3 mT", "3 MT"),
        ("1.5", "15"),
        ("1,500", "1.500"),
        ("10 20", "1020"),
        ("now here", "nowhere"),
        ("m²", "m2"),
        ("x²", "x2"),
        ("H₂O", "H2O"),
        ("①", "1"),
        ("½", "1/2"),
        ("㎡", "m²"),
        ("Maße", "Masse"),
        ("아버지가 방에", "아버지 가방에"),
        ("if a:\n  b\nc", "if a:\n  b\n  c"),
        ("resume", "résumé"),
    ],
)
def test_misses(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


TEXTS = st.text() | st.text(
    alphabet="aAbBmMwW0159 .!?。！？+-#%°℃Ωß不有1２ｍﾊﾞ中文　\n²①ﬁΣς\u0301\u0345'’(]$", max_size=20
)


@settings(deadline=None)
@given(TEXTS)
def test_it_changes_nothing_the_second_time(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once


def letters_and_digits(text: str) -> str:
    """Every character that is one, folded as strongly as Unicode can: what no folding may lose."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in folded if c.isalnum())


@settings(deadline=None)
@given(TEXTS)
def test_no_letter_and_no_digit_is_lost_or_moved(text: str) -> None:
    assert letters_and_digits(canonical(text)) == letters_and_digits(text)


def test_marks_without_end_take_no_time() -> None:
    text = "a" + "\u0301" * 8000 + "\u0323" * 8000
    began = time.perf_counter()
    assert canonical(text) == text
    assert time.perf_counter() - began < 0.05


SIGNS = "+#%°-−$€*/=<>&|^~@:²\N{INFINITY}"


@settings(deadline=None)
@given(TEXTS)
def test_no_sign_is_lost(text: str) -> None:
    # ℃ is °C, which is more signs, not fewer.
    before = [c for c in text.replace("℃", "°").replace("℉", "°") if c in SIGNS]
    assert [c for c in canonical(text) if c in SIGNS] == before


@settings(deadline=None)
@given(TEXTS, st.sampled_from(["不", "没", "无", "未", "not ", "n't ", "without ", "no "]))
def test_no_negation_is_lost(text: str, negation: str) -> None:
    assert canonical("x" + negation + text) != canonical("x" + text)


@settings(deadline=None)
@given(
    st.text(alphabet="abcXYZ 0123中文退款-", min_size=1), st.sampled_from(["?", "？", "。", " ?"])
)
def test_a_question_and_its_mark_are_one(text: str, mark: str) -> None:
    assert not text.strip() or text.strip()[-1] == "-" or canonical(text + mark) == canonical(text)


@settings(deadline=None)
@given(st.text(alphabet="abc XYZ,.-中文0123?"))
def test_width_and_case_do_not_matter(text: str) -> None:
    wide = "".join(
        "　" if c == " " else chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text
    )
    assert canonical(wide) == canonical(text) == canonical(text.upper()) == canonical(text.lower())
