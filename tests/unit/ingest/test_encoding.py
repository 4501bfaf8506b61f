"""Encodings: every common one, short texts, damage, and what is no text at all."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.ingest import IngestLimits, parse
from forebay.ingest.encoding import decode
from forebay.kernel.errors import UnsupportedDocument

SIMPLIFIED = "员工入职当天应当完成登记，并领取门禁卡。试用期为三个月，期满后由部门负责人评定。"
TRADITIONAL = "員工入職當天應當完成登記，並領取門禁卡。試用期為三個月，期滿後由部門負責人評定。"
JAPANESE = "データベースの設定を変更してから、もう一度サーバーを起動してください。"
KOREAN = (
    "데이터베이스 설정을 변경한 후 서버를 다시 시작하십시오. 자세한 내용은 설명서를 참조하십시오."
)
GERMAN = "Größe und Maße der Tür über die Straße prüfen, bitte täglich außer dienstags."
RUSSIAN = "Сотрудник обязан зарегистрироваться в первый рабочий день и получить пропуск."

CASES = [
    *((SIMPLIFIED, codec) for codec in ("utf-8", "utf-8-sig", "gb18030", "gbk")),
    *((SIMPLIFIED, codec) for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le")),
    *((TRADITIONAL, codec) for codec in ("utf-8", "big5", "cp950", "utf-16-le", "utf-16-be")),
    *((JAPANESE, codec) for codec in ("cp932", "shift_jis", "euc_jp", "iso2022_jp", "utf-16-le")),
    *((KOREAN, codec) for codec in ("euc_kr", "cp949", "utf-16-le")),
    *((GERMAN, codec) for codec in ("cp1252", "iso8859-1", "utf-16-le")),
    *((RUSSIAN, codec) for codec in ("cp1251", "koi8-r", "utf-16-be")),
]


@pytest.mark.parametrize(("text", "codec"), CASES)
def test_a_sentence_in_every_encoding(text: str, codec: str) -> None:
    assert decode(text.encode(codec), IngestLimits()).text == text


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"])
@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.csv", "a.html"])
def test_chinese_files_in_every_format_and_encoding(name: str, codec: str) -> None:
    source = {
        "a.md": f"# 员工手册\n\n{SIMPLIFIED}\n",
        "a.txt": f"员工手册\n\n{SIMPLIFIED}\n",
        "a.csv": f"姓名,说明\n张三,{SIMPLIFIED}\n",
        "a.html": f"<html><body><h1>员工手册</h1><p>{SIMPLIFIED}</p></body></html>",
    }[name]
    extracted = parse(source.encode(codec), name=name)
    assert SIMPLIFIED in extracted.text
    assert extracted.language == "zh"
    assert "\ufeff" not in extracted.text


def test_short_chinese_text_is_indexed_with_a_warning() -> None:
    decoded = decode("门禁卡说明".encode("gb18030"), IngestLimits())
    assert decoded.text == "门禁卡说明"
    assert "low confidence" in decoded.warnings[0]


def test_declared_charset_wins_over_the_guess() -> None:
    html = '<meta charset="big5"><p>門禁卡</p>'
    assert "門禁卡" in parse(html.encode("big5"), name="a.html").text
    xml = '<?xml version="1.0" encoding="gb2312"?><a>门禁卡</a>'
    assert "门禁卡" in parse(xml.encode("gb2312"), name="a.xml").text
    plain = parse("門禁".encode("big5"), name="a.txt", media_type="text/plain; charset=big5")
    assert plain.text == "門禁"


def test_a_lying_declaration_does_not_win_over_utf8() -> None:
    html = '<meta charset="iso-8859-1"><p>门禁卡</p>'
    assert "门禁卡" in parse(html.encode("utf-8"), name="a.html").text
    unknown = '<meta charset="x-no-such"><p>门禁卡</p>'
    assert "门禁卡" in parse(unknown.encode("utf-8"), name="a.html").text


def test_a_few_broken_bytes_are_left_out_and_reported() -> None:
    data = (SIMPLIFIED * 3).encode()
    broken = data[:100] + b"\xff\xfe" + data[100:]
    decoded = decode(broken, IngestLimits())
    assert "\ufffd" not in decoded.text
    assert "first at byte" in decoded.warnings[0]


def test_a_cut_multibyte_character_at_the_end_costs_nothing_else() -> None:
    for codec in ("utf-8", "gb18030", "big5", "utf-16"):
        data = (TRADITIONAL * 2).encode(codec)[:-1]
        decoded = decode(data, IngestLimits())
        assert TRADITIONAL in decoded.text and decoded.warnings


def test_replacement_marks_in_the_source_are_left_out_and_reported() -> None:
    extracted = parse("lost \ufffd here".encode(), name="a.txt")
    assert "\ufffd" not in extracted.text
    assert "1 replacement marks" in extracted.warnings[0]


@pytest.mark.parametrize("data", [b"", b" \n\t", codecs.BOM_UTF8 + b"\n", b"\x00\x00\x00"])
def test_nothing_but_white_space_is_empty(data: bytes) -> None:
    with pytest.raises(UnsupportedDocument) as caught:
        parse(data, name="a.txt")
    assert caught.value.code == "empty"


def test_bytes_of_every_value_are_not_text() -> None:
    with pytest.raises(UnsupportedDocument) as caught:
        parse(bytes(range(256)) * 20, name="a.txt")
    assert caught.value.code == "not_text"


@pytest.mark.parametrize("data", [b"\x01\x02\x03a", b"\x7fELF", b"ab\x80\x01"])
def test_a_few_binary_bytes_are_not_text(data: bytes) -> None:
    with pytest.raises(UnsupportedDocument) as caught:
        parse(data, name="a.txt")
    assert caught.value.code in ("not_text", "undecodable")


@pytest.mark.parametrize(
    "data", [b"ok", b"one stray \x01 control character", b"\x1b[1mbold\x1b[0m"]
)
def test_a_short_text_stays_text_with_a_stray_control(data: bytes) -> None:
    assert parse(data, name="a.txt").text


def test_a_guess_between_odd_encodings_carries_a_warning() -> None:
    data = b"\x81\x8d\x8f abc \x90\x9d " * 30
    assert decode(data, IngestLimits(fallback_encoding="")).warnings


def test_detection_looks_at_a_sample_only() -> None:
    head = b"plain ascii line\n" * 100_000
    assert SIMPLIFIED in decode(head + SIMPLIFIED.encode("gb18030"), IngestLimits()).text


@given(st.binary(max_size=400))
def test_no_bytes_ever_yield_marks_or_controls(data: bytes) -> None:
    try:
        text = parse(data, name="a.txt").text
    except UnsupportedDocument:
        return
    assert "\ufffd" not in text
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    text.encode("utf-8")


@pytest.mark.parametrize("declared", ["hex", "rot13", "zip", "undefined", "punycode", "idna"])
@pytest.mark.parametrize("where", ["envelope", "document"])
def test_a_declared_codec_that_is_no_charset_counts_for_nothing(declared: str, where: str) -> None:
    text = "a-b \\u0041 41 caf\u00e9 \u6c34\u4f4d"
    if where == "document":
        text = f'<meta charset="{declared}">' + text
    charset = declared if where == "envelope" else None
    assert decode(text.encode(), IngestLimits(), charset=charset).text == text
