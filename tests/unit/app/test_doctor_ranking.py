"""What the doctor finds wrong with rerankers, the query classifier and the fragility watch."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.app.doctor_ranking import Finding, Vectors, examine_ranking, vectors_of
from forebay.app.settings import RerankSettings, Settings
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.stages import EmbedderSpec
from forebay.policy.fragility import FragilitySettings
from forebay.query import QuerySettings
from forebay.query.classifier import KindClassifier
from forebay.rerank.settings import (
    CrossEncoderSettings,
    DearSettings,
    EndpointSettings,
    LightSettings,
)
from forebay.retrieval.spread import SpreadCalibration
from forebay.testing.tiny_cross_encoder import write_tiny_cross_encoder

OTHER = EmbeddingSettings(backend="openai", base_url="http://127.0.0.1:9/v1", model="m")


def found(
    settings: Settings, folder: Path, environ: Mapping[str, str] | None = None
) -> dict[str, Finding]:
    store = msgspec.structs.replace(settings.store, path=str(folder))
    settings = msgspec.structs.replace(settings, store=store)
    return {one.name: one for one in examine_ranking(settings, environ or {})}


def cascade(**dear: object) -> Settings:
    return Settings(rerank=RerankSettings(backend="cascade", dear=DearSettings(**dear)))  # type: ignore[arg-type]


def test_everything_as_it_is_by_default_is_fine(tmp_path: Path) -> None:
    findings = found(Settings(), tmp_path / "none")
    assert {one.status for one in findings.values()} == {"ok"}
    assert set(findings) == {"rerank", "query classifier", "fragility"}


@pytest.mark.parametrize(
    ("backend", "status"), [("auto", "note"), ("light", "missing"), ("cascade", "missing")]
)
def test_a_reranker_without_an_embedder_is_told(backend: str, status: str, tmp_path: Path) -> None:
    rerank = msgspec.convert({"backend": backend}, RerankSettings)
    settings = Settings(rerank=rerank, embedding=EmbeddingSettings(backend="none"))
    finding = found(settings, tmp_path)["rerank"]
    assert finding.status == status and "embedding.backend is none" in finding.detail


def test_the_shipped_light_model_fits_the_built_in_embedder(tmp_path: Path) -> None:
    findings = found(Settings(rerank=RerankSettings(backend="light")), tmp_path)
    assert findings["rerank"].status == "ok"


@pytest.mark.parametrize(("backend", "status"), [("auto", "note"), ("light", "missing")])
def test_a_light_model_of_another_size_than_the_vectors_is_told(
    backend: str, status: str, tmp_path: Path
) -> None:
    settings = Settings(
        rerank=msgspec.convert({"backend": backend}, RerankSettings),
        embedding=msgspec.structs.replace(OTHER, dimensions=768),
    )
    finding = found(settings, tmp_path)["rerank"]
    assert finding.status == status and "384 numbers, the embedder gives 768" in finding.detail
    assert "forebay distill" in finding.remedy


def test_a_light_model_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    light = LightSettings(path=str(tmp_path / "mine.onnx"))
    finding = found(Settings(rerank=RerankSettings(backend="light", light=light)), tmp_path)
    assert finding["rerank"].status == "missing" and "rerank.light.path" in finding["rerank"].remedy


def test_whose_vectors_are_meant_follows_the_store_where_the_settings_do_not_say() -> None:
    spec = EmbedderSpec("m", "mark", 384, 512)
    kbs = {"a": (3, spec), "b": (0, None)}
    settings = Settings(embedding=OTHER)
    assert vectors_of(settings, kbs) == Vectors("mark", 384)
    assert vectors_of(settings, {}) == Vectors()
    wider = Settings(embedding=msgspec.structs.replace(OTHER, dimensions=768))
    assert vectors_of(wider, kbs) == Vectors("", 768)
    assert vectors_of(Settings(embedding=EmbeddingSettings(backend="none")), kbs) == Vectors()
    shipped = KindClassifier.shipped()
    assert vectors_of(Settings(), kbs) == Vectors(shipped.fingerprint, shipped.dimensions)


def test_a_rerank_endpoint_is_named_keyed_and_reached(tmp_path: Path) -> None:
    def of(environ: Mapping[str, str] | None = None, **more: str) -> Finding:
        settings = cascade(backend="endpoint", endpoint=EndpointSettings(**more))  # type: ignore[arg-type]
        return found(settings, tmp_path, environ)["rerank, endpoint"]

    assert of().status == "missing" and "base_url" in of().remedy
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        assert of(base_url=url).status == "ok"
        keyed = of(base_url=url, api_key_env="RANK_KEY")
        assert keyed.status == "missing" and "RANK_KEY" in keyed.detail
        keyed = of({"RANK_KEY": "hush-hush"}, base_url=url, api_key_env="RANK_KEY")
        assert keyed.status == "ok" and "hush" not in keyed.detail
    assert of(base_url=url).status == "note" and "cannot be reached" in of(base_url=url).detail
    for wrong in ("host/v1", "http://host:port/v1", "ftp://host/v1"):
        assert of(base_url=wrong).status == "missing" and wrong in of(base_url=wrong).detail


def test_a_cross_encoders_folder_is_opened(tmp_path: Path) -> None:
    def of(path: str) -> Finding:
        settings = cascade(backend="onnx", onnx=CrossEncoderSettings(path=path))
        return found(settings, tmp_path / "store")["rerank, onnx"]

    assert of("").status == "missing"
    assert of(str(tmp_path)).status == "missing" and "tokenizer.json" in of(str(tmp_path)).remedy
    made = write_tiny_cross_encoder(tmp_path / "tiny")
    assert of(str(made)).status == "ok"


def test_late_interaction_wants_states_of_tokens(tmp_path: Path) -> None:
    late = found(cascade(backend="late"), tmp_path)["rerank, late"]
    assert late.status == "ok" and "shipped" in late.detail
    remote = msgspec.structs.replace(cascade(backend="late"), embedding=OTHER)
    assert found(remote, tmp_path)["rerank, late"].status == "missing"
    assert found(cascade(), tmp_path)["rerank, sentences"].status == "ok"


def test_a_query_classifier_that_does_not_fit_is_told(tmp_path: Path) -> None:
    def of(path: Path | str, embedding: EmbeddingSettings) -> Finding:
        query = QuerySettings(classifier_path=str(path) if path else "")
        settings = Settings(query=query, embedding=embedding)
        return found(settings, tmp_path / "store")["query classifier"]

    plain = EmbeddingSettings()
    assert of("", plain).status == "ok"
    assert of("", OTHER).status == "note" and "tools/train_kinds.py" in of("", OTHER).remedy
    assert of(tmp_path / "none.npz", plain).status == "missing"
    np.savez(tmp_path / "other.npz", fingerprint="other", weights=np.zeros((385, 6), np.float32))
    finding = of(tmp_path / "other.npz", plain)
    assert finding.status == "missing" and "another embedder" in finding.detail
    off = Settings(query=QuerySettings(enabled=False))
    assert found(off, tmp_path)["query classifier"].detail.startswith("off")


def test_what_is_normal_for_a_knowledge_base_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EmbedderSpec("m", "mark", 384, 512)
    stored = {"small": (3, spec), "手册": (100, spec), "grown": (1000, spec), "new": (100, spec)}
    monkeypatch.setattr("forebay.app.doctor_ranking.stored", lambda folder: stored)
    (tmp_path / "calibration").mkdir()
    for kb, mark in (("手册", "mark"), ("grown", "mark")):
        kept = SpreadCalibration(mark, 100, (0.0, 100.0), (0.0, 1.0))
        path = tmp_path / "calibration" / f"{kb}.spread.json"
        path.write_bytes(msgspec.json.encode(kept))
    settings = Settings(fragility=FragilitySettings(enabled=True))
    findings = found(settings, tmp_path)
    told = {kb: findings[f"fragility of {kb}"] for kb in stored}
    assert {kb: one.status for kb, one in told.items()} == {
        "small": "note", "手册": "ok", "grown": "note", "new": "note",
    }  # fmt: skip
    assert "too few" in told["small"].detail and "another corpus" in told["grown"].detail
    assert "has not been calibrated" in told["new"].detail
    bare = msgspec.structs.replace(settings, embedding=EmbeddingSettings(backend="none"))
    assert found(bare, tmp_path)["fragility"].status == "note"
