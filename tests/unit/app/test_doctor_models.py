"""What the doctor finds wrong with the embedder and with the engines that write."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from importlib import util
from pathlib import Path

import msgspec
import pytest

from forebay.app.doctor_models import examine_models
from forebay.app.doctor_ranking import Finding
from forebay.app.settings import AnsweringSettings, Settings
from forebay.embedding.settings import EmbeddingSettings
from forebay.testing.tiny_model import write_tiny_model

NOWHERE = "http://127.0.0.1:1/v1"


def looked_at(
    environ: Mapping[str, str] | None = None,
    embedding: Mapping[str, object] | None = None,
    generation: Mapping[str, object] | None = None,
) -> list[Finding]:
    settings = Settings(
        embedding=msgspec.convert(embedding or {"backend": "none"}, EmbeddingSettings),
        generation=msgspec.convert(generation or {}, AnsweringSettings),
    )
    return list(examine_models(settings, environ or {}))


def pool(*urls: str, **more: object) -> dict[str, object]:
    """An engine pool ``main`` behind these addresses."""
    return {
        "backend": "openai",
        "pools": [{"name": "main", "base_urls": urls, "model": "m", "max_input_tokens": 100,
                   "max_output_tokens": 100, **more}],
    }  # fmt: skip


def test_the_defaults_are_fine() -> None:
    findings = looked_at(embedding={"backend": "e5"})
    assert [(one.name, one.status) for one in findings] == [
        ("embedding model", "ok"),
        ("generation", "ok"),
    ]


def test_a_model_folder_that_is_not_there_or_holds_no_model_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    [found, _] = looked_at(embedding={"backend": "onnx", "path": str(missing)})
    assert found.status == "missing" and f"{missing} is no folder" in found.detail
    [found, _] = looked_at(embedding={"backend": "onnx", "path": str(tmp_path)})
    assert found.status == "missing" and "has no tokenizer.json" in found.detail
    write_tiny_model(tmp_path / "model")
    [found, _] = looked_at(embedding={"backend": "onnx", "path": str(tmp_path / "model")})
    assert found.status == "ok"


def test_an_embedding_endpoint_is_knocked_at() -> None:
    endpoint = {"backend": "openai", "base_url": NOWHERE, "model": "m"}
    [found, _] = looked_at(embedding=endpoint)
    assert found.status == "missing" and "127.0.0.1:1 cannot be reached" in found.detail
    assert "embedding.backend=none" in found.remedy
    [found, _] = looked_at(embedding={**endpoint, "dimensions": 8})
    assert found.status == "note", "it is not asked for at the start"
    [found, _] = looked_at(embedding={"backend": "openai"})
    assert found.status == "missing"


def test_every_engine_of_every_pool_is_knocked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        _, up, down = looked_at(generation=pool(f"http://127.0.0.1:{port}/v1", NOWHERE))
    assert (up.name, up.status) == ("generation, pool main", "ok")
    assert (down.status, down.detail) == ("note", "127.0.0.1:1 cannot be reached from here")
    assert "quotations" in down.remedy


def test_a_missing_key_and_a_missing_pool_are_told() -> None:
    keyed = pool(NOWHERE, api_key_env="ENGINE_KEY")
    _, found = looked_at(generation=keyed)
    assert found.status == "missing" and "ENGINE_KEY" in found.detail
    _, found = looked_at({"ENGINE_KEY": "k"}, generation=keyed)
    assert found.status == "note"
    _, found = looked_at(generation={"backend": "openai"})
    assert found.status == "missing" and "generation.pools" in found.remedy


@pytest.mark.parametrize("installed", [False, True])
def test_a_vocabulary_without_its_package_is_told(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: object() if installed else None)
    found = looked_at(generation=pool(NOWHERE, tokenizer="bundle:qwen3"))
    told = [one.remedy for one in found if one.detail == "splintr: not installed"]
    assert told == ([] if installed else ["run `make setup-vocabularies`."])


@pytest.mark.parametrize("installed", [False, True])
def test_what_a_local_model_lacks_is_told(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: object() if installed else None)
    file = tmp_path / "model.gguf"
    local = {"backend": "llama", "llama": {"model_path": str(file)}}
    _, found = looked_at(generation=local)
    assert found.status == "missing"
    assert (str(file) in found.detail) if installed else ("make setup-llama" in found.remedy)
    file.write_bytes(b"GGUF")
    _, found = looked_at(generation=local)
    assert found.status == ("ok" if installed else "missing")
