"""Trace context: what continues a trace, what begins one."""

from __future__ import annotations

import pytest

from forebay.telemetry.ids import begin_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "header", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01-more"]
)
def test_a_valid_header_continues_its_trace(header: str) -> None:
    ids = begin_trace(header, ratio=0.0)
    assert (ids.trace_id, ids.parent_id) == (TRACE, SPAN)
    assert ids.sampled == ("-01" in header)
    assert ids.span_id != SPAN
    assert ids.traceparent == f"00-{TRACE}-{ids.span_id}-{'01' if ids.sampled else '00'}"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
    ],
)
def test_anything_else_begins_a_new_one(header: str | None) -> None:
    ids = begin_trace(header, ratio=1.0)
    assert ids.parent_id is None
    assert ids.trace_id != TRACE
    assert ids.sampled


def test_the_ratio_holds_on_the_trace_id() -> None:
    kept = sum(begin_trace(None, ratio=0.25).sampled for _ in range(4000))
    assert 800 < kept < 1200
    assert not any(begin_trace(None, ratio=0.0).sampled for _ in range(100))
