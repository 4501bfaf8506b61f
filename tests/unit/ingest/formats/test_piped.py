"""Tables in plain text."""

from __future__ import annotations

from forebay.ingest import parse


def kinds(text: str, name: str = "a.txt") -> list[tuple[str, str]]:
    extracted = parse(text.encode(), name=name)
    return [(b.kind, extracted.text[b.start : b.end]) for b in extracted.blocks]


def test_lines_of_cells_are_rows_and_the_rest_stays_prose() -> None:
    assert kinds(
        "Sales were:\n | 2019 | 2018\nPumps | 1,5 | 2,5\nSeals | 3 | 4\nAll in EUR.\n"
    ) == [
        ("paragraph", "Sales were:"),
        ("table_header", "| 2019 | 2018"),
        ("table_row", "Pumps | 1,5 | 2,5"),
        ("table_row", "Seals | 3 | 4"),
        ("paragraph", "All in EUR."),
    ]


def test_a_line_drawn_under_the_first_makes_it_the_header() -> None:
    found = kinds("| 1 | 2 |\n|---|---|\n| 3 | 4 |\n")
    assert [kind for kind, _ in found] == ["table_header", "table_header", "table_row"]


def test_a_lone_line_with_a_pipe_is_no_table() -> None:
    assert kinds("Press Ctrl | Alt to go on.\nThen wait.\n") == [
        ("paragraph", "Press Ctrl | Alt to go on.\nThen wait.")
    ]


def test_code_is_left_alone() -> None:
    assert [kind for kind, _ in kinds("a | b\nc | d\n", "a.sh")] == ["code"]


def test_tables_are_numbered() -> None:
    text = "部件 | 价格\n水泵 | 3\n\n说明\n\n部件 | 库存\n水泵 | 7\n"
    extracted = parse(text.encode(), name="a.txt")
    assert [b.table for b in extracted.blocks] == [0, 0, None, 1, 1]
