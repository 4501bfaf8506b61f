"""Chunks: the text is whole, markers stay whole, citations ride on the last text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.gateway.chat_stream import ChunkWriter
from forebay.gateway.rendering import AnswerFrame
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, Usage
from forebay.wire.chat import ForebayBody
from forebay.wire.sse import SseDecoder

END = AnswerEnd("stop", (), Usage(3, 4), "m", "bm25", 7)
CLOSING = ForebayBody("r", "kb", 7, "bm25", "m", False, False, 0, (), {}, ())


def writer(*, with_usage: bool = False) -> ChunkWriter:
    frame = AnswerFrame("id", 1, "forebay/kb", "kb", with_usage)
    return ChunkWriter(frame, lambda _end: CLOSING)


def events(data: bytes) -> list[Any]:
    texts = [event.data for event in SseDecoder().feed(data)]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def contents(chunks: list[Any]) -> list[str]:
    choices = [choice for chunk in chunks if chunk != "[DONE]" for choice in chunk["choices"]]
    return [choice["delta"].get("content") or "" for choice in choices]


PIECES = st.lists(
    st.text(st.characters(), max_size=4) | st.sampled_from(["[1]", "[12]", "你", "x"]), max_size=12
)


@given(PIECES, st.data())
def test_any_batching_gives_the_same_text(pieces: list[str], data: st.DataObject) -> None:
    made = writer()
    items: list[AnswerDelta | AnswerEnd] = [*map(AnswerDelta, pieces), END]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=5)))
    out = b""
    for start, stop in zip([0, *cuts], [*cuts, len(items)], strict=True):
        if items[start:stop]:
            out += made.encode(items[start:stop])
    chunks = events(out)
    expected = "".join(pieces).encode("utf-8", "replace").decode()
    assert "".join(contents(chunks)).replace("\ufffd", "?") == expected.replace("\ufffd", "?")
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert [chunk for chunk in chunks[:-1] if "citations" in chunk] == [chunks[-3]]
    roles = [c["choices"][0]["delta"].get("role") for c in chunks[:-1]]
    assert roles[0] == "assistant"
    assert roles.count("assistant") == 1


def test_the_last_text_carries_the_citations() -> None:
    made = writer()
    first = events(made.encode([AnswerDelta("Twenty-five days [1]")]))
    assert contents(first) == ["Twenty-five days "]
    last = events(made.encode([END]))
    assert contents(last)[0] == "[1]"
    assert last[0]["forebay"]["kb_version"] == 7
    assert last[0]["citations"] == []


def test_a_marker_is_never_split() -> None:
    made = writer()
    assert contents(events(made.encode([AnswerDelta("a[12]")]))) == ["a"]
    assert contents(events(made.encode([AnswerDelta("b")]))) == ["[12]"]


def test_a_first_text_of_one_character_goes_out_at_once() -> None:
    made = writer()
    assert contents(events(made.encode([AnswerDelta("你")]))) == ["你"]
    assert contents(events(made.encode([AnswerDelta("好")]))) == []
    assert contents(events(made.encode([END])))[0] == "好"


def test_nothing_is_sent_before_there_is_text() -> None:
    made = writer()
    assert made.encode([AnswerDelta("")]) == b""
    assert contents(events(made.encode([AnswerDelta("[1]")]))) == ["[1]"]


def test_usage_is_null_until_the_last_chunk() -> None:
    made = writer(with_usage=True)
    chunks = events(made.encode([AnswerDelta("hello"), END]))
    assert [chunk["usage"] for chunk in chunks[:-2]] == [None, None]
    assert chunks[-2]["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7
    }  # fmt: skip
    assert chunks[-2]["choices"] == []
    assert "usage" not in events(writer().encode([AnswerDelta("hello"), END]))[0]


def test_an_empty_answer_is_still_an_answer() -> None:
    chunks = events(writer().encode([END]))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(("sent", "rest"), [("hello", ["o"]), ("h", [])])
def test_what_is_held_back_is_not_lost_in_a_failure(sent: str, rest: list[str]) -> None:
    made = writer()
    made.encode([AnswerDelta(sent)])
    assert contents(events(made.flush())) == rest


@pytest.mark.parametrize("with_usage", [False, True])
def test_chunks_of_text_differ_in_their_text_alone(with_usage: bool) -> None:
    made = writer(with_usage=with_usage)
    for text in ("first ", 'a "quoted" one ', "你好 ", "\ud800 ", "\0 "):
        made.encode([AnswerDelta(text)])
    first, second = (
        events(made.encode([AnswerDelta(text)]))[0] for text in ("x\n", '"content":""')
    )
    assert first["choices"][0].pop("delta") == {"content": " x"}
    assert second["choices"][0].pop("delta") == {"content": '\n"content":"'}
    assert first == second
    assert ("usage" in first) is with_usage
