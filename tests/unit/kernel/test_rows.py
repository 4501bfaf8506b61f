"""Cells come back from a row as they went in, whatever is in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.rows import cells_of, row_of

CELL = st.text(st.characters(codec="utf-8", exclude_characters="\\\n\r"), max_size=8).map(str.strip)


@given(st.lists(CELL, min_size=1, max_size=5))
def test_a_row_gives_back_its_cells(cells: list[str]) -> None:
    assert cells_of(row_of(cells), framed=False) == cells
    assert cells_of(f"| {row_of(cells)} |", framed=True) == cells


@pytest.mark.parametrize(
    ("row", "framed", "cells"),
    [
        (r"| 阀门 V1 | `a\|b` 型 | 10 元 |", True, ["阀门 V1", "`a|b` 型", "10 元"]),
        (r"| name | a\| |", True, ["name", "a|"]),
        ("| | 2024 | 2025", False, ["", "", "2024", "2025"]),
        ("one", False, ["one"]),
    ],
)
def test_a_pipe_behind_a_backslash_is_none_between_cells(
    row: str, framed: bool, cells: list[str]
) -> None:
    assert cells_of(row, framed=framed) == cells
