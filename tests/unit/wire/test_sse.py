"""The event stream codec: the standard's rules, in pieces of any size."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.wire.sse import DONE, EventTooLong, ServerSentEvent, SseDecoder, encode_data


def decode(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_data_lines_are_joined() -> None:
    assert decode(b"data: a\ndata:b\ndata:  c\n\n") == [ServerSentEvent("a\nb\n c")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_three_line_ends(end: bytes) -> None:
    stream = b"data: a" + end + end + b"data: b" + end + end
    assert [event.data for event in decode(stream)] == ["a", "b"]


def test_comments_names_ids_and_unknown_fields() -> None:
    stream = b": hello\nevent: error\nid: 7\nretry: 10\nother\ndata\n\ndata: x\n\n"
    assert decode(stream) == [
        ServerSentEvent("", "error", "7"),
        ServerSentEvent("x", "message", "7"),
    ]


def test_byte_order_mark_and_bytes_that_are_not_utf8() -> None:
    assert decode(b"\xef\xbb\xbfdata: \xff\n\n") == [ServerSentEvent("\ufffd")]


def test_an_event_without_data_and_one_without_end_are_not_dispatched() -> None:
    assert decode(b"event: x\n\n", b"data: half\n") == []


def test_an_endless_event_is_refused() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    with pytest.raises(EventTooLong):
        list(chain.from_iterable(decoder.feed(b"data: 0123456789\n") for _ in range(20)))
    with pytest.raises(EventTooLong):
        list(SseDecoder(max_event_bytes=100).feed(b"x" * 101))


def test_what_the_encoder_writes() -> None:
    assert decode(encode_data(b'{"a":1}') + DONE) == [
        ServerSentEvent('{"a":1}'),
        ServerSentEvent("[DONE]"),
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00"))


@given(st.lists(TEXTS, max_size=5), st.data())
def test_pieces_do_not_matter(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [event.data for event in decode(*pieces)] == texts


LINES = st.lists(
    st.sampled_from(
        [b"data: {}", b"data: {}\n\n", b'data: {"a":"\xff"}\n\n', DONE, b"data:x", b"data:  y",
         b"data: \xff", b"\n", b"\n\n", b"\r\n", b": c", b"event: error", b"id: 1",
         b"\xef\xbb\xbf", b"data", "data: 你".encode()]
    ),
    max_size=8,
)  # fmt: skip


@given(st.lists(LINES, max_size=4))
def test_whole_events_are_read_as_any_others(pieces: list[list[bytes]]) -> None:
    quick, usual = SseDecoder(), SseDecoder()
    for lines in pieces:
        piece = b"".join(lines)
        expected = list(usual.feed(piece))
        found = quick.whole_objects(piece)
        if found is None:
            assert list(quick.feed(piece)) == expected
        else:
            texts = [text.decode("utf-8", "replace") for text in found]
            assert [(text, "message") for text in texts] == [(e.data, e.event) for e in expected]


def test_what_engines_send_is_read_at_once() -> None:
    piece = encode_data(b'{"a":1}') + DONE
    assert SseDecoder().whole_objects(piece) == [b'{"a":1}', b"[DONE]"]
    decoder = SseDecoder()
    assert list(decoder.feed(piece[:5])) == []
    assert decoder.whole_objects(piece) is None
