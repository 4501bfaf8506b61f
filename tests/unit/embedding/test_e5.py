"""The default embedder: what is read, what is built, what the cache survives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.embedding import e5_build
from forebay.embedding.counting import open_e5_counter, open_token_counter
from forebay.embedding.e5 import e5_spec
from forebay.embedding.e5_build import (
    CHECK_TEXTS,
    REQUIRED_COSINE,
    E5Files,
    ensure_e5,
    reference_vectors,
)
from forebay.embedding.e5_source import E5Source
from forebay.embedding.e5_weights import find_e5_weights
from forebay.embedding.encoder import OnnxEncoder, SessionSettings
from forebay.embedding.prefixes import E5, NONE, Prefixes
from forebay.embedding.settings import EmbeddingSettings
from forebay.embedding.tokenizers import SentencePieceTokenizer
from forebay.kernel.errors import ConfigError, EngineError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> E5Files:
    return ensure_e5(tmp_path_factory.getbasetemp().parent / "forebay-e5")


@pytest.fixture(scope="module")
def tokenizer(files: E5Files) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(files.tokenizer)


@pytest.fixture(scope="module")
def source() -> E5Source:
    return E5Source(find_e5_weights())


@pytest.fixture
def copied(files: E5Files, tmp_path: Path) -> E5Files:
    """A cache of its own, so that a test may damage it."""
    shutil.copytree(files.model.parent, tmp_path / files.model.parent.name)
    return ensure_e5(tmp_path)


def test_source_layout(source: E5Source) -> None:
    assert (source.shape.hidden, source.shape.layers, source.shape.epsilon) == (384, 12, 1e-12)
    unigram = source.unigram
    assert unigram.pieces[:5] == ("<s>", "<pad>", "</s>", "<unk>", ",")
    assert (unigram.bos, unigram.pad, unigram.eos, unigram.unknown) == (0, 1, 2, 3)
    assert len(unigram.pieces) == len(unigram.scores) == 250_002
    assert unigram.normaliser["Ａ"] == "A"
    codes, scales = source.blocks("l0.q.w", 384)
    weights = source.matrix("l0.q.w", 384)
    assert codes.shape == (384, 12, 32)
    assert weights[5, 40] == (float(codes[5, 1, 8]) - 8) * scales[5, 1]


def test_rebuilt_model_agrees_with_the_package(files: E5Files) -> None:
    if files.cosine is None:
        pytest.skip("the package's own engine does not run here")
    assert files.cosine >= REQUIRED_COSINE
    reference = reference_vectors(find_e5_weights())
    assert reference is not None
    tokenizer = SentencePieceTokenizer(files.tokenizer)
    encoder = OnnxEncoder(files.model, SessionSettings(), final_graph=True)
    for (kind, text), expected in zip(CHECK_TEXTS, reference, strict=True):
        prefixed = E5.apply(text, "query" if kind == "query" else "passage")
        vector = encoder.encode([tokenizer.encode(prefixed, 512)])[0]
        assert float(vector @ np.asarray(expected)) >= REQUIRED_COSINE


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello world", [35378, 8999]),
        ("你好，世界！", [6, 124084, 4, 3221, 38]),
        ("", []),
        ("  \n\t ", []),
    ],
)
def test_known_ids(tokenizer: SentencePieceTokenizer, text: str, ids: list[int]) -> None:
    assert tokenizer.encode(text, 512) == [0, *ids, 2]
    assert tokenizer.count(text) == len(ids)


def test_forms_of_one_text_have_one_tokenization(tokenizer: SentencePieceTokenizer) -> None:
    pairs = [("ＡＢＣ１２３", "ABC123"), ("か\u3099", "が"), ("e\u0301", "é"), ("a\u3000b", "a b")]
    for left, right in pairs:
        assert tokenizer.encode(left, 512) == tokenizer.encode(right, 512)


def test_special_words_in_a_text_are_text(tokenizer: SentencePieceTokenizer) -> None:
    ids = tokenizer.encode("</s> <mask> <pad>", 512)
    assert set(ids[1:-1]).isdisjoint({0, 1, 2, 250_001})


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_fits_the_limit(tokenizer: SentencePieceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text, 16)
    assert 2 <= len(ids) <= 16
    assert (ids[0], ids[-1]) == (0, 2)
    assert all(0 <= token < 250_037 for token in ids)


def test_counter_agrees_with_the_tokenizer(files: E5Files) -> None:
    tokenizer = SentencePieceTokenizer(files.tokenizer)
    counter = open_e5_counter(files.model.parent.parent)
    english = "The boiler is serviced once a year; keep the receipt. " * 400
    chinese = "会议室需要提前一天预订，超过两小时请联系行政部。" * 800
    for text in (english, chinese, english + chinese):
        assert counter.count(text) == tokenizer.count(text)
    assert counter.count("你好 world") == tokenizer.count("你好 world")
    long = "字" * 2_000_000
    assert counter.count(long) == pytest.approx(2_000_000, rel=0.1)


def test_a_damaged_cache_is_rebuilt(copied: E5Files, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []

    def rebuild(folder: Path, weights: Path) -> None:
        built.append(folder)
        original(folder, weights)

    original = e5_build._build_into
    monkeypatch.setattr(e5_build, "_build_into", rebuild)
    cache = copied.model.parent.parent
    data = copied.model.with_name("model.onnx.data")
    with data.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    assert ensure_e5(cache) == copied
    assert built == [copied.model.parent]
    assert ensure_e5(cache) == copied
    assert len(built) == 1


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b'{"builder_version": "x"}'])
def test_a_damaged_manifest_is_not_believed(copied: E5Files, damage: bytes) -> None:
    manifest = copied.model.with_name("manifest.json")
    manifest.write_bytes(damage)
    assert e5_build._verified(copied.model.parent, copied.source_sha256) is None


def test_a_build_of_another_version_is_not_used(copied: E5Files) -> None:
    manifest = copied.model.with_name("manifest.json")
    content = msgspec.json.decode(manifest.read_bytes())
    content["builder_version"] += 1
    manifest.write_bytes(msgspec.json.encode(content))
    assert e5_build._verified(copied.model.parent, copied.source_sha256) is None


def test_concurrent_builders_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    lock = threading.Lock()

    def quick(folder: Path, weights: Path) -> None:
        nonlocal built
        with lock:
            built += 1
        folder.mkdir()
        names = {}
        for name in ("model.onnx", "tokenizer.model"):
            (folder / name).write_bytes(name.encode())
            digest = e5_build._sha256(folder / name)
            names[name] = e5_build.BuiltFile(digest, len(name))
        manifest = e5_build.Manifest(
            e5_build.BUILDER_VERSION, e5_build._sha256(weights), names, None
        )
        (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))

    monkeypatch.setattr(e5_build, "_build_into", quick)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"weights")
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ensure_e5, tmp_path / "cache", weights=weights) for _ in range(4)]
        answers = {str(job.result(30).model) for job in asked}
    assert len(answers) == built == 1


def test_weights_that_are_something_else(tmp_path: Path) -> None:
    for content in (b"", b"E5S1", b"nonsense" * 100):
        path = tmp_path / "weights.bin"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read"):
            E5Source(path)
    with pytest.raises(EngineError, match="building the default embedder failed"):
        ensure_e5(tmp_path / "cache", weights=path)
    assert not list((tmp_path / "cache").glob(".building-*"))


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cache folder"):
        ensure_e5(tmp_path / "file" / "cache")


def test_fingerprint_depends_on_content_not_on_place(files: E5Files, tmp_path: Path) -> None:
    moved = msgspec.structs.replace(files, model=tmp_path / "m", tokenizer=tmp_path / "t")
    assert e5_spec(moved) == e5_spec(files)
    others = [
        e5_spec(files, NONE),
        e5_spec(files, Prefixes("query: ", "")),
        e5_spec(msgspec.structs.replace(files, source_sha256="0" * 64)),
    ]
    prints = {spec.fingerprint for spec in (e5_spec(files), *others)}
    assert len(prints) == 4


_COUNTER_ALONE = """
import sys
from pathlib import Path
from forebay.embedding.counting import open_token_counter
from forebay.embedding.settings import EmbeddingSettings
counter = open_token_counter(EmbeddingSettings(), cache=Path(sys.argv[1]))
assert counter.count("你好 world") == 3, counter.count("你好 world")
print(*sorted({"numpy", "onnxruntime", "onnx", "tokenizers", "aiohttp"} & set(sys.modules)))
"""


def test_the_counter_alone_imports_nothing_heavy(files: E5Files) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COUNTER_ALONE, str(files.model.parent.parent)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""


def test_backends_without_a_vocabulary_count_as_the_default_does(files: E5Files) -> None:
    cache = files.model.parent.parent
    for backend in ("none", "openai"):
        counter = open_token_counter(EmbeddingSettings(backend=backend), cache=cache)
        assert counter.count("你好，世界！") == 5
