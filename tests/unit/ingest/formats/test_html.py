"""HTML: main content, structure, spans, nothing hidden, nothing fetched."""

from __future__ import annotations

from forebay.ingest import parse
from forebay.kernel.documents import Extracted


def html(body: str) -> Extracted:
    return parse(f"<!doctype html><html><body>{body}</body></html>".encode(), name="a.html")


def blocks(extracted: Extracted) -> list[tuple[str, int, str]]:
    return [(b.kind, b.level, extracted.text[b.start : b.end]) for b in extracted.blocks]


def test_structure() -> None:
    extracted = html(
        "<h2>Head <em>ing</em></h2><p>One<br>two</p>loose <b>te</b>xt"
        "<ol start=1><li>first<ul><li>inner</ul><li>second</ol><pre>a\n  b</pre>"
    )
    assert blocks(extracted) == [
        ("heading", 2, "Head ing"),
        ("paragraph", 0, "One\ntwo"),
        ("paragraph", 0, "loose text"),
        ("list_item", 1, "1. first"),
        ("list_item", 2, "- inner"),
        ("list_item", 1, "2. second"),
        ("code", 0, "a\n  b"),
    ]


def test_boilerplate_and_hidden_text_are_dropped() -> None:
    extracted = html(
        "<nav>menu</nav><script>evil()</script><style>p{}</style><p>kept</p>"
        "<p hidden>one</p><p style='display: none'>two</p><p aria-hidden=true>three</p>"
        "<iframe src='http://x'>four</iframe><template>five</template><form><button>six</button>"
    )
    assert extracted.text == "kept"


def test_main_content_wins_over_the_frame() -> None:
    body = "The real content of this page, told at length. " * 10
    extracted = html(f"<div>frame</div><main><h1>T</h1><p>{body}</p></main><div>foot</div>")
    assert "frame" not in extracted.text and "foot" not in extracted.text


def test_spans_are_written_out() -> None:
    extracted = html(
        "<table><tr><th rowspan=2>Name<th colspan=2>Price</tr><tr><th>net<th>gross</tr>"
        "<tr><td>A<td>1<td>2</tr><tr><td colspan=3>whole row</tr></table>"
    )
    assert extracted.text.split("\n") == [
        "Name | Price | Price",
        "Name | net | gross",
        "A | 1 | 2",
        "whole row",
    ]
    assert [b.kind for b in extracted.blocks] == [
        "table_header",
        "table_header",
        "table_row",
        "table_row",
    ]


def test_emphasis_in_a_cell_splits_no_word() -> None:
    extracted = html("<table><tr><td>H<sub>2</sub>O<p>水</p><td>门<b>禁</b>卡</table>")
    assert extracted.text == "H2O 水 | 门禁卡"


def test_a_layout_table_is_no_table() -> None:
    extracted = html("<table><tr><td><h1>T</h1><p>text</p><td>side</table>")
    assert [b.kind for b in extracted.blocks] == ["heading", "paragraph", "paragraph"]


def test_title_and_language() -> None:
    page = b"<html lang=de><head><title> Der \n Titel </title></head><p>Wort</p>"
    extracted = parse(page, name="a.html")
    assert (extracted.title, extracted.language) == ("Der Titel", "de")
    chinese = "<html lang=en><p>员工入职当天应当完成登记</p>".encode()
    assert parse(chinese, name="a.html").language == "zh"
