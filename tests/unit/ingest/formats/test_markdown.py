"""Markdown: structure, front matter, MDX, and no markup in the text."""

from __future__ import annotations

import pytest

from forebay.ingest import parse
from forebay.kernel.documents import Extracted


def md(text: str, name: str = "folder/note.md") -> Extracted:
    return parse(text.encode(), name=name)


def blocks(extracted: Extracted) -> list[tuple[str, int, str]]:
    return [(b.kind, b.level, extracted.text[b.start : b.end]) for b in extracted.blocks]


def test_structure() -> None:
    extracted = md(
        "# Title\n\nPara *one* with `code` and [a link](http://x).\n\n"
        "- item\n  1. inner\n  2. more\n\n```py\nx = 1\n\ny = 2\n```\n\n> quoted\n"
    )
    assert blocks(extracted) == [
        ("heading", 1, "Title"),
        ("paragraph", 0, "Para one with code and a link."),
        ("list_item", 1, "- item"),
        ("list_item", 2, "1. inner"),
        ("list_item", 2, "2. more"),
        ("code", 0, "x = 1\n\ny = 2"),
        ("paragraph", 0, "quoted"),
    ]
    assert extracted.title == "Title"
    assert extracted.media_type == "text/markdown"


def test_tables_mark_their_header() -> None:
    extracted = md("| a | b |\n|---|---|\n| 1 | **2** |\n\n| c | d |\n|---|---|\n| 3 | |\n")
    kinds = [(b.kind, b.table) for b in extracted.blocks]
    assert kinds == [
        ("table_header", 0),
        ("table_row", 0),
        ("table_header", 1),
        ("table_row", 1),
    ]
    assert extracted.text == "a | b\n1 | 2\n\nc | d\n3 |"


def test_front_matter_becomes_metadata() -> None:
    extracted = md(
        "---\ntitle: 员工手册\ntags: [hr, 入职]\ngroups:\n  - staff\n  - hr\nlanguage: zh\n"
        "date: 2026-01-02\n---\n# Other\n\ntext\n"
    )
    assert extracted.title == "员工手册"
    assert extracted.metadata["tags"] == "hr,入职"
    assert extracted.metadata["groups"] == "staff,hr"
    assert extracted.metadata["date"] == "2026-01-02"
    assert extracted.language == "zh"
    assert extracted.text.startswith("Other")


@pytest.mark.parametrize("tags", ["a, b", "[a, b]", '"a,b"', "\n  - a\n  - b", "a，b"])
def test_tags_are_comma_joined_however_they_are_written(tags: str) -> None:
    assert md(f"---\ntags: {tags}\n---\ntext").metadata["tags"] == "a,b"


def test_toml_front_matter() -> None:
    assert md('+++\ntitle = "T"\ntags = ["a"]\n+++\ntext').title == "T"


def test_broken_front_matter_is_read_line_by_line() -> None:
    extracted = md("---\ntitle: a: b: [c\ndate: 2023-99-99\n---\ntext\n")
    assert extracted.metadata["title"] == "a: b: [c"
    assert extracted.text == "text"
    assert extracted.warnings == ("The front matter is not valid YAML; it was read line by line.",)


@pytest.mark.parametrize("value", ["[unclosed", '"unclosed', "{a: b", "'", "[未完"])
def test_a_title_that_ends_nowhere_is_none(value: str) -> None:
    broken = f"---\ntitle: {value}\ngroups: hr\n---\n"
    assert md(f"{broken}# Real\n\ntext\n").title == "Real"
    extracted = md(f"{broken}text\n")
    assert (extracted.title, extracted.text) == ("note", "text")
    assert extracted.metadata["groups"] == "hr"
    assert "not valid YAML" in extracted.warnings[0]
    alone = md(f"---\ntitle: {value}\n---\n# Real\n\ntext\n")
    assert "not valid YAML" in alone.warnings[0]
    assert (alone.title, alone.text) == ("Real", "Real\n\ntext")


def test_broken_toml_is_text_and_told() -> None:
    extracted = md("+++\ntitle = [\n+++\n# Real\n\ntext\n")
    assert extracted.title == "Real"
    assert extracted.warnings == ("The front matter is not valid TOML; it was read as text.",)


def test_a_rule_is_not_front_matter() -> None:
    assert "before" in md("---\n\nbefore\n\n---\n\nafter").text


def test_title_is_the_highest_heading_else_the_file_name() -> None:
    assert md("#### badge\n\n## Real\n\ntext").title == "Real"
    assert md("only text").title == "note"


def test_html_inside_is_reduced_to_its_words() -> None:
    extracted = md(
        '<div align="center"><a href="x"><img src="y">Logo</a></div>\n\n<!-- secret -->\n\n'
        "text<br>more <b>bold</b>\n\n<script>evil()</script>\n"
    )
    assert extracted.text == "Logo\n\ntext\nmore bold"


def test_mdx_drops_imports_and_tags_but_not_code() -> None:
    extracted = md(
        "import Tabs from '@theme/Tabs';\nimport {A} from 'b'\n\nexport const x = 1;\n\n"
        '# T\n\n<Tabs groupId="os" values={[1]}>\n<TabItem value="a">\n\nInside text.\n\n'
        "</TabItem>\n</Tabs>\n\n```js\nimport keep from 'me'\n<Keep />\n```\n",
        "a.mdx",
    )
    assert "Inside text." in extracted.text
    assert "import keep from 'me'" in extracted.text and "<Keep />" in extracted.text
    assert "Tabs" not in extracted.text and "export" not in extracted.text
