"""Cleaning, languages, sentences, token estimates, registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.ingest import EstimatedTokenCounter, IngestLimits, parse, supported_extensions
from forebay.ingest.language import detect_language
from forebay.ingest.sentences import safe_cut, sentence_spans
from forebay.ingest.text import TextBuilder, clean
from forebay.kernel.errors import UnsupportedDocument


def sentences(text: str) -> list[str]:
    return [text[s:e] for s, e in sentence_spans(text, 0, len(text))]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The staff has to register on the first day.", "en"),
        ("员工入职当天应当完成登记", "zh"),
        ("使用 RAGFlow 的 Docker Compose 部署", "zh"),
        ("吾輩は猫である。名前はまだ無い。", "ja"),
        ("안녕하세요 오늘 날씨가 좋습니다", "ko"),
        ("Сотрудник обязан", "ru"),
        ("تحسين الإنتاجية", "ar"),
        ("Der Mitarbeiter ist nicht auf der Liste und das ist gut", "de"),
        ("12345 !!!", ""),
    ],
)
def test_language(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_declared_language_wins_unless_the_script_contradicts() -> None:
    assert detect_language("Bonjour", declared="fr-CA") == "fr"
    assert detect_language("员工", declared="en") == "zh"
    assert detect_language("員工", declared="ja") == "ja"


def test_clean_drops_what_nobody_sees() -> None:
    dirty = "a\x00b\u200bc\u00add\u202ee\ufefff\ufffdg\U000e0041h\r\ni\u2028j\x07"
    assert clean(dirty) == "abcdefgh\ni\nj"
    assert clean("\ud800x") == "x"


@given(st.lists(st.tuples(st.sampled_from(["paragraph", "list_item", "code"]), st.text())))
def test_builder_spans_are_exact(parts: list[tuple[str, str]]) -> None:
    builder = TextBuilder(IngestLimits(), media_type="text/plain")
    builder.add("paragraph", "first")
    for kind, text in parts:
        builder.add(kind, text, level=1)  # type: ignore[arg-type]
    extracted = builder.build()
    at = 0
    for block in extracted.blocks:
        assert block.start >= at and block.end > block.start
        assert extracted.text[at : block.start].strip() == ""
        at = block.end
    assert at == len(extracted.text)


def test_english_sentences() -> None:
    text = (
        'Dr. Smith paid 3.5 EUR, i.e. little. "Really?" he asked. See Fig. 2! J. Doe left... Fine.'
    )
    assert sentences(text) == [
        "Dr. Smith paid 3.5 EUR, i.e. little.",
        '"Really?" he asked.',
        "See Fig. 2!",
        "J. Doe left...",
        "Fine.",
    ]


def test_a_lost_space_between_sentences() -> None:
    text = "The first sentence of an abstract ends here.The next one follows. See os.Path there."
    assert len(sentences(text)) == 3


def test_chinese_sentences() -> None:
    text = "第一条规定。“可以吗？”他问。版本3.5已发布！下一句没有空格"
    assert sentences(text) == [
        "第一条规定。",
        "“可以吗？”",
        "他问。",
        "版本3.5已发布！",
        "下一句没有空格",
    ]


@pytest.mark.parametrize("cluster", ["e\u0301", "👩‍👩‍👧", "👍🏽", "🇩🇪", "각"])
def test_safe_cut_stays_outside_a_cluster(cluster: str) -> None:
    text = "a" + cluster + "b"
    for at in range(2, 1 + len(cluster)):
        assert safe_cut(text, 0, at) == 1


def test_estimate_is_additive_over_words_and_bounded_in_memory() -> None:
    counter = EstimatedTokenCounter()
    assert counter.count("") == 0 and counter.count("a") == 1
    assert counter.count("员工入职当天应当完成登记") in range(7, 12)
    assert counter.count("The staff has to register today.") in range(6, 11)
    for i in range(100_000):
        counter.count(f"word{i}")
    assert len(counter._words) <= 65_536


def test_every_supported_extension_is_read() -> None:
    extensions = supported_extensions()
    assert {".md", ".mdx", ".txt", ".html", ".pdf", ".docx", ".pptx", ".xlsx"} <= extensions
    assert {".csv", ".tsv", ".json", ".jsonl", ".eml", ".epub", ".py"} <= extensions


@pytest.mark.parametrize(
    ("name", "data", "code", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n...", "not_text", "an image"),
        ("a.svg", b"<!-- drawn --><svg><text>Sales</text></svg>", "not_text", "an image"),
        ("chart", b'<?xml version="1.0"?>\n<svg xmlns="x"></svg>', "not_text", "an image"),
        ("a.gz", b"\x1f\x8b\x08\x00", "not_text", "archive"),
        ("a.rtf", b"{\\rtf1 text}", "unsupported_document", "save it as .docx"),
        ("a.xls", b"text", "unsupported_document", "save it as .xlsx"),
        ("a.mp4", b"\x00\x00\x00\x18ftypmp42", "not_text", "video"),
    ],
)
def test_unsupported_files_say_what_to_do(name: str, data: bytes, code: str, reason: str) -> None:
    with pytest.raises(UnsupportedDocument, match=reason) as caught:
        parse(data, name=name)
    assert caught.value.code == code


def test_media_type_decides_where_the_name_does_not() -> None:
    assert parse(b"<p>a</p>", name="upload", media_type="text/html").media_type == "text/html"
    assert parse(b"<!doctype html><p>a", name="upload").media_type == "text/html"
    assert parse(b"# a", name="upload", media_type="text/markdown").text == "a"
    assert parse(b"# a", name="upload").media_type == "text/plain"
