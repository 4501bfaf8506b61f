"""CSV, JSON, JSON lines and mail."""

from __future__ import annotations

from forebay.ingest import IngestLimits, parse


def text_of(data: str, name: str) -> str:
    return parse(data.encode(), name=name).text


def test_csv_header_rows_and_quotes() -> None:
    extracted = parse(b'name,note\nA,"one, two\nthree"\nB\n', name="a.csv")
    assert extracted.text == "name | note\nA | one, two three\nB"
    assert [b.kind for b in extracted.blocks] == ["table_header", "table_row", "table_row"]


def test_delimiters_are_sniffed() -> None:
    for delimiter in ",;\t|":
        data = (
            delimiter.join("ab") + "\n" + delimiter.join(("1,5" if delimiter == ";" else "x", "2"))
        )
        assert text_of(data, "a.csv").startswith("a | b\n")
    assert text_of("a\tb\n1\t2", "a.tsv") == "a | b\n1 | 2"


def test_json_values_have_paths() -> None:
    text = text_of('{"a": {"b": [1, 2], "c": "中"}, "d": [{"e": null}, {"e": true}]}', "a.json")
    assert text == "a.b: 1, 2\na.c: 中\nd[1].e: true"


def test_json_records_become_a_table() -> None:
    extracted = parse(b'[{"n": "A", "p": 1}, {"n": "B", "p": 2}]', name="a.json")
    assert extracted.text == "n | p\nA | 1\nB | 2"
    assert extracted.blocks[0].kind == "table_header"


def test_json_lines_keep_broken_lines_as_text() -> None:
    extracted = parse(b'{"a": {"b": 1}}\nnot json\n', name="a.jsonl")
    assert extracted.text == "a.b: 1\n\nnot json"
    assert "1 lines are not valid JSON" in extracted.warnings[0]


def test_broken_json_is_plain_text_with_a_warning() -> None:
    extracted = parse(b'{"a": 1', name="a.json")
    assert extracted.text == '{"a": 1' and "not valid JSON" in extracted.warnings[0]


def test_mail_prefers_plain_text_and_names_attachments() -> None:
    extracted = parse(
        b"From: A <a@x>\nTo: b@x\nSubject: =?utf-8?b?6KeE5a6a?=\n"
        b"Date: Mon, 1 Jan 2024 00:00:00 +0000\n"
        b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n"
        b"Content-Type: multipart/alternative; boundary=C\n\n--C\n"
        b"Content-Type: text/plain; charset=gb2312\n\n" + "员工登记".encode("gb2312") + b"\n--C\n"
        b"Content-Type: text/html\n\n<p>html</p>\n--C--\n--B\n"
        b'Content-Type: application/pdf; name="r.pdf"\n'
        b"Content-Disposition: attachment\n\nx\n--B--\n",
        name="a.eml",
    )
    assert extracted.title == "规定"
    assert "员工登记" in extracted.text and "html" not in extracted.text
    assert extracted.metadata["from"] == "A <a@x>"
    assert extracted.warnings == ("Attachment r.pdf was not indexed.",)


def test_mail_without_plain_text_falls_back_to_html() -> None:
    extracted = parse(
        b"Subject: s\nContent-Type: text/html\n\n<p>only <b>html</b></p>", name="a.eml"
    )
    assert "only html" in extracted.text


def test_plain_text_blocks() -> None:
    extracted = parse(b"one\ntwo\n\n  three\n\n\nfour", name="a.txt")
    assert [extracted.text[b.start : b.end] for b in extracted.blocks] == [
        "one\ntwo",
        "three",
        "four",
    ]
    code = parse(b"def f():\n    x = 1\n\n    return x\n", name="a.py")
    assert [b.kind for b in code.blocks] == ["code", "code"]
    assert code.text[code.blocks[1].start : code.blocks[1].end] == "    return x"


def test_long_lines_are_paragraphs() -> None:
    line = "员工入职当天应当完成登记。" * 20
    extracted = parse(f"{line}\n{line}\n{line}".encode(), name="a.txt", settings=IngestLimits())
    assert [extracted.text[b.start : b.end] for b in extracted.blocks] == [line] * 3
