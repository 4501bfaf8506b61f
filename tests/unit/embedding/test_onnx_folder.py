"""Model folders: what is read from them and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.embedding.encoder import OnnxEncoder, SessionSettings, normalise, pool
from forebay.embedding.local import LocalSettings
from forebay.embedding.onnx_folder import (
    OnnxFolderSettings,
    folder_counter,
    folder_spec,
    open_onnx_folder,
    read_folder,
)
from forebay.embedding.prefixes import BGE_ZH, NONE, Prefixes
from forebay.embedding.tokenizers import HuggingFaceTokenizer
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, EngineError
from forebay.testing.tiny_model import write_tiny_model


def at(path: Path, **settings: str | int | None) -> OnnxFolderSettings:
    return OnnxFolderSettings(path, **settings)  # type: ignore[arg-type]


async def embed(folder: Path, text: str, batch_size: int = 1) -> NDArray[np.float32]:
    embedder = open_onnx_folder(
        at(folder),
        session=SessionSettings(),
        settings=LocalSettings(batch_size=batch_size),
        clock=SystemClock(),
    )
    vectors = await embedder.embed([text, "x"], kind="raw")
    await embedder.close()
    rows: NDArray[np.float32] = np.frombuffer(vectors.data, "<f4").reshape(2, -1)
    return np.array(rows[0])


async def test_pooling_decides_the_vector(tmp_path: Path) -> None:
    found = {}
    for pooling in ("cls", "mean", "last", "max"):
        folder = write_tiny_model(tmp_path / pooling, pooling=pooling)
        assert read_folder(at(folder)).pooling == pooling
        found[pooling] = await embed(folder, "return 退货")
        # Padding must not leak into any pooling.
        padded = await embed(folder, "return 退货", batch_size=2)
        assert float(found[pooling] @ padded) > 0.99999
    rows = list(found.values())
    assert all(float(a @ b) < 0.99 for i, a in enumerate(rows) for b in rows[:i])


async def test_mean_is_over_tokens(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    tokenizer = HuggingFaceTokenizer(folder / "tokenizer.json")
    ids = tokenizer.encode("ab", 64)
    assert (ids[0], ids[-1], len(ids)) == (2, 3, 4)
    encoder = OnnxEncoder(folder / "model.onnx", SessionSettings(), pad_id=0)
    alone, padded = encoder.encode([ids])[0], encoder.encode([ids, ids + [5] * 20])[0]
    assert float(alone @ padded) > 0.99999


def test_prefixes_by_name_by_folder_and_by_setting(tmp_path: Path) -> None:
    bge = write_tiny_model(tmp_path / "bge-small-zh-v1.5", pooling="cls")
    assert read_folder(at(bge)).prefixes == BGE_ZH
    declared = write_tiny_model(
        tmp_path / "bge-large-zh", prompts={"query": "问：", "document": "文："}
    )
    assert read_folder(at(declared)).prefixes == Prefixes("问：", "文：")
    assert read_folder(at(declared, query_prefix="")).prefixes == Prefixes("", "文：")
    empty = write_tiny_model(tmp_path / "other", prompts={"query": "", "document": ""})
    assert read_folder(at(empty)).prefixes == NONE


def test_limits(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    assert read_folder(at(folder)).max_tokens == 64
    assert read_folder(at(folder, max_tokens=32)).max_tokens == 32
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    assert read_folder(at(folder)).max_tokens == 48
    config = {"model_type": "xlm-roberta", "max_position_embeddings": 42}
    (folder / "config.json").write_text(json.dumps(config))
    assert read_folder(at(folder)).max_tokens == 40


def test_without_a_pooling_file_bge_is_cls(tmp_path: Path) -> None:
    for name, expected in (("bge-small-zh", "cls"), ("gte-small", "mean")):
        folder = write_tiny_model(tmp_path / name)
        (folder / "modules.json").unlink()
        (folder / "1_Pooling" / "config.json").unlink()
        assert read_folder(at(folder)).pooling == expected


def test_newer_pooling_file(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    assert read_folder(at(folder)).pooling == "last"


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        read_folder(at(tmp_path))
    folder = write_tiny_model(tmp_path / "tiny")
    with pytest.raises(ConfigError, match="ONNX files there: model"):
        read_folder(at(folder, model_file="absent.onnx"))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_weightedmean_tokens": true}')
    with pytest.raises(ConfigError, match="pools"):
        read_folder(at(folder))
    (folder / "modules.json").write_text('[{"path": "2_Dense", "type": "x.models.Dense"}]')
    with pytest.raises(ConfigError, match="Dense"):
        read_folder(at(folder))
    (folder / "modules.json").write_text("[")
    with pytest.raises(ConfigError, match=r"modules\.json"):
        read_folder(at(folder))
    (folder / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ConfigError, match=r"model\.onnx cannot be loaded"):
        OnnxEncoder(folder / "model.onnx", SessionSettings())
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="tokenizer"):
        HuggingFaceTokenizer(folder / "tokenizer.json")


def test_a_single_model_file_of_any_name_is_found(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "tiny_fp32.onnx")
    assert read_folder(at(folder)).model.name == "tiny_fp32.onnx"


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    def print_of(name: str, **settings: str | int | None) -> str:
        return folder_spec(read_folder(at(tmp_path / name, **settings)), 16).fingerprint

    write_tiny_model(tmp_path / "one")
    write_tiny_model(tmp_path / "same")
    write_tiny_model(tmp_path / "weights", seed=8)
    write_tiny_model(tmp_path / "pooling", pooling="cls")
    assert print_of("one") == print_of("same")
    others = [print_of("weights"), print_of("pooling"), print_of("one", query_prefix="q: ")]
    assert len({print_of("one"), *others}) == 4


def test_counter(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    assert folder_counter(at(folder)).count("ab 退货") == 5


def test_vectors_without_direction_are_an_error() -> None:
    for row in ([0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        with pytest.raises(EngineError):
            normalise(np.array([[1.0, 0.0], row], np.float32))


def test_pool_values() -> None:
    states = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    mask = np.array([[1, 1, 1, 0]])
    assert pool(states, mask, "cls").tolist() == [[0, 1, 2]]
    assert pool(states, mask, "mean").tolist() == [[3, 4, 5]]
    assert pool(states, mask, "last").tolist() == [[6, 7, 8]]
    assert pool(states, mask, "max").tolist() == [[6, 7, 8]]
