"""Readers of answers: what counts as content, when an answer is over, what is kept of it."""

from __future__ import annotations

import json

import pytest

from forebay.lab.bench.answers import ErrorReader, Facts, PlainReader, StreamReader
from forebay.lab.measure.result import CUT, DISCONNECTED, ERROR_EVENT, MALFORMED, OK, REFUSED
from tests.unit.lab.bench.targets import event, usage, whole_stream


def read(*pieces: bytes, leave_after: int | None = None, keep: bool = False) -> tuple[str, Facts]:
    """Feed pieces a second apart; the status, and the facts."""
    facts = Facts()
    reader = StreamReader(facts, leave_after, keep)
    for now, piece in enumerate(pieces):
        status = reader.feed(piece, float(now))
        if status:
            return status, facts
    return reader.end(float(len(pieces))), facts


def test_times_are_of_content_not_of_roles_or_usage() -> None:
    status, facts = read(
        event(), event("a"), event("b"), event(finish="stop"), usage(5, 7), b"data: [DONE]\n\n"
    )
    assert status == OK
    assert (facts.first, facts.last, facts.chunks) == (1.0, 2.0, 2)
    assert facts.gaps.tolist() == [1.0]
    assert (facts.input_tokens, facts.output_tokens) == (5, 7)


def test_chunks_of_one_read_came_together() -> None:
    _, facts = read(whole_stream(4))
    assert facts.gaps.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_cuts_anywhere_change_nothing(size: int) -> None:
    body = whole_stream(5)
    status, facts = read(*(body[at : at + size] for at in range(0, len(body), size)))
    assert (status, facts.chunks, facts.output_tokens) == (OK, 5, 5)


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ('{"choices":[{"delta":{"content":"x"}}]}', True),
        ('{"choices": [{"delta": {"content": "x"}}]}', True),
        ('{"choices":[{"delta":{"content":""}}]}', False),
        ('{"choices":[{"delta":{"content":null}}]}', False),
        ('{"choices":[{"delta":{"role":"assistant","content":"","reasoning_content":"x"}}]}', True),
        ('{"choices":[{"delta":{"reasoning":"x"}}]}', True),
        ('{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', True),
        ('{"choices":[{"delta":{"tool_calls":[]}}]}', False),
        ('{"choices":[{"delta":{"content":"\\"content\\":\\"\\""}}]}', True),
        ('{"choices":[{"delta":{"role":"say \\"content\\":\\"x\\""}}]}', False),
        ('{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}', False),
    ],
)
def test_what_bears_content(data: str, content: bool) -> None:
    json.loads(data)
    _, facts = read(f"data: {data}\n\n".encode())
    assert (facts.chunks == 1) is content


def test_usage_and_forebays_words_in_a_chunk_with_content() -> None:
    last = event(
        "x",
        finish="stop",
        usage={"prompt_tokens": 3, "completion_tokens": 4},
        forebay={"rung": "bm25", "cache": {"embedding": "hit", "answer": "off"}},
    )
    status, facts = read(event("a"), last)
    assert status == OK
    assert (facts.input_tokens, facts.output_tokens) == (3, 4)
    assert (facts.rung, facts.cache) == ("bm25", "embedding=hit, answer=off")


@pytest.mark.parametrize("slip", ["-5", "1e9", "null", "18446744073709551615", "9" * 30])
def test_counts_that_no_answer_has_are_passed_over(slip: str) -> None:
    said = f'data: {{"choices":[],"usage":{{"prompt_tokens":{slip},"completion_tokens":4}}}}\n\n'
    status, facts = read(event("a"), said.encode(), b"data: [DONE]\n\n")
    assert status == OK
    assert (facts.input_tokens, facts.output_tokens) == (-1, 4)


def test_done_or_a_finish_reason_ends_an_answer_and_nothing_else() -> None:
    assert read(event("a"), b"data: [DONE]\n\n")[0] == OK
    assert read(event("a"), event(finish="length"))[0] == OK
    assert read(event("a"))[0] == CUT
    assert read()[0] == CUT
    assert read(event("a"), b"data: [DONE]")[0] == OK


def test_an_error_inside_the_stream() -> None:
    status, facts = read(event("a"), b'data: {"error": {"message": "out of memory"}}\n\n')
    assert (status, facts.message) == (ERROR_EVENT, "out of memory")


@pytest.mark.parametrize("data", [b"data: {no\n\n", b"data: 7\n\n", b'data: "content":"x\n\n'])
def test_what_is_no_json_object_is_malformed(data: bytes) -> None:
    assert read(data)[0] == MALFORMED


def test_a_client_leaves_after_so_many_tokens() -> None:
    status, facts = read(event("one two"), event("three"), event("four"), leave_after=4)
    assert status == DISCONNECTED
    # "three" is two of the laboratory's tokens.
    assert facts.chunks == 2


def test_the_text_is_kept_when_asked_for() -> None:
    assert read(event("a"), event("b"), event(finish="stop"), keep=True)[1].text == ["a", "b"]
    assert read(event("a"), event("b"), event(finish="stop"))[1].text == []


def test_a_plain_answer_comes_whole() -> None:
    facts = Facts()
    reader = PlainReader(facts)
    body = json.dumps(
        {
            "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1},
            "forebay": {"rung": "keyword"},
        }
    ).encode()
    assert reader.feed(body[:9], 1.0) == "" and reader.feed(body[9:], 2.0) == ""
    assert reader.end(2.5) == OK
    assert (facts.first, facts.last, facts.output_tokens) == (2.5, 2.5, 1)
    assert (facts.text, facts.rung) == (["yes"], "keyword")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"<html>", MALFORMED),
        (b'{"choices": []}', MALFORMED),
        (b'{"choices": [3]}', MALFORMED),
        (b'{"error": "no"}', ERROR_EVENT),
        (b"", MALFORMED),
    ],
)
def test_plain_answers_that_are_none(body: bytes, status: str) -> None:
    reader = PlainReader(Facts())
    reader.feed(body, 1.0)
    assert reader.end(1.0) == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "slow down"}}', "slow down"),
        (b'{"detail": "no"}', "{'detail': 'no'}"),
        (b"<h1>busy</h1>", "<h1>busy</h1>"),
        (b"", ""),
    ],
)
def test_an_error_keeps_its_message(body: bytes, message: str) -> None:
    facts = Facts()
    reader = ErrorReader(facts, REFUSED)
    reader.feed(body, 1.0)
    assert (reader.end(1.0), facts.message) == (REFUSED, message)
