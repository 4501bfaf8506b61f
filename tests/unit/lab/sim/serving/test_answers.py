"""Prompts and answers: exact token counts, equal for equal input, pieces that fit together."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from time import thread_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.lab.sim.serving.answers import AnswerMaker, Lengths, Wish
from forebay.lab.sim.serving.clock import EngineTime
from forebay.lab.sim.serving.prompts import Prompt, read_prompt, squeezed, surely_longer
from forebay.lab.workload.tokens import count_tokens, split_tokens

MAKER = AnswerMaker(Lengths(), seed=1)
QUESTIONS = st.sampled_from(
    ["How many days may I carry over?", "差旅报销须在几天内提交申请？", "x"]
)


@given(QUESTIONS, st.integers(1, 9000), st.lists(st.integers(0, 9000), max_size=5))
def test_an_answer_has_exactly_its_tokens_however_it_is_cut(
    question: str, tokens: int, cuts: list[int]
) -> None:
    answer = MAKER.plan(read_prompt(question, 16), Wish(cap=tokens, ignore_end=True), 10_000)
    assert (answer.tokens, answer.reason) == (tokens, "length")
    edges = [0, *sorted(min(cut, tokens) for cut in cuts), tokens]
    pieces = [answer.piece(first, last) for first, last in pairwise(edges)]
    text = answer.piece(0, tokens).decode()
    assert b"".join(pieces).decode() == text
    assert count_tokens(text) == tokens
    assert not text.startswith(" ")


def test_equal_prompts_get_equal_answers_and_others_do_not() -> None:
    prompts = [read_prompt(f"question {number}", 16) for number in (1, 1, 2)]
    texts = [
        answer.piece(0, answer.tokens)
        for answer in (MAKER.plan(prompt, Wish(), 8000) for prompt in prompts)
    ]
    assert texts[0] == texts[1] != texts[2]
    other = MAKER.plan(prompts[0], Wish(seed=5), 8000)
    assert other.piece(0, other.tokens) != texts[0]


def test_chinese_is_answered_in_chinese() -> None:
    answer = MAKER.plan(read_prompt("how 差旅报销？", 16), Wish(cap=9, ignore_end=True), 100)
    assert all("\u4e00" <= character <= "\u9fff" for character in answer.piece(0, 9).decode())


def test_lengths_follow_the_distribution_and_the_cap() -> None:
    maker = AnswerMaker(Lengths(median_tokens=100, sigma=0.5), seed=3)
    prompts = [read_prompt(f"question {number}", None) for number in range(3000)]
    free = [maker.plan(prompt, Wish(), 100_000).tokens for prompt in prompts]
    assert median(free) == pytest.approx(100, rel=0.05)
    below = sum(tokens < 100 * math.exp(-0.5) for tokens in free) / len(free)
    assert below == pytest.approx(0.1587, abs=0.02)
    capped = [maker.plan(prompt, Wish(cap=80), 100_000) for prompt in prompts]
    for tokens, answer in zip(free, capped, strict=True):
        assert answer.tokens == min(80, tokens)
        assert answer.reason == ("length" if tokens >= 80 else "stop")


def test_wishes_about_length() -> None:
    prompt = read_prompt("a question", None)
    maker = AnswerMaker(Lengths(draw=False, median_tokens=10, sigma=0.0), seed=1)
    assert maker.plan(prompt, Wish(cap=300), 8000).tokens == 300
    assert maker.plan(prompt, Wish(), 8000).tokens == 10
    assert MAKER.plan(prompt, Wish(least=7000), 8000).tokens == 7000
    assert MAKER.plan(prompt, Wish(ignore_end=True), 1234).tokens == 1234


def test_a_stop_text_ends_the_answer_before_it() -> None:
    prompt = read_prompt("a question", None)
    whole = MAKER.plan(prompt, Wish(cap=50, ignore_end=True), 8000)
    text = whole.piece(0, 50).decode()
    stop = text[60:64]
    answer = MAKER.plan(prompt, Wish(cap=50, ignore_end=True, stop=("\0", stop)), 8000)
    cut = text.index(stop)
    assert answer.reason == "stop"
    assert answer.piece(0, answer.tokens).decode() == text[:cut]
    assert answer.tokens == count_tokens(text[: cut + 4])
    pieces = [answer.piece(number, number + 1) for number in range(answer.tokens)]
    assert b"".join(pieces).decode() == text[:cut]


def test_prompts_share_the_blocks_of_their_common_beginning() -> None:
    common = "these words stand at the head of each and all of the asks we make here now "
    first, second = (read_prompt(common * 2 + tail, 16) for tail in ("one two", "six ten"))
    assert first.tokens == second.tokens == count_tokens(common * 2 + "one two")
    assert len(first.block_hashes) == first.tokens // 16 == 2
    assert first.block_hashes == second.block_hashes
    assert first.number != second.number
    assert read_prompt("six ten " + common, 16).block_hashes[0] != first.block_hashes[0]
    assert read_prompt(common, None).block_hashes == ()


def test_strange_text_is_a_prompt_too() -> None:
    assert read_prompt("\ud800 lone", 16).tokens == 2
    assert read_prompt("  \n ", 16) == Prompt(0, (), read_prompt("  \n ", 16).number, False)


@given(st.integers(0, 3), st.integers(1, 200_000))
def test_a_text_that_is_surely_longer_is(kind: int, tokens: int) -> None:
    text = ("word " * 100_000, "字" * 100_000, " " * 100_000, "a" * 100_000)[kind]
    if surely_longer(text, tokens):
        assert count_tokens(text) > tokens
    elif kind < 2:
        assert tokens > 90_000


BLANKS = (" ", "\n", "\t", "\u3000", "\x1c", "\u2003")


@given(st.lists(st.sampled_from((*BLANKS, "a", "Wort", "字", "，", "é", "_")), max_size=60))
def test_squeezed_text_has_the_same_tokens(parts: list[str]) -> None:
    text = " " * 5000 + "".join(parts) + "\n" * 5000 + "".join(parts)
    assert split_tokens(squeezed(text)) == split_tokens(text)
    assert count_tokens(squeezed(text)) == count_tokens(text)


@pytest.mark.parametrize("blank", BLANKS)
def test_four_million_blanks_are_read_at_once(blank: str) -> None:
    text = "a" + blank * 4_000_000 + "b"
    began = thread_time()
    assert not surely_longer(text, 8192)
    assert read_prompt(text, 16).tokens == 2
    assert thread_time() - began < 0.1, "a pattern that looks at every blank takes 0.2 s and more"


def test_engine_time_goes_on_where_it_was_when_its_speed_changes() -> None:
    time = EngineTime(100.0, 2.0)
    assert time.at(103.0) == 6.0 and time.real(6.0) == 103.0
    time.change(103.0, 0.5)
    assert time.at(103.0) == 6.0 and time.at(105.0) == 7.0 and time.real(7.0) == 105.0


PROMPT = """Rules: cite as [1].

=====abc passages begin
[1] (Returns > Refunds, p. 3)
Refunds are "paid" within 14 days.
They go to the card.
[2] (Other)
Something else.
=====abc passages end
When are refunds paid?"""


@pytest.mark.parametrize("tokens", [1, 3, 7, 40])
def test_a_quoting_engine_says_what_the_first_passage_says(tokens: int) -> None:
    prompt = read_prompt(PROMPT, 16, quoting=True)
    answer = MAKER.plan(prompt, Wish(cap=tokens, ignore_end=True), 10_000)
    text = msgspec.json.decode(b'"' + answer.piece(0, tokens) + b'"')
    whole = 'Refunds are "paid" within 14 days.\nThey go to the card. [1]. '
    assert (whole * 5).startswith(text)
    pieces = b"".join(answer.piece(at, at + 1) for at in range(tokens))
    assert pieces == answer.piece(0, tokens)


def test_a_chinese_passage_is_quoted_too() -> None:
    prompt = read_prompt(
        "[1]（请假）\n年假 10 天。\n=====abc 段落结束\n年假几天？", 16, quoting=True
    )
    answer = MAKER.plan(prompt, Wish(cap=6, ignore_end=True), 10_000)
    assert answer.piece(0, 6).decode() == "年假 10 天。 [1]. "[: len(answer.piece(0, 6).decode())]
    assert prompt.passage == "年假 10 天。"


def test_without_passages_a_quoting_engine_invents() -> None:
    prompt = read_prompt("When are refunds paid?", 16, quoting=True)
    assert prompt == read_prompt("When are refunds paid?", 16)
