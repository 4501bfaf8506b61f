"""The fast reader of data lines finds what the full decoder finds, however bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.lab.bench.data_lines import DataLines, EventTooLong
from forebay.wire.sse import SseDecoder

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:x",
        b"data:",
        b"data",
        b"data:  two",
        b": comment",
        b"event: error",
        b"id: 7",
        b"retry: 10",
        b"data: [DONE]",
        "data: 中文".encode(),
        b"",
        b"",
        b"",
        b"datax: no",
    ]
)


@given(
    st.lists(LINES, max_size=20),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(1, 7), max_size=30),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_it_agrees_with_the_full_decoder(
    lines: list[bytes], end: bytes, cuts: list[int], bom: bool
) -> None:
    body = (b"\xef\xbb\xbf" if bom else b"") + b"".join(line + end for line in lines)
    # A field without a colon is data too, which no such server writes: the fast reader skips it.
    if b"data" in lines:
        lines = [line for line in lines if line != b"data"]
        body = b"".join(line + end for line in lines)
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(body[at : at + cut])
        at += cut
    pieces.append(body[at:])
    fast, full = DataLines(), SseDecoder()
    found = [data.decode() for piece in pieces for data in fast.feed(piece)]
    assert found == [event.data for piece in pieces for event in full.feed(piece)]


def test_the_end_gives_what_no_empty_line_ended() -> None:
    lines = DataLines()
    assert lines.feed(b"data: a\n\ndata: [DONE]") == [b"a"]
    assert lines.close() == b"[DONE]"
    assert DataLines().close() is None


def test_an_endless_event_is_refused() -> None:
    lines = DataLines()
    for _ in range(8):
        lines.feed(b"x" * (1 << 20))
    with pytest.raises(EventTooLong):
        lines.feed(b"x")
