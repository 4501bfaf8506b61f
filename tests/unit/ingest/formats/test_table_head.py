"""Which rows name the columns of a table."""

from __future__ import annotations

import pytest

from forebay.ingest.formats.table_head import header_rows, mark_header


def grid(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


@pytest.mark.parametrize(
    ("table", "count"),
    [
        ("Name | City\nAlice | Paris", 1),
        ("a | b\n1 | 2", 1),
        ("Year | Rate\n2019 | 5%", 1),
        ("Item | 2019 | 2018\nSales | 1,496.5 | 1,202.9", 1),
        ("项目 | 2019年 | 2018年\n收入 | 100 | 90", 1),
        ("產品 | 一月 | 二月\n水泵 | 3 | 4", 1),
        (" | Q1 | Q2\nEMEA | 10 | 20", 1),
        (" | Mar 31, 2019 | Dec 2018\nCash | $5 | $6", 1),
        ("Net sales by segment\nSegment | 2019\nA | 5", 2),
        (" | Years ended | \n | 2019 | 2018\nFixed | 1.5 | 2.5", 2),
        (" | Years ended | Years ended\n | 2019 | 2018\nFixed | 1.5 | 2.5", 2),
        (" |  | Fiscal | \n | 2019 | 2018 | 2017\n |  | (in millions) | \nA | 5 | 6 | 7", 3),
        (
            " | Domestic |  | Abroad | \n | 2019 | 2018 | 2019 | 2018\nRate | 4% | 3% | 1% | 2%",
            2,
        ),
        ("Bob | 1999\nAnn | 2001", 0),
        ("2019 | 5%\n2018 | 4%", 0),
        ("Jan | 1000\nFeb | 900", 0),
        ("1 | 2\n3 | 4", 0),
        ("清华大学 | 2 | 985\n北大 | 1 | 985", 0),
        ("x | x\ny | z", 0),
        ("Notes\nmore notes", 0),
        ("", 0),
    ],
)
def test_header_rows(table: str, count: int) -> None:
    assert header_rows(grid(table)) == count


def test_rows_are_marked_as_they_come() -> None:
    rows = iter([["Item", "2019"], *([f"row {i}", str(i * 10_000)] for i in range(50))])
    marked = list(mark_header(rows))
    assert [header for header, _ in marked] == [True] + [False] * 50
    assert marked[-1][1] == ["row 49", "490000"]
