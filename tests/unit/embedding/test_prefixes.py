"""Prefixes by model family, and what overrides them."""

from __future__ import annotations

import pytest

from forebay.embedding.prefixes import BGE_EN, BGE_ZH, E5, NONE, Prefixes, prefixes_for


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("intfloat/multilingual-e5-small", E5),
        ("e5-large-v2", E5),
        ("BAAI/bge-small-zh-v1.5", BGE_ZH),
        ("bge-large-zh", BGE_ZH),
        ("BAAI/bge-base-en-v1.5", BGE_EN),
        ("BAAI/bge-m3", NONE),
        ("text-embedding-3-small", NONE),
        ("something-else", NONE),
    ],
)
def test_families(name: str, expected: Prefixes) -> None:
    assert prefixes_for(name) == expected


def test_instruct_models_instruct_queries_only() -> None:
    for name in ("multilingual-e5-large-instruct", "Qwen/Qwen3-Embedding-0.6B"):
        found = prefixes_for(name)
        assert found.query.startswith("Instruct: ")
        assert found.passage == ""


def test_setting_beats_folder_beats_family() -> None:
    declared = Prefixes("ask: ", "doc: ")
    assert prefixes_for("e5-small", declared=declared) == declared
    assert prefixes_for("e5-small", declared=declared, query="") == Prefixes("", "doc: ")
    assert prefixes_for("bge-small-zh", passage="段落：").passage == "段落："


def test_apply() -> None:
    assert [E5.apply("x", kind) for kind in ("query", "passage", "raw")] == [
        "query: x",
        "passage: x",
        "x",
    ]
