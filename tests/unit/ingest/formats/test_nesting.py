"""Nesting that no person writes ends at once, with a reason or as plain words."""

from __future__ import annotations

import time

import pytest

from forebay.ingest import parse
from forebay.kernel.errors import UnsupportedDocument

AT_MOST_S = 10.0  # each took minutes; a busy machine gets its slack


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr><td>" * 20_000,
        "<div>" * 200_000,
        "<div/>" * 100_000,
        "<x-y>" * 100_000 + "<hr>" * 100_000,
        "<div><table></div>" * 50_000,
        "<div></span>" * 100_000,
        "<div><table>" + "<b>" * 20_000 + "</div>" * 100_000,
    ],
    ids=["tables", "div", "slashed", "unknown", "barrier", "strays", "closing"],
)
def test_deep_pages_are_refused_before_they_are_parsed(page: str) -> None:
    begun = time.monotonic()
    with pytest.raises(UnsupportedDocument, match="too deep") as caught:
        parse(f"<html><body>{page}text".encode(), name="a.html")
    assert caught.value.code == "too_deep"
    assert time.monotonic() - begun < AT_MOST_S


@pytest.mark.parametrize(
    "page",
    [
        "<p>one<br>" * 5_000,
        "<ul>" + "<li>one" * 5_000 + "</ul>",
        "<table>" + "<tr><td>one<td>two" * 5_000 + "</table>",
        "<div><b>one</div>" * 5_000,
        "<svg>" + "<path d='M0 0'/>" * 5_000 + "</svg>one",
        "<a id='x'/>one " * 5_000,
    ],
    ids=["p", "li", "cells", "unclosed", "drawing", "anchors"],
)
def test_long_pages_that_leave_tags_open_are_read(page: str) -> None:
    extracted = parse(f"<!doctype html><html><body>{page}".encode(), name="a.html")
    assert "one" in extracted.text


@pytest.mark.parametrize(
    "run",
    ["[" * 300_000, "![" * 300_000, "[词" * 300_000, ("[" * 99 + "]" * 99) * 2_000],
    ids=["open", "image", "cjk", "closed"],
)
def test_runs_of_brackets_are_words(run: str) -> None:
    begun = time.monotonic()
    extracted = parse(f"# Title\n\n{run}\n\nafter".encode(), name="a.md")
    assert extracted.text.startswith("Title")
    assert extracted.text.endswith("after")
    assert time.monotonic() - begun < AT_MOST_S


def test_many_links_in_one_paragraph_stay_links() -> None:
    extracted = parse(("[word](http://x.example) " * 500).encode(), name="a.md")
    assert "http" not in extracted.text
