"""The language of a question, by its characters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.query.language import language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How long is the spillway?", "en"),
        ("Wie lang ist der Überlauf?", "en"),
        ("溢洪道有多长？", "zh"),
        ("溢洪道有多長？", "zh-Hant"),
        ("VPN 怎么连？", "zh"),
        ("FB-2041 的額定電壓是多少？", "zh-Hant"),
        ("how to 配置 VPN 连接", "mixed"),
        ("What does 年假 mean?", "mixed"),
        ("Who is the head of 研发 in Hangzhou?", "en"),
        ("北海道", "zh"),
        ("これは何ですか", "other"),
        ("Сколько это стоит?", "other"),
        ("얼마예요?", "other"),
        ("", "en"),
        ("???", "en"),
        ("x" * 1_000_000, "en"),
    ],
)
def test_language_of(text: str, language: str) -> None:
    assert language_of(text) == language


def test_shared_characters_tell_nothing() -> None:
    """后 and 台 stand in Traditional texts, too."""
    assert language_of("台灣的皇后是誰？") == "zh-Hant"


@pytest.mark.parametrize(
    ("name", "language", "least"),
    [
        ("drcd_dev", "zh-Hant", 0.99),
        ("xquad_zh", "zh", 0.99),
        ("xquad_en", "en", 0.99),
    ],
)
def test_questions_people_asked(shared_data: Path, name: str, language: str, least: float) -> None:
    file = shared_data / "retrieval" / name / "queries.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    right = [language_of(json.loads(line)["text"]) == language for line in lines]
    assert sum(right) / len(right) >= least
