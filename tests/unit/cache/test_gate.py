"""Which questions ask the same: how one asks may differ, what one asks may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.cache.gate import content, difference

SAME = [
    ("When are refunds paid?", "when are refunds paid"),
    ("What is the refund policy?", "refund policy"),
    ("How do I reset my password?", "How can I reset the password?"),
    ("Could you please tell me what the notice period is?", "What's the notice period?"),
    ("Can you tell me the opening hours", "opening hours?"),
    ("What are the opening hours of the library?", "library opening hours"),
    ("How many days of leave do I get in 2024?", "how many days of leave do we get in 2024"),
    ("请问退货政策是什么？", "退货政策是什么"),
    ("你好，请问如何重置密码", "怎么重置密码？"),
    ("退货需要多长时间", "退货需要多久？"),
    ("我的年假有多少天", "年假有多少天呢"),
    ("三天内可以退吗", "3天内可以退吗"),
    ("２０２４年的年假", "2024年年假"),
]
DIFFERENT = [
    ("可以退吗", "不可以退吗", "negation"),
    ("可以退", "不可以退", "negation"),
    ("2023年的政策", "2024年的政策", "numbers"),
    ("policy of 2023", "policy of 2024", "numbers"),
    ("三天内可以退吗", "四天内可以退吗", "numbers"),
    ("二十天", "十二天", "numbers"),
    ("refund within 30 days", "refund within 13 days", "numbers"),
    ("manual of the A-100", "manual of the A-101", "codes"),
    ("manual of the A-100", "manual of the B-100", "codes"),
    ("price of X200S", "price of X200", "codes"),
    ("error E-4012", "error E-4021", "codes"),
    ("what is C", "what is C++", "codes"),
    ("train from Paris to London", "train from London to Paris", "codes"),
    ("从北京到上海的票", "从上海到北京的票", "direction"),
    ("把A转给B", "把B转给A", "direction"),
    ("does it work with a battery", "does it work without a battery", "negation"),
    ("is it allowed", "is it not allowed", "negation"),
    ("can I return it", "can't I return it", "negation"),
    ("before the deadline", "after the deadline", "words"),
    ("convert euros to dollars", "convert dollars to euros", "direction"),
    ("who approves leave", "when is leave approved", "words"),
    ("how to enable backup", "how to disable backup", "words"),
    ("打开备份", "关闭备份", "words"),
    ("最高温度", "最低温度", "words"),
    ("谁批准请假", "何时批准请假", "words"),
    ("temperature > 5", "temperature < 5", "words"),
    ("5 - 3", "3 - 5", "direction"),
    ("经理批准员工吗", "员工批准经理吗", "direction"),
    ("can managers dismiss directors", "can directors dismiss managers", "direction"),
    ("work permit", "permit work", "direction"),
    ("蜂蜜", "蜜蜂", "direction"),
    ("进口中国的产品", "中国进口的产品", "direction"),
    ("除了A只有B", "只有A除了B", "direction"),
    ("the boss of my friend", "my friend of the boss", "direction"),
    ("你欠我多少钱", "我欠你多少钱", "direction"),
    ("No, refunds allowed", "No refunds allowed", "words"),
    ("不，可以退", "不可以退", "words"),
    ("我是不是要退", "我不是要退", "words"),
    ("USD→EUR rate", "USD←EUR rate", "words"),
    ("2×3", "2÷3", "words"),
    ("is 🚫 ok", "is 👍 ok", "words"),
    ("न", "ना", "words"),
    ("(a+b)*c", "a+(b*c)", "codes"),
    ("employees need not register", "employees must not register", "words"),
    ("办理签证麻烦吗", "办理签证吗", "words"),
    ("如何请教老师", "如何教老师", "words"),
    ("请假单在哪", "假单在哪", "words"),
    ("一百二", "一百零二", "numbers"),
    ("二三天到", "二十三天到", "numbers"),
    ("三四百块", "四百块", "numbers"),
    ("百度", "100度", "numbers"),
    ("Who is the CEO", "Who was the CEO", "words"),
    ("custom clearance", "customs clearance", "words"),
    ("can I stay in 5 days", "can I stay for 5 days", "words"),
    ("dose of vitamin A", "dose of vitamin", "codes"),
    ("can I be hurt", "can I hurt", "words"),
    ("", "", "empty"),
    ("请问", "你好", "empty"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_another_way_to_ask_is_the_same_question(one: str, other: str) -> None:
    assert difference(one, other) is None
    assert difference(other, one) is None


@pytest.mark.parametrize(("one", "other", "why"), DIFFERENT)
def test_what_says_something_else_is_another_question(one: str, other: str, why: str) -> None:
    found = difference(one, other)
    assert found is not None
    assert difference(other, one) == found
    if why != "codes":
        assert found == why


@given(st.text(min_size=1, max_size=60))
def test_nothing_breaks_it_and_it_agrees_with_itself(text: str) -> None:
    found = difference(text, text)
    assert found in (None, "empty")
    assert content(text) == content(text)


WORDS = st.lists(
    st.sampled_from("refund order 退货 订单 with without not 不 2023 2024 A-1 A-2 from to".split()),
    min_size=1,
    max_size=6,
)


@given(WORDS, WORDS)
def test_other_content_words_never_pass(one: list[str], other: list[str]) -> None:
    """Whatever is drawn: a hit means that both have the very same content words."""
    if difference(" ".join(one), " ".join(other)) is None:
        assert sorted(one) == sorted(other)


@given(WORDS, st.integers(0, 5))
def test_one_word_exchanged_never_passes(words: list[str], at: int) -> None:
    changed = list(words)
    changed[at % len(words)] = "invoice"
    assert difference(" ".join(words), " ".join(changed)) is not None
